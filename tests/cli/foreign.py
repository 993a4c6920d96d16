"""Other programs' files in, and out again: --from, --show-resolved, a launch line behind --, export, gate, and the steps of ci/ as they stand."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from driver import PROGRAM, SOURCE, Checks, run

SAMPLES = os.path.join(SOURCE, "tests", "formats", "samples")


def sample(name):
    return os.path.join(SAMPLES, name)


def reads(checks):
    result = run("estimate", "llama-3.1-8b", "--from", sample("accelerate/fsdp2_config.yaml"), "--on", "h100-sxm", "--micro-batch", "1", "--seq", "1024", "--show-resolved")
    checks.check(result.code in (0, 1), f"--from accelerate: exit {result.code}: {result.err[:300]}")
    for text in ("fsdp2_config.yaml:11  fsdp_config.version", "unread", "2 x h100-sxm"):
        checks.check(text in result.out, f"--show-resolved does not print {text!r}")
    line = run("estimate", "--on", "h100-sxm", "--json", "--", "torchrun", "--nproc-per-node", "8", "train.py", "--model_name_or_path", "meta-llama/Llama-3.2-1B",
               "--per_device_train_batch_size", "1", "--bf16", "--block_size", "2048")
    checks.check(line.code == 0 and json.loads(line.out)["model"]["name"], f"a launch line: exit {line.code}: {line.err[:300]}")
    missing = run("estimate", "--from", sample("accelerate/fsdp2_config.yaml"), "--on", "h100-sxm")
    checks.check(missing.code == 2 and "which model" in missing.err, f"no model: {missing.err[:200]}")
    nothing = run("estimate", "--on", "8xh100-sxm")
    checks.check(nothing.code == 2 and "MODEL is missing" in nothing.err, f"nothing given: {nothing.err[:200]}")
    two = run("explain", "--from", sample("axolotl/fft-8b.yaml"), "--on", "8xh200")
    checks.check(two.code in (0, 1) and "llama-3.1-8b" in two.out, f"explain --from: {two.err[:200]}")


def writes(checks, folder):
    plan = os.path.join(folder, "plan")
    result = run("export", "llama-3.2-1b", "--on", "8xh100-sxm", "--data-parallel", "fsdp2", "--micro-batch", "1", "--seq", "2048", "--to", "accelerate", "-o", plan)
    checks.check(result.code == 0 and "launch: cd" in result.out, f"export: exit {result.code}: {result.err[:300]}")
    checks.check(sorted(os.listdir(plan)) == ["accelerate.yaml", "run.sh", "train.py", "training_arguments.json"], f"export wrote {sorted(os.listdir(plan))}")
    for name in ("run.sh",):
        checks.check(subprocess.run(["bash", "-n", os.path.join(plan, name)]).returncode == 0, f"{name} is no script")
    compile(open(os.path.join(plan, "train.py"), encoding="utf-8").read(), "train.py", "exec")
    back = run("estimate", "--from", os.path.join(plan, "accelerate.yaml"), os.path.join(plan, "training_arguments.json"), "--on", "h100-sxm")
    checks.check(back.code == 0 and "fsdp2 × 8, micro-batch 1 × 2048 tokens" in back.out, f"what was exported reads as: {back.out[:200]} {back.err[:200]}")
    wrong = run("export", "gpt2", "--on", "1xh100-sxm", "--to", "acelerate")
    checks.check(wrong.code == 2 and "accelerate" in wrong.err, f"a wrong format: {wrong.err[:200]}")


def steps(path):
    """The scripts of a workflow: what stands behind `run: |` or, in a list, `- |`."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = []
    for match in re.finditer(r"^( *)(?:run: |- )\|\n((?:\1 +.*\n|\n)+)", text, re.MULTILINE):
        lines = match.group(2).splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        found.append("\n".join(line[indent:] for line in lines))
    return found


def gates(checks, folder):
    case = os.path.join(folder, "case.json")
    for micro_batch, code in ((2, 0), (4, 1)):
        with open(case, "w", encoding="utf-8") as file:
            json.dump({"model": "gpt2", "on": "1xh100-sxm", "framework": "transformers", "precision": "bf16", "seq_len": 512, "micro_batch": micro_batch}, file)
        if micro_batch == 2:
            first = run("gate", "case.json", "--write-baseline", "base.json", folder=folder)
            checks.check(first.code == 0, f"gate --write-baseline: {first.err[:200]}")
        for path in ("github/action.yml", "gitlab/plimsoll-gate.yml"):
            scripts = steps(os.path.join(SOURCE, "ci", path))[-1:]
            checks.check(len(scripts) == 1, f"{path} has no script")
            summary = os.path.join(folder, "summary.md")
            environment = dict(os.environ, FILES="case.json", BASELINE="base.json", ON="", MEMORY="+2%", TIME="+3%", PLIMSOLL=PROGRAM, GITHUB_STEP_SUMMARY=summary)
            for script in scripts:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
                checks.check(done.returncode == code, f"{path} at micro-batch {micro_batch}: exit {done.returncode}: {done.stderr[:300]}")
                checks.check("case.json" in done.stdout, f"{path} prints {done.stdout[:200]}")
        with open(os.path.join(folder, "plimsoll-gate.json"), encoding="utf-8") as file:
            checks.check(all({"name", "unit", "value"} <= set(entry) for entry in json.load(file)), "github-action-benchmark's JSON lacks a key")


def fixes(checks, folder):
    """A change stands in the file only after --write, and the file then estimates as was said; comments stay. What the files say already is told."""
    path = os.path.join(folder, "axolotl.yaml")
    text = ("# ours\nbase_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 8192   # tokens\nmicro_batch_size: 4\ngradient_checkpointing: false  # for speed\nbf16: true\n"
            "optimizer: adamw_torch\nfsdp_version: 2\nfsdp_config:\n  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    shown = run("fix", "axolotl.yaml", "--on", "8xh100-sxm", folder=folder)
    checks.check(shown.code == 0 and "gradient_checkpointing: true" in shown.out and "nothing is written" in shown.out, f"fix: exit {shown.code}, {shown.out[:200]} {shown.err[:300]}")
    with open(path, encoding="utf-8") as file:
        checks.check(file.read() == text, "fix changed a file without --write")
    written = run("fix", "axolotl.yaml", "--on", "8xh100-sxm", "--write", folder=folder)
    with open(path, encoding="utf-8") as file:
        after = file.read()
    checks.check(written.code == 0 and "wrote axolotl.yaml" in written.out and "gradient_checkpointing: true  # for speed" in after and after.startswith("# ours\n"), f"fix --write: {after}")
    checks.check(run("estimate", "--from", "axolotl.yaml", "--on", "8xh100-sxm", folder=folder).code == 0, "what fix wrote does not fit")
    for words, said in ((("--recompute", "full"), "already"), ((), "which change?"), (("--micro-batch", "banana"), "micro-batch")):
        wrong = run("fix", "axolotl.yaml", "--on", "8xh100-sxm", *words, folder=folder)
        checks.check(wrong.code == 2 and said in wrong.err, f"fix {words}: exit {wrong.code}, {wrong.err[:200]}")


def fetches(checks, folder):
    """The tarball holds what its pipelines name, and their first steps unpack it where the next one looks; another file is refused by its hash."""
    tarball, bill = os.path.join(folder, "plimsoll-0-static.tar.gz"), os.path.join(folder, "bill.json")
    with open(bill, "w", encoding="utf-8") as file:
        file.write("{}")
    made = subprocess.run([sys.executable, os.path.join(SOURCE, "packaging", "tarball.py"), PROGRAM, SOURCE, bill, tarball], capture_output=True, text=True)
    checks.check(made.returncode == 0, f"tarball.py: {made.stderr[-300:]}")
    with tarfile.open(tarball) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    checks.check({"bin/plimsoll", "share/man/man1/plimsoll-estimate.1", "share/man/man1/plimsoll-mcp.1", "share/plimsoll/ci/github/action.yml"} <= names, f"the tarball holds {sorted(names)}")
    if not shutil.which("curl"):
        return
    with open(tarball, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    for path, prefix in (("github/plan.yml", ""), ("gitlab/plimsoll-gate.yml", "PLIMSOLL_")):
        script = steps(os.path.join(SOURCE, "ci", path))[0]
        for said, right in ((digest, True), ("0" * 64, False)):
            there = os.path.join(folder, f"{path.split('/')[0]}-{right}")
            os.mkdir(there)
            environment = dict(os.environ, **{prefix + "URL": "file://" + tarball, prefix + "SHA256": said})
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=there, env=environment, capture_output=True, text=True)
            unpacked = os.path.exists(os.path.join(there, "plimsoll", "bin", "plimsoll"))
            checks.check((done.returncode == 0) == right and unpacked == right, f"{path}, right hash {right}: exit {done.returncode}, {done.stderr[:200]}")


def launches(checks, folder):
    """A loop over configurations is a table, a line each; one that is not read says so and costs the others nothing."""
    path = os.path.join(folder, "loop.sh")
    line = "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --bf16 True --model_max_length 1024"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"for B in 1 2; do\n  {line} --per_device_train_batch_size $B 2>&1 | tee log\ndone\n")
    several = run("estimate", "--from", path, "--on", "h100-sxm")
    checks.check(several.code == 2 and "--launch NUMBER" in several.err and "--all" in several.err, f"two launch lines: {several.err[:300]}")
    each = run("estimate", "--from", path, "--on", "h100-sxm", "--all", "--json")
    found = json.loads(each.out)["launches"]
    peaks = [json.dumps(one["report"]["ranks"]) for one in found]
    checks.check(each.code == 0 and len(found) == 2 and peaks[0] != peaks[1], f"--all: exit {each.code}: {each.err[:300]}")
    with open(path, "a", encoding="utf-8") as file:
        file.write("swift rlhf --rlhf_type ppo --model a\n")
    table = run("estimate", "--from", path, "--on", "h100-sxm", "--all")
    checks.check(table.code == 2 and table.out.count(" fits ") == 2 and "rlhf_type: ppo" in table.out, f"--all: {table.out[:600]}")
    asked = run("estimate", "--from", path, "--on", "h100-sxm", "--launch", "3")
    checks.check(asked.code == 2 and len(asked.err.splitlines()) == 1, f"--launch 3: {asked.err[:300]}")


def main():
    checks = Checks()
    reads(checks)
    with tempfile.TemporaryDirectory() as folder:
        launches(checks, folder)
        writes(checks, folder)
        gates(checks, folder)
        fixes(checks, folder)
        fetches(checks, folder)
    checks.finish()


if __name__ == "__main__":
    main()
