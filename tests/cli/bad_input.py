"""Bad input of every kind: one clear line that names the place, exit 2, within a second and 256 MB."""
import json
import os
import subprocess
import tempfile

from driver import PROGRAM, SANITIZED, SOURCE, Checks, run

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": False}
GOOD = ["--micro-batch", "1", "--seq", "128"]
DEEP = "[" * 100_000


def altered(**keys):
    return json.dumps({**LLAMA, **keys})


# name of the file, its text (bytes: written as they are; int: a file of that many zero bytes), and what the line must say
CONFIGS = [
    ("truncated.json", altered()[:60], ["truncated.json"]),
    ("empty.json", "", ["empty.json"]),
    ("text.json", "hello", ["text.json"]),
    ("array.json", "[1, 2]", ["object"]),
    ("number.json", "42", ["object"]),
    ("type.json", altered(hidden_size="256"), ["/hidden_size", "integer"]),
    ("object.json", altered(hidden_size={"a": 1}), ["/hidden_size"]),
    ("fraction.json", altered(hidden_size=256.5), ["/hidden_size"]),
    ("nan.json", altered(hidden_size=float("nan")), ["nan.json"]),
    ("infinity.json", altered(hidden_size=float("inf")), ["infinity.json"]),
    ("negative.json", altered(hidden_size=-256), ["/hidden_size"]),
    ("zero.json", altered(num_attention_heads=0), ["/num_attention_heads"]),
    ("layers.json", altered(num_hidden_layers=10**12), ["/num_hidden_layers"]),
    ("huge.json", altered(hidden_size=10**30), ["hidden_size"]),
    ("overflow.json", altered(vocab_size=2**62), ["/vocab_size"]),
    ("deep.json", DEEP, ["deep.json"]),
    ("deep_key.json", '{"a":' * 50_000, ["deep_key.json"]),
    ("large.json", 200 * 2**20, ["large.json"]),
    ("typo.json", json.dumps({("hiden_size" if key == "hidden_size" else key): value for key, value in LLAMA.items()}), ["hidden_size", "hiden_size"]),
    ("unknown.json", altered(model_type="lama"), ["lama", "llama"]),
    ("no_type.json", json.dumps({"hidden_size": 8}), ["no_type.json"]),
    ("heads.json", altered(num_key_value_heads=3), ["num_key_value_heads"]),
    ("utf8.json", b'{"model_type":"\xff\xfe"}', ["utf8.json"]),
    ("binary.json", bytes(range(256)) * 8, ["binary.json"]),
    ("utf16.json", altered().encode("utf-16"), ["utf16.json"]),
    ("duplicate.json", '{"model_type":"llama","model_type":"gpt2"}', ["model_type"]),
    ("falcon.json", json.dumps({"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 512,
                                "new_decoder_architecture": True, "parallel_attn": True, "num_kv_heads": 3}), ["num_attention_heads", "num_kv_heads"]),
    ("null.json", altered(num_hidden_layers=None), ["num_hidden_layers"]),
]

MIXTRAL = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}

# Sizes that no device holds are refused before anything is made of them: 8 experts of 3 · 1024 · 10⁹ elements, a table of routes for 10⁷ experts,
# matrices of (4 · 10⁶)², 4096 layers of 4 · 262144² elements and more. A million experts of 8 rows are a step
# where one kernel multiplies them.
ABSURD = [
    ("wide.json", json.dumps({**MIXTRAL, "hidden_size": 1024, "intermediate_size": 10**9}), ["the parameter", "config"]),
    ("routes.json", json.dumps({**MIXTRAL, "num_local_experts": 10**7, "intermediate_size": 10**6}), ["the parameter", "config"]),
    ("hidden.json", altered(hidden_size=4 * 10**6), ["the parameter", "config"]),
    ("layers_of_many.json", altered(hidden_size=2**18, num_hidden_layers=4096), ["share of the weights", "config"]),
]


def image_graph(side):
    return json.dumps({"plimsoll-graph": 1, "input": {"image": [3, side, side]}, "blocks": [{"name": "net", "operators": [
        {"name": "conv", "kind": "convolution", "channels": 8, "kernel": 3, "padding": 1}, {"name": "pool", "kind": "pool", "kernel": side},
        {"name": "flatten", "kind": "flatten"}, {"name": "fc", "kind": "linear", "out": 10}]}]})


def chain_graph(operators):
    return json.dumps({"plimsoll-graph": 1, "input": {"vectors": 64}, "blocks": [{"name": "net", "operators": [
        {"name": f"fc{i}", "kind": "linear", "out": 64} for i in range(operators)]}]})


GRAPHS = [
    ("graph_cut.json", '{"schema":"plimsoll/graph/1","oper', ["graph_cut.json"]),
    ("graph_empty.json", '{"schema":"plimsoll/graph/1"}', ["graph_empty.json"]),
]

STRATEGIES = [
    ("strategy_cut.json", '{"tp": ', ["strategy_cut.json"]),
    ("strategy_typo.json", '{"micro_bach": 2}', ["micro_bach", "micro_batch"]),
    ("strategy_type.json", '{"tp": "many"}', ["tp"]),
    ("strategy_nan.json", '{"moe": NaN}', ["strategy_nan.json"]),
    ("strategy_negative.json", '{"tp": -2}', ["tp"]),
    ("strategy_array.json", "[]", ["strategy_array.json"]),
    ("strategy_deep.json", DEEP, ["strategy_deep.json"]),
    ("strategy_large.json", 200 * 2**20, ["strategy_large.json"]),
    ("strategy_group.json", '{"deepspeed": 7}', ["/deepspeed", "an object"]),
    ("strategy_absurd.json", '{"micro_batch": 1000000000000000000000}', ["micro_batch"]),
]

# Many of something: refused, or read in time that grows with the file and no faster.
MANY = [
    ("many_keys.json", altered(**{f"unknown_key_{i}": i for i in range(100_000)}), ["20000 keys"]),
    ("many_operators.json", chain_graph(100_000), ["100000 operators"]),
    ("many_strategy.json", json.dumps({f"unknown_key_{i}": i for i in range(100_000)}), ["20000 keys"]),
]

# What a terminal would obey, or a reader take for another line, never reaches it.
ESCAPES = [
    ("escape.json", altered(model_type="a\x1b[2J\x1b[31m\nfits: forged"), ["escape.json"]),
    ("escape_key.json", json.dumps({"model_type": "llama", "architectures": ["x\x1b]0;title\x07\r\n"]}), ["escape_key.json"]),
]

SIZES = ["--micro-batch 1e8", "--micro-batch 1e12", "--seq 1e10", "--seq 1e12 --micro-batch 1e12", "--global-batch 1e12 --pp 4 --framework megatron-core"]

CONTRADICTIONS = [
    ("--zero 1 --zero-stage 3", ["--zero", "--zero-stage"]),
    ("--data-parallel ddp --fsdp full", ["--data-parallel", "--fsdp"]),
    ("--data-parallel ddp --zero 3", ["--data-parallel", "--zero"]),
    ("--seq 128 --seq-len 256", ["--seq", "--seq-len"]),
    ("--torch banana", ["banana", "2.15"]),
    ("--task image", ["image", "LlamaForCausalLM"]),
    ("--layer-spec banana", ["local"]),
    ("--schedule banana", ["banana", "1f1b"]),
]

CLUSTERS = [
    ("cluster_cut.json", '{"accelerator": "mi300x", ', ["cluster_cut.json"]),
    ("cluster_type.json", '{"accelerator": 3}', ["cluster_type.json"]),
    ("cluster_empty.json", "{}", ["cluster_empty.json"]),
    ("cluster_deep.json", DEEP, ["cluster_deep.json"]),
    ("cluster_large.json", 200 * 2**20, ["cluster_large.json"]),
]


def device(bandwidth):
    """A shipped device with another memory bandwidth."""
    with open(os.path.join(SOURCE, "hardware", "accelerators", "l4.json"), encoding="utf-8") as file:
        return file.read().replace("300 GB/s", bandwidth)


ESCAPE = "\\u001b[31m\\nfits: forged"
DEVICES = [("title.json", device("300 GB/s").replace("NVIDIA L4", "L4" + ESCAPE), ["title.json#/title", "control"]),
           ("source.json", device("300 GB/s").replace('"sources": {', '"sources": {"a' + ESCAPE + '": "b", '), ["control"]),
           ("fast.json", device("1e300 B/s"), ["1e300"]), ("still.json", device("0 B/s"), ["0 B/s"]), ("slow.json", device("1e-9 B/s"), ["1e-9"])]

ROWS = [
    ("rows_escape.json", '[{"id": "a' + ESCAPE + '"}]', ["rows_escape.json#/0/id", "control"]),
    ("rows_escape_key.json", '[{"a' + ESCAPE + '": 1}]', ["control"]),
    ("rows_cut.json", '{"rows": [', ["rows_cut.json"]),
    ("rows_type.json", '{"rows": 3}', ["rows_type.json"]),
    ("rows_number.json", "3", ["rows_number.json"]),
    ("rows_deep.json", DEEP, ["rows_deep.json"]),
    ("rows_large.json", 200 * 2**20, ["rows_large.json"]),
    ("rows_many.json", "[" + ",".join(["{}"] * 100_000) + "]", ["100000 rows"]),
]

# Files of other programs: aliases are copies, so many of one long list are refused, and so is a list with sixty names.
FOREIGN = [
    ("keys.yaml", "".join(f"key_{i}: 1\n" for i in range(100_000)), ["more than 200000 values"]),
    ("names.yaml", "".join(f"&a{i} [" for i in range(60)) + ",".join(["1"] * 150_000) + "]" * 60, ["more than 200000 values"]),
    ("aliases.yaml", "a: &a [" + ",".join(["1"] * 60_000) + "]\nb: [*a, *a, *a, *a]\n", ["aliases.yaml:2", "more than 200000 values"]),
]

# command line, and what the line must say
LINES = [
    (["estimate", "no/such/config.json", "--on", "8xmi300x"], ["no/such/config.json"]),
    (["estimate", ".", "--on", "8xmi300x"], ["config.json"]),
    (["estimate", "llama-3.1-8", "--on", "8xmi300x"], ["llama-3.1-8b"]),
    (["estimate", "llama-3.1-8b"], ["--on"]),
    (["estimate"], ["MODEL"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300"], ["mi300a"]),
    (["estimate", "llama-3.1-8b", "--on", "8x"], ["8x"]),
    (["estimate", "llama-3.1-8b", "--on", "0xmi300x"], ["'0'"]),
    (["estimate", "llama-3.1-8b", "--on", "-8xmi300x"], ["mi300x"]),
    (["estimate", "llama-3.1-8b", "--on", "99999999999999999999xmi300x"], ["99999999999999999999"]),
    (["estimate", "llama-3.1-8b", "--on", "12xmi300x"], ["12xmi300x"]),
    (["estimate", "llama-3.1-8b", "--on", "no/cluster.json", *GOOD], ["no/cluster.json"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--mico-batch", "2"], ["--micro-batch"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--micro-batch"], ["--micro-batch"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--micro-batch", "two"], ["two", "--micro-batch"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--micro-batch", "nan"], ["nan"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--micro-batch", "-1"], ["-1"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--zero", "4"], ["--zero"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--fsdp", "ful"], ["full"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--zero", "3", "--fsdp", "full"], ["--zero", "--fsdp"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--tp", "3"], ["3"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--tp", "16"], ["16"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--pp", "7"], ["7"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--dp", "3"], ["3"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--global-batch", "7"], ["7"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--precision", "bf61"], ["bf16"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--optimizer", "adanw"], ["adamw"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--framework", "torchtian"], ["torchtitan"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", *GOOD, "--strategy", "no.json"], ["no.json"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "extra"], ["extra"]),
    (["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--view", "accelerat"], ["accelerate"]),
    (["explain", "gpt2"], ["--on"]),
    (["explain"], ["MODEL"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--format", "jsn"], ["json"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--format", "memory_viz"], ["-o"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--format", "trace", "-o", "no/folder/trace.json"], ["no/folder/trace.json"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--rank", "1"], ["stage 1", "0"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--format", "trace", "--rank", "1"], ["stage 1", "0"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--rank", "-1"], ["--rank"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--rank", "first"], ["--rank", "first"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--most", "1.5"], ["--most"]),
    (["explain", "gpt2", "--on", "1xh100-sxm", *GOOD, "--recompute", "ful"], ["full"]),
    (["estmate", "llama-3.1-8b"], ["estimate"]),
    (["--jsn"], ["--jsn"]),
    (["engine", "gpt2", "--on", "1xh100-sxm", "--engine", "vlm"], ["vllm"]),
    (["engine", "gpt2", "--on", "1xh100-sxm", "--engine", "vllm@x"], ["vllm@0.11"]),
    (["engine", "gpt2", "--on", "1xh100-sxm", "--gpu-memory-utilization", "1.5"], ["gpu_memory_utilization", "1.5"]),
    (["engine", "gpt2", "--on", "1xh100-sxm", "--mem-fraction-static", "0.5"], ["gpu_memory_utilization"]),
    (["engine", "llama-3.1-8b", "--on", "4xh100-sxm", "--tp", "3"], ["--tp", "32 attention heads"]),
    (["engine", "llama-3.1-8b", "--on", "1xh100-sxm", "--max-model-len", "99999999999999999999"], ["max_model_len"]),
    (["engine", "llama-3.1-8b", "--on", "1xh100-sxm", "--completions", "8", "--lengths", "1,,2"], ["lengths"]),
    (["engine", "resnet-50", "--on", "1xh100-sxm"], ["resnet-50"]),
    (["engine", "nemotron-h-56b", "--on", "8xh100-sxm", "--tp", "8"], ["recurrent"]),
    (["formula"], ["zero"]),
    (["formula", "zer"], ["zero"]),
    (["formula", "zero", "--params", "7e9"], ["--gpus"]),
    (["formula", "zero", "--params", "-7e9", "--gpus", "4"], ["-7e9"]),
    (["formula", "zero", "--params", "7e9", "--gpus", "0"], ["--gpus"]),
    (["formula", "ring", "--bytes", "1 furlong", "--ranks", "2", "--bandwidth", "1 GB/s"], ["furlong"]),
    (["formula", "bubble", "--stages", "1e9", "--micro-batches", "1e9"], ["--stages"]),
    (["models", "gtp2"], ["gpt2"]),
    (["graph", "gpt2", "--format", "dto"], ["dot"]),
    (["hardware", "mi300"], ["mi300a"]),
    (["validate"], ["ROWS"]),
    (["validate", "no/rows.json"], ["no/rows.json"]),
    (["search", "gpt2", "--on", "1xh100-sxm", "--global-batch", "8", "--seq", "128", "--resume", "a" * 5000], ["File name too long"]),
    (["export", "gpt2", "--on", "8xh100-sxm", *GOOD, "--to", "accelerate", "-o", "/proc/no/folder"], ["/proc/no/folder"]),
]


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        if isinstance(text, int):
            file.truncate(text)
        else:
            file.write(text if isinstance(text, bytes) else text.encode())
    return path


def expect_one_clear_line(checks, folder, arguments, says):
    result = run(*arguments, folder=folder)
    told = " ".join(arguments)[:100]
    lines = result.err.splitlines()
    checks.check(result.code == 2, f"{told}: exit {result.code}, expected 2: {result.err[:300]!r}")
    checks.check(len(lines) == 1 and lines[0].startswith("plimsoll: "), f"{told}: expected one line on stderr: {result.err[:300]!r}")
    checks.check("plimsoll: plimsoll" not in result.err, f"{told}: the name twice: {result.err[:100]!r}")
    checks.check(len(result.err) < 1500, f"{told}: a line of {len(result.err)} characters")
    checks.check(not any(ord(c) < 0x20 and c != "\n" for c in result.err), f"{told}: control characters reach the terminal: {result.err[:300]!r}")
    for word in says:
        checks.check(word in result.err, f"{told}: the line does not say {word!r}: {result.err[:300]!r}")
    checks.check(result.out == "", f"{told}: printed {result.out[:80]!r} all the same")
    if not SANITIZED:
        checks.check(result.seconds < 1, f"{told}: took {result.seconds:.2f} s")
        checks.check(result.megabytes < 256, f"{told}: took {result.megabytes:.0f} MB")


def full_device(checks):
    """A report that cannot be written is no success."""
    with open("/dev/full", "wb") as full:
        process = subprocess.run([PROGRAM, "estimate", "gpt2", "--on", "1xh100-sxm", *GOOD], stdout=full, stderr=subprocess.PIPE)
    checks.check(process.returncode == 2 and b"could not be written" in process.stderr, f"a full device: exit {process.returncode}: {process.stderr!r}")


def main():
    checks = Checks()
    full_device(checks)
    with tempfile.TemporaryDirectory() as folder:
        for name, text, says in CONFIGS + GRAPHS + ABSURD:
            expect_one_clear_line(checks, folder, ["estimate", write(folder, name, text), "--on", "8xmi300x", *GOOD], says)
        for name, text, says in STRATEGIES:
            expect_one_clear_line(checks, folder, ["estimate", "gpt2", "--on", "8xmi300x", "--strategy", write(folder, name, text)], says)
        for name, text, says in CLUSTERS:
            expect_one_clear_line(checks, folder, ["estimate", "gpt2", "--on", write(folder, name, text), *GOOD], says)
        for name, text, says in MANY[:2] + ESCAPES:
            expect_one_clear_line(checks, folder, ["estimate", write(folder, name, text), "--on", "8xmi300x", *GOOD], says)
        expect_one_clear_line(checks, folder, ["estimate", "gpt2", "--on", "8xmi300x", "--strategy", write(folder, *MANY[2][:2])], MANY[2][2])
        for name, text, says in DEVICES:
            expect_one_clear_line(checks, folder, ["estimate", "gpt2", "--on", "1x" + write(folder, name, text), *GOOD], says)
        expect_one_clear_line(checks, folder, ["estimate", write(folder, "image.json", image_graph(10**6)), "--on", "8xmi300x"], ["takes"])
        expect_one_clear_line(checks, folder, ["graph", write(folder, "escape_graph.json", chain_graph(2).replace("fc1", "fc" + ESCAPE))],
                              ["escape_graph.json#/blocks/0/operators/1/name", "control"])
        for name, text, says in FOREIGN:
            expect_one_clear_line(checks, folder, ["estimate", "--from", write(folder, name, text), "--on", "8xmi300x"], says)
        experts = write(folder, "experts.json", json.dumps({**MIXTRAL, "num_local_experts": 10**6, "hidden_size": 64, "intermediate_size": 8}))
        expect_one_clear_line(checks, folder, ["estimate", experts, "--on", "8xmi300x", *GOOD], ["experts", "one by one"])
        many = run("estimate", experts, "--on", "8xh100-sxm", "--precision", "pure-bf16", *GOOD)
        checks.check(many.code == 0, f"a million experts: exit {many.code}: {many.err[:300]!r}")
        checks.check(SANITIZED or (many.seconds < 2 and many.megabytes < 256), f"a million experts: {many.seconds:.1f} s, {many.megabytes:.0f} MB")
        for flags in SIZES:
            expect_one_clear_line(checks, folder, ["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", *flags.split()], [])
        for flags, says in CONTRADICTIONS:
            expect_one_clear_line(checks, folder, ["estimate", "llama-3.1-8b", "--on", "8xmi300x", *flags.split()], says)
        for name, text, says in ROWS:
            expect_one_clear_line(checks, folder, ["validate", write(folder, name, text)], says)
        for arguments, says in LINES:
            expect_one_clear_line(checks, folder, arguments, says)
    checks.finish()


main()
