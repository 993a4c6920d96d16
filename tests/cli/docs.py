"""The documentation tells the truth: every plimsoll command in docs/ that names what is shipped runs, every report shown is the one it prints, and the
options of the others, which need a device or the reader's own files, are there."""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

from driver import PROGRAM, SOURCE, Checks, run
from readme import blocks, same

#: What needs a device, a training program or a file of the reader's own.
ELSEWHERE = re.compile(r"\.\./|\./|\$\(|(?:trace|small|row|cpu|this-machine)\.json|[A-Z]{4,}|…|\[|\{")
DEVICES = ("calibrate", "replay", "rehearse", "serve", "compare-trace")


def commands(text):
    lines = [line.strip() for line in text.splitlines() if re.match(r"(    |\$ )?plimsoll ", line)]
    return [line.removeprefix("$ ").split("  #")[0] for line in lines]


def check_options(checks, name, command):
    """A command that cannot be run here: its command's help knows every option of it."""
    said, known = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", command.split(" -- ")[0]), run(command.split()[1], "--help-all")
    unknown = [option for option in said if not re.search(rf"{option}(?![\w-])", known.out)]
    checks.check(not unknown, f"{name}: {command}: no option {', '.join(unknown)}")


def beside_the_source(folder):
    """What a reader has in the source's folder, in one that takes what commands write."""
    for entry in os.listdir(SOURCE):
        os.symlink(os.path.abspath(os.path.join(SOURCE, entry)), os.path.join(folder, entry))
    return folder


def check_pages(checks, folder):
    ran = 0
    for path in sorted(glob.glob(os.path.join(SOURCE, "docs", "**", "*.md"), recursive=True)):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        name = os.path.basename(path)
        for command in commands(text):
            if command.split()[1] in DEVICES or ELSEWHERE.search(command):
                check_options(checks, name, command)
                continue
            words = shlex.split(command.split(" | ")[0])
            ran += 1
            result = run(*words[1:], folder=folder, limit=600)   # against what never ends: a machine that shares its cores takes twice a quiet one's
            checks.check(result.code in (0, 1), f"{name}: {command}: exit {result.code}: {result.err[:300]}")
        for block in blocks(text, "text") + blocks(text, "console"):
            first, _, shown = block.partition("\n")
            if not first.startswith("$ plimsoll ") or shlex.split(first)[2] in DEVICES:
                continue
            printed = run(*shlex.split(first)[2:], folder=folder).out.splitlines()
            wanted = shown.split("…\n")[0].splitlines()
            checks.check(len(printed) >= len(wanted) and all(map(same, wanted, printed)), f"{name}: {first} prints\n" + "\n".join(printed[: len(wanted)]))
    checks.check(ran >= 12, f"docs/ shows {ran} commands that can be run")


def check_site(checks, folder):
    """The pages of the site, before mkdocs lays them out: every page is in the menu once, and every command has one."""
    subprocess.run([sys.executable, os.path.join(SOURCE, "docs", "site", "build.py"), PROGRAM, folder], check=True)
    with open(os.path.join(folder, "mkdocs.yml"), encoding="utf-8") as file:
        menu = re.findall(r": (\S+[.]md)$", file.read(), re.MULTILINE)
    pages = [os.path.relpath(path, os.path.join(folder, "pages")) for path in glob.glob(os.path.join(folder, "pages", "**", "*.md"), recursive=True)]
    checks.check(sorted(menu) == sorted(pages), f"the site's menu and its pages: {sorted(set(menu) ^ set(pages))}, {len(menu) - len(set(menu))} twice")
    checks.check(all(f"commands/{name}.md" in menu for name in ("estimate", "rehearse", "gate", "mcp", "man")), f"commands of the site: {menu}")


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_pages(checks, beside_the_source(os.path.abspath(folder)))
    with tempfile.TemporaryDirectory() as folder:
        check_site(checks, folder)
    checks.finish()


if __name__ == "__main__":
    main()
