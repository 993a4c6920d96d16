"""The founding examples as printed, and each command's exit code and first line."""
import json

from driver import Checks, complaints, run


def shows(checks, arguments, *wanted, code=0):
    result = run(*arguments)
    told = " ".join(arguments)
    checks.check(result.code == code, f"{told}: exit {result.code}, expected {code}: {result.err[:300]}")
    checks.check(not complaints(result.err) or code == 2, f"{told}: wrote to stderr: {result.err[:200]}")
    for text in wanted:
        checks.check(text in result.out, f"{told}: does not print {text!r}:\n{result.out[:1500]}")
    return result.out


def formulas(checks):
    # 7e9 · (4+4+8), · (4+4+8/4), · (4+12/4), · 16/4
    shows(checks, ["formula", "zero", "--params", "7e9", "--gpus", "4"], "112 GB", "70 GB", "49 GB", "28 GB")
    shows(checks, ["formula", "zero", "--params", "7.5B", "--gpus", "64", "--precision", "mixed"], "120 GB", "31.4 GB", "16.6 GB", "1.88 GB")
    # 2·7/8·1e9/450e9 = 3.889 ms, half of it for an all-gather
    shows(checks, ["formula", "ring", "--bytes", "1 GB", "--ranks", "8", "--bandwidth", "450 GB/s"], "3.88889 ms", "1.94444 ms")
    shows(checks, ["formula", "ring", "--bytes", "1 GB", "--on", "8xmi300x"], "on 8 x mi300x:")
    # (4−1)/(8+3) = 0.272727; (4−1)/(2·8+3) = 0.157895; makespans 33 and, with two chunks, 28.5
    shows(checks, ["formula", "bubble", "--stages", "4", "--micro-batches", "8"], "0.272727", "33.00")
    shows(checks, ["formula", "bubble", "--stages", "4", "--micro-batches", "8", "--chunks", "2"], "0.157895", "28.50")
    shows(checks, ["formula", "flops", "llama-3-8b", "--seq", "8192"], "5.147040e+10", "5.791445e+10", "6.106647e+10")


def calculators(checks):
    shows(checks, ["estimate", "bert-base-cased", "--view", "accelerate"], "413.18 MB", "826.36 MB", "1.61 GB", "619.77 MB", "8,192 B of int64")
    shows(checks, ["estimate", "llama-3-8b", "--view", "accelerate"], "28.21 GB", "56.42 GB", "112.83 GB", "42.31 GB", "rotary caches")
    shows(checks, ["estimate", "t5-3b", "--on", "8xh100-sxm", "--view", "deepspeed"], "0.12GB", "0.79GB", "6.10GB", "71.71GB", "63.74GB", "1.47GB",
          "127.48GB", "32,899,072")


def catalogues(checks):
    shows(checks, ["models"], "llama-3.1-8b", "8,030,261,248")
    shows(checks, ["models", "llama-3.1-8b"], "8,030,261,248 parameters", "self_attn.q_proj", "16,777,216")
    shows(checks, ["graph", "gpt2", "--format", "dot"], "digraph")
    graph = json.loads(shows(checks, ["graph", "gpt2", "--format", "json"]))
    checks.check(graph["schema"] == "plimsoll/graph/1", "the graph's schema")
    shows(checks, ["hardware"], "mi300x", "h100-sxm")
    shows(checks, ["hardware", "mi300x"], "datasheet")
    shows(checks, ["--version"], "plimsoll 0.")
    shows(checks, ["--help"], "estimate", "validate")
    shows(checks, ["estimate", "--help"], "--micro-batch", "Examples:", "--fsdp")
    for command in (["engine"], ["explain"], ["models"], ["graph"], ["hardware"], ["validate"], *(["formula", child] for child in ("zero", "ring", "bubble", "flops"))):
        shows(checks, [*command, "--help"], "Examples:", "plimsoll " + " ".join(command))


def engines(checks):
    asked = ["engine", "qwen2.5-7b", "--on", "1xh100-sxm", "--engine", "vllm@0.11", "--max-model-len", "8192"]
    # 28 layers x 4 key heads x 128 x 2 x 2 bytes = 57,344 B a token
    plan = json.loads(shows(checks, [*asked, "--json"]))
    checks.check(plan["schema"] == "plimsoll/engine/1" and plan["tokens"] * 57344 <= plan["cache_bytes"] < (plan["tokens"] + 16) * 57344, "the cache's tokens")
    shows(checks, asked, "requests of 8,192 tokens at once", "activation peak", "a step that decodes")
    shows(checks, [*asked, "--format", "markdown"], "| weights |")
    shows(checks, [*asked, "--held-by-others", "12 GiB"], "does not start", "free memory", code=1)


def verdicts(checks):
    fits = shows(checks, ["estimate", "llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", "--seq", "8192"], "GiB left", "assumptions")
    checks.check(fits.startswith("fits: llama-3.1-8b on 8 x mi300x"), "the verdict comes first")
    # 16 B · 8.03e9 = 128 GB of model states alone on a device of 80 GB
    large = shows(checks, ["estimate", "llama-3.1-8b", "--on", "1xh100-sxm", "--micro-batch", "1", "--seq", "2048"], "too much", code=1)
    checks.check(large.startswith("does not fit: "), "the verdict comes first")


def main():
    checks = Checks()
    for part in (formulas, calculators, catalogues, engines, verdicts):
        part(checks)
    checks.finish()


main()
