"""Reports as files: every command that has them writes HTML, Markdown and CSV that hold the numbers of its JSON, and nothing that a name could break."""
import csv
import html.parser
import io
import json
import os
import pty
import re
import subprocess
import tempfile

from driver import PROGRAM, SOURCE, Checks, run

PLAN = ["llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", "--seq", "8192"]


class Page(html.parser.HTMLParser):
    """What a page would load, and what its scripts hold."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.scripts, self.inside, self.tags = [], [], None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        attributes = dict(attributes)
        self.loads += [attributes[name] for name in ("src", "href", "srcset", "action") if attributes.get(name)]
        if tag == "script":
            self.inside = attributes.get("type", "")
            self.scripts.append((self.inside, ""))

    def handle_data(self, data):
        if self.inside is not None:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)

    def handle_endtag(self, tag):
        if tag == "script":
            self.inside = None

    def document(self):
        return json.loads(next(text for kind, text in self.scripts if kind == "application/json"))


def written(command, format, *words):
    result = run(command, *words, "--format", format)
    return result.out


def on_terminal(*words, environment=None):
    """What the program writes to a terminal of 60 columns."""
    master, slave = pty.openpty()
    import fcntl, struct, termios
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    env = {**os.environ, "TERM": "xterm", **(environment or {})}
    env.pop("NO_COLOR", None) if not environment else None
    process = subprocess.Popen([PROGRAM, *words], stdout=slave, stdin=subprocess.DEVNULL, env=env)
    os.close(slave)
    text = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    process.wait()
    os.close(master)
    return text.decode().replace("\r\n", "\n")


def check_estimate(checks):
    answer = json.loads(run("estimate", *PLAN, "--json").out)
    page = Page(written("estimate", "html", *PLAN))
    document = page.document()
    checks.check(not [load for load in page.loads if not load.startswith("#")], f"the page loads {page.loads}")
    checks.check(document["views"]["estimate"] == answer, "the page's numbers are not those of --json")
    course = document["views"]["course"]["memory"]
    checks.check(max(course["allocated_bytes"]) == answer["memory"]["allocated_bytes"], "the course of memory does not reach the peak")
    streams = document["views"]["course"]["streams"]
    compute = sum(span[2] for span in streams[0]["spans_us"]) / 1e6
    checks.check(streams[0]["stream"] == "compute" and compute <= 1.01 * document["views"]["course"]["step_seconds"], f"the compute stream works {compute} s")
    checks.check(document["views"]["explain"]["changes"][0]["saved_bytes"] > 0, "no change is offered")
    markdown = written("estimate", "markdown", *PLAN)
    checks.check(markdown.startswith("### ✅ fits: llama"), markdown[:100])
    rows = list(csv.DictReader(io.StringIO(written("estimate", "csv", *PLAN))))
    checks.check(int(rows[0]["allocated_bytes"]) == answer["memory"]["allocated_bytes"], "CSV differs from JSON")


def check_explain(checks):
    answer = json.loads(run("explain", *PLAN, "--json").out)
    rows = list(csv.DictReader(io.StringIO(written("explain", "csv", *PLAN))))
    checks.check(len(rows) == len(answer["alive"]) and sum(int(row["bytes"]) for row in rows) == sum(each["bytes"] for each in answer["alive"]), "explain's CSV")
    document = Page(written("explain", "html", *PLAN)).document()
    checks.check(document["views"]["explain"] == answer, "explain's page")


def check_validate(checks):
    rows = os.path.join(SOURCE, "bench/corpus/allocator-qlora.json")
    answer = json.loads(run("validate", rows, "--json").out)
    table = list(csv.DictReader(io.StringIO(written("validate", "csv", rows))))
    checks.check([row["id"] for row in table] == [row["id"] for row in answer["rows"]], "validate's CSV")
    checks.check(len(Page(written("validate", "html", rows)).document()["tables"][0]["rows"]) == len(answer["rows"]), "validate's page")
    checks.check("| error |" in written("validate", "markdown", rows), "validate's Markdown")


def check_hostile_name(checks):
    """A model's name is its folder's, and may be anything."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("</script><script>alert(1)</script>", "=cmd|' /C calc'!A0", "a|b`c<b>_*"):
            path = os.path.join(folder, name.replace("/", "∕"))
            os.makedirs(path)
            with open(os.path.join(SOURCE, "models/gpt2/config.json"), encoding="utf-8") as file:
                config = file.read()
            with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
                file.write(config)
            plan = [path, "--on", "1xh100-sxm", "--micro-batch", "1", "--seq", "128"]
            page = Page(written("estimate", "html", *plan))
            checks.check(page.tags.count("script") == 3, f"{name}: {page.tags.count('script')} scripts in the page")
            markdown = written("estimate", "markdown", *plan)
            markdown = re.sub(r"```sh\n.*?\n```", "", markdown, flags=re.DOTALL)  # code is shown as it is
            checks.check("<script>" not in markdown and "<b>" not in markdown, f"{name}: markup in Markdown")
            page.document()


def check_terminal(checks):
    text = on_terminal("estimate", *PLAN)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    checks.check("\x1b[1;32mfits\x1b[0m" in text, "no colour on a terminal")
    checks.check(all(len(line) <= 60 for line in plain.split("\n\n")[0].splitlines()), "the answer is wider than the terminal")
    checks.check("\x1b" not in on_terminal("estimate", *PLAN, environment={"NO_COLOR": "1"}), "NO_COLOR is not respected")
    checks.check("\x1b" not in run("estimate", *PLAN).out, "colour in a pipe")
    checks.check("\x1b[1;32mfits" in run("estimate", *PLAN, "--color", "always").out, "--color always leaves a pipe without")
    checks.check("\x1b" not in on_terminal("estimate", *PLAN, "--color", "never"), "--color never colours")
    checks.check("did you mean 'always'" in run("estimate", *PLAN, "--color", "alway").err, "a way to colour that is not there")
    quiet = run("estimate", *PLAN, "--quiet").out
    usual, verbose = run("estimate", *PLAN).out, run("estimate", *PLAN, "--verbose").out
    checks.check(usual.startswith(quiet) and quiet.startswith("fits: ") and len(quiet.splitlines()) <= 4, "--quiet is not the answer alone")
    checks.check("\nsources\n" in verbose and len(verbose) > len(usual), "--verbose says no more")


def check_wrong(checks):
    for words, said in ((["--format", "htlm"], "did you mean 'html'?"), (["--format", "csv", "--json"], "two ways to print at once"),
                        (["--quiet", "--verbose"], "more and less at once"), (["--format", "html", "-o", "/nowhere/x.html"], "cannot be written")):
        result = run("estimate", *PLAN, *words)
        checks.check(result.code == 2 and said in result.err, f"{words}: exit {result.code}, {result.err}")


def check_shells(checks):
    for shell in ("bash", "zsh", "fish"):
        text = run("completion", shell).out
        checks.check("--micro-batch" in text or "-l micro-batch" in text, f"{shell}: --micro-batch is not completed")
        checks.check("llama-3.1-8b" in text and "mi300x" in text, f"{shell}: names are not completed")
    with tempfile.NamedTemporaryFile("w", suffix=".bash") as script:
        script.write(run("completion", "bash").out)
        script.flush()

        def completed(*words):
            line = f"source {script.name}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _plimsoll; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            return subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, check=False).stdout.decode().split()

        checks.check("estimate" in completed("plimsoll", "est"), "bash: est")
        checks.check("--recompute" in completed("plimsoll", "estimate", "--recom"), "bash: --recom")
        checks.check(completed("plimsoll", "estimate", "gpt2", "--recompute", "fu") == ["full"], "bash: values of --recompute")
        checks.check("8xmi300x" in completed("plimsoll", "estimate", "gpt2", "--on", "8xmi3"), "bash: --on 8xmi3")
        checks.check("llama-3.1-8b" in completed("plimsoll", "estimate", "llama-3.1-"), "bash: names of models")
    wrong = run("completion", "tcsh")
    checks.check(wrong.code == 2 and "bash" in wrong.err, "completion tcsh")
    page = run("man", "estimate").out
    checks.check(page.startswith(".TH plimsoll-estimate 1") and "\\-\\-micro\\-batch" in page, "man estimate")
    checks.check(run("man", "formula", "zero").out.startswith(".TH plimsoll-formula-zero 1"), "man formula zero")


def main():
    checks = Checks()
    for check in (check_estimate, check_explain, check_validate, check_hostile_name, check_terminal, check_wrong, check_shells):
        check(checks)
    checks.finish()


if __name__ == "__main__":
    main()
