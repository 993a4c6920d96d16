"""Predicts the measured rows of bench/corpus and writes the README's tables of errors between their markers.

accuracy.py PROGRAM [FILE...]: every file of the corpus, or those named anew; what was predicted before is kept in build/accuracy."""
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
KEPT = "build/accuracy"

# What the rows of a file are. Those of a framework that ran without a device have memory to the byte and no time.
OWN = {
    "allocator-transformers": "transformers: one device, DDP, FSDP1, FSDP2, LoRA, compiled",
    "allocator-families": "transformers: 74 model types at sizes and settings drawn at random",
    "allocator-compiled": "torch.compile of every layer: twenty-nine families at sizes drawn at random",
    "allocator-compiled-model": "torch.compile of whole models: llama, mistral, qwen2, qwen3, gpt2, bert",
    "allocator-compiled-ddp": "torch.compile of every layer and of whole models under DDP",
    "allocator-compiled-fsdp2": "torch.compile of whole models under FSDP2, whose hooks cut them",
    "allocator-verl": "verl's FSDP workers: one device, FSDP1, FSDP2, LoRA",
    "allocator-trl": "TRL's SFT, preferences, rewards and teachers: one device, DDP, FSDP2, ZeRO, LoRA",
    "allocator-accelerate": "Accelerate and transformers' Trainer: one device, DDP, FSDP1, FSDP2, LoRA, bitsandbytes' weights",
    "allocator-axolotl": "axolotl's kernels for adapters and cut cross entropy",
    "allocator-flash-attention": "transformers with flash_attention_2: twenty-odd model types",
    "allocator-msamp": "MS-AMP O1 to O3, over DeepSpeed too",
    "allocator-torchao": "Accelerate's fp8 by torchao",
    "allocator-peft": "PEFT beside LoRA: IA³, norms, prompts",
    "allocator-liger-mixtures": "Liger's kernels in Mixtral and Qwen3's mixtures",
    "allocator-peft-mixtures": "LoRA over the router and experts of mixtures",
    "allocator-deepspeed": "DeepSpeed 0.14 to 0.16 and 0.19: ZeRO 0 to 3, offload, NVMe, 8-bit weights, Liger",
    "allocator-deepspeed-releases": "DeepSpeed 0.12 to 0.19.5: ZeRO 0 to 3, offload",
    "allocator-deepspeed-lora": "LoRA under DeepSpeed 0.19: ZeRO 0 to 3, offload",
    "allocator-megatron": "Megatron-core, local layers",
    "allocator-torchtitan": "TorchTitan 0.3: FSDP, TP, CP, EP, pipelines, rowwise fp8, DeepSeek, gpt-oss",
    "allocator-torchtitan-compiled": "TorchTitan 0.3 under torch.compile: blocks of Llama and Qwen3, the loss, FSDP, TP, a pipeline",
    "allocator-torchtune": "torchtune: full, LoRA, QLoRA, DoRA, DPO, QAT, offload, compiled",
    "allocator-qlora": "transformers with 4-bit weights of bitsandbytes",
    "allocator-diffusers": "diffusers: FLUX, Stable Diffusion 3, DiT",
    "allocator-images": "residual networks",
    "silicon-h100": "training steps on one H100: 17 model types, eager and compiled, DDP, FSDP2, LoRA",
    "silicon-h100-unseen": "such steps predicted before they were measured: 15 model types",
}
PUBLISHED = {
    "torchtune": "torchtune's published runs",
    "nemo-docs": "NeMo's published runs",
    "torchtitan": "TorchTitan's published runs of 2024 to 2026 on H100, H200 and GB200",
    "hf-peft": "PEFT's method comparison on one L40S",
    "fsdp-qlora": "QLoRA under FSDP1, fsdp_qlora's published runs",
    "hf-docs-single-gpu": "transformers' guide to one GPU",
    "mlperf-training": "MLPerf Training on NVIDIA: NeMo in fp8 and with LoRA",
    "amd-mlperf-training": "MLPerf Training on AMD",
    "dgxc-benchmarking": "NVIDIA's DGX Cloud recipes",
    "megatron-bridge": "Megatron-Bridge's performance tables",
    "narayanan2021": "Narayanan 2021",
    "llm-foundry": "llm-foundry's tables",
    "llm-foundry-2023": "llm-foundry's tables of 2023",
    "nanotron-sweep": "nanotron's published sweep",
    "vtrain-single": "vTrain's single nodes",
    "vtrain-multi": "vTrain's runs on many nodes",
    "korthikanti2022": "Korthikanti 2022",
    "simumax-b200": "SimuMax's on B200",
    "amd-lumi-mi250x": "Megatron-DeepSpeed on MI250X",
    "amd-mi250-other": "others on MI250",
    "amd-primus": "Primus on MI300X and MI355X",
    "amd-performance-page": "AMD's performance page",
    "misc-speed": "single runs of papers and blogs",
    "torchao": "torchao in TorchTitan on H100, MI300X and B200",
    "ml-engineering": "Llama 3.1 8B of 8 to 256 thousand tokens on H200 and B200",
    "nemo-launcher": "NeMo Megatron of 2022 on A100",
    "nemo-automodel": "NeMo AutoModel",
    "google-gpu-recipes": "Google Cloud's recipes",
    "maxtext-a3": "MaxText on A3",
    "jax-toolbox": "JAX-Toolbox",
    "flagperf": "FlagPerf",
    "xtuner-megatron-moe": "XTuner's Qwen3-235B on 256 H800",
    "bigscience-tr11": "BLOOM's search for a topology",
    "bigscience-tr11-h14400": "the same, 14,400 columns",
    "fms-acceleration": "fms-acceleration: Trainer, LoRA, QLoRA on A100",
    "qwen-readme": "Qwen's README: LoRA, QLoRA, full on A100",
    "ms-swift-benchmark": "ms-swift's LoRA on A100",
    "nvidia-bert": "NVIDIA's BERT on A100 and V100",
    "amd-cvs-torchtitan": "ROCm's validation suite: TorchTitan on MI355X",
    "wild-reports": "runs that people reported",
}
MEMORY, TIME = ("allocated_bytes", "reserved_bytes", "device_bytes"), ("step_seconds",)
LEFT_OUT = "build/bands/left_out.json"  # ./dev bands


def predicted(program, name):
    """What `validate` says of one file, kept for the next time."""
    result = subprocess.run([program, "validate", f"bench/corpus/{name}.json", "--json"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{name}: {result.stderr}")
    with open(f"{KEPT}/{name}.json", "w", encoding="utf-8") as file:
        file.write(result.stdout)
    print(name, flush=True)


def percent(value):
    digits = 2 if value < 0.01 else 1 if value < 0.1 else 0
    return f"{100 * value:.{digits}f} %"


def quantity(summary, name):
    return next((entry for entry in summary["quantities"] if entry["quantity"] == name and entry["rows"] > 0), None)


def error(entry):
    return f"{percent(entry['median'])}, {percent(entry['ninetieth'])}" if entry else "not stated"


def verdicts(summary):
    if not summary["fits"]:
        return "not stated"
    fits = summary["fits"][0]
    wrong = fits["fits_wrong"] + fits["oom_wrong"]
    rows = wrong + fits["fits_right"] + fits["oom_right"]
    return f"{rows} right" if wrong == 0 else f"{rows - wrong} of {rows} right, {fits['oom_wrong']} false fits"


def played(entry):
    """How many rows were played; the others are closed forms."""
    closed = entry["closed_form"]
    return "all" if closed == 0 else "none" if closed == entry["rows"] else f"{entry['rows'] - closed} of {entry['rows']}"


def counted(summary):
    source = summary["sources"][0]
    return f"{source['predicted']:,}" + (f" of {source['rows']:,}" if source["predicted"] != source["rows"] else "")


def held(entries):
    """How many rows lie in the bands that all other sources make."""
    entries = [entry for entry in entries if entry]
    rows = sum(entry["rows"] for entry in entries)
    return f"{sum(entry['inside'] for entry in entries):,} of {rows:,}" if rows else "in sample"


def memory_row(title, summary, left_out):
    entries = [quantity(summary, name) for name in MEMORY]
    if not any(entries):
        return None
    errors = " | ".join(error(entry) for entry in entries)
    return f"| {title} | {counted(summary)} | {played(next(filter(None, entries)))} | {errors} | {held([left_out.get(name) for name in MEMORY])} | {verdicts(summary)} |"


def time_row(title, summary, left_out):
    entry, without = quantity(summary, TIME[0]), left_out.get(TIME[0])
    return entry and f"| {title} | {entry['rows']:,} | {played(entry)} | {error(entry)} | {error(without) if without else 'in sample'} | {held([without])} |"


def tables(answers, left_out):
    heads = {"memory": ["| rows | predicted | played | allocated: median, nine in ten | reserved: median, nine in ten | device: median, nine in ten | in the others' band | fits or not |",
                        "| --- " * 8 + "|"],
             "time": ["| rows | predicted | played | step: median, nine in ten | left out: median, nine in ten | in the others' band |", "| --- " * 6 + "|"]}
    for name, title in {**OWN, **PUBLISHED}.items():
        for kind, row in (("memory", memory_row), ("time", time_row)):
            line = name in answers and row(title, answers[name]["summary"], left_out.get(name, {}))
            if line:
                heads[kind].append(line)
    return heads


def write(kind, lines, readme):
    begin, end = f"<!-- accuracy of {kind}: written by ./dev accuracy -->", "<!-- accuracy: end -->"
    if begin not in readme:
        sys.exit("README.md has no place for the table: " + begin)
    head, rest = readme.split(begin, 1)
    return head + "\n".join([begin, *lines, end]) + rest.split(end, 1)[1]


def main():
    os.chdir(ROOT)
    program = os.path.abspath(sys.argv[1])
    os.makedirs(KEPT, exist_ok=True)
    corpus = [os.path.basename(path)[: -len(".json")] for path in sorted(glob.glob("bench/corpus/*.json"))]
    unnamed = [name for name in corpus if name not in OWN and name not in PUBLISHED and not name.startswith(("allocator-launches", "allocator-parameters"))]
    if unnamed:
        sys.exit(f"bench/accuracy.py has no title for {unnamed}")
    for name in [os.path.basename(path).removesuffix(".json") for path in sys.argv[2:]] or [name for name in corpus if name in {**OWN, **PUBLISHED}]:
        predicted(program, name)
    answers = {}
    for name in corpus:
        if os.path.exists(f"{KEPT}/{name}.json"):
            with open(f"{KEPT}/{name}.json", encoding="utf-8") as file:
                answers[name] = json.load(file)
    missing = [name for name in {**OWN, **PUBLISHED} if name in corpus and name not in answers]
    if missing:
        sys.exit(f"not predicted yet: {', '.join(missing)}")
    with open("README.md", encoding="utf-8") as file:
        readme = file.read()
    if not os.path.exists(LEFT_OUT):
        sys.exit(f"{LEFT_OUT} is not there: run ./dev bands first")
    with open(LEFT_OUT, encoding="utf-8") as file:
        left_out = json.load(file)
    for kind, lines in tables(answers, left_out).items():
        readme = write(kind, lines, readme)
    with open("README.md", "w", encoding="utf-8") as file:
        file.write(readme)


if __name__ == "__main__":
    main()
