#!/usr/bin/env python3
"""Writes the documentation's pages into a folder for mkdocs: those of docs/, and those that the program's own tables say."""
import json
import os
import re
import shutil
import subprocess
import sys


class Program:
    def __init__(self, path):
        self.path = path

    def text(self, *words):
        return subprocess.run([self.path, *words], check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}).stdout

    def json(self, *words):
        return json.loads(self.text(*words, "--json"))


def commands_of(program):
    """Names and help of the commands, from the program's own overview."""
    groups = program.text("--help").split("\nTry:")[0].split("\nOptions:")[1].split("\n\n", 1)[1]
    return re.findall(r"^  ([a-z][a-z-]*) +(\S.*)$", groups, re.MULTILINE)


def command_page(program, name, help_text, guide):
    text = f"# plimsoll {name}\n\n{help_text[0].upper() + help_text[1:]}.\n\n"
    if os.path.exists(guide):
        text += f"[The guide](../{os.path.basename(guide)}) says what the numbers mean.\n\n"
    return text + f"## Every option\n\n```text\n{program.text(name, '--help-all').rstrip()}\n```\n"


def framework_page(framework):
    text = f"# {framework['title']}\n\n"
    if "refused" in framework:
        return text + f"Refused: {framework['refused']}.\n"
    text += f"`--framework {framework['name']}`" + (f", also {', '.join(f'`{name}`' for name in framework['aliases'])}" if framework["aliases"] else "") + ".\n\n"
    text += f"Its layers are those of `{framework['layers_of']}`. Defaults read from: {framework['source']}.\n\n| can | values |\n| --- | --- |\n"
    for key in ("parallelism", "schedules", "data_parallel", "attention", "loss", "recompute", "low_precision"):
        text += f"| {key.replace('_', ' ')} | {', '.join(framework[key]) or 'none'} |\n"
    text += f"| adapters | {'yes' if framework['adapters'] else 'no'} |\n| offload of activations | {'yes' if framework['offload_activations'] else 'no'} |\n"
    text += "\nAnything else is refused with this list.\n\n| where nothing is said | |\n| --- | --- |\n"
    said = {True: "yes", False: "no"}
    return text + "".join(f"| {key.replace('_', ' ')} | {said.get(value, value)} |\n" for key, value in framework["usual"].items())


def format_pages(source, folder):
    """The pages of docs/formats, whose tables the readers' own tables are held against: title and place of each, the overview first."""
    pages = []
    for name in sorted(os.listdir(os.path.join(source, "formats")), key=lambda name: (name != "README.md", name)):
        with open(os.path.join(source, "formats", name), encoding="utf-8") as file:
            text = file.read()
        write(folder, f"formats/{name}", linked(text.replace("](../../", "]("), source))
        pages.append((re.search(r"^# (.+)$", text, re.MULTILINE).group(1), f"formats/{name}"))
    return pages


def with_page(tour):
    """The tour with the page in it, where it speaks of it."""
    frame = '<iframe src="page/index.html" title="the planner" loading="lazy" style="width:100%;height:80vh;border:1px solid #ccc"></iframe>'
    assert tour.count("The same with sliders is [the page](page.md)") == 1
    return tour.replace("The same with sliders is [the page](page.md)", frame + "\n\nThis is [the page](page.md): the same with sliders")


def device_table(program):
    rows = program.text("hardware").splitlines()
    return "```text\n" + "\n".join(rows) + "\n```\n"


def accuracy_of(readme):
    return re.search(r"## How close it comes\n(.*?)\n## ", readme, re.DOTALL).group(1)


def write(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def linked(text, source):
    """Links to files of the project that are no page go to their name alone: the site holds pages only."""
    return re.sub(r"\]\((?:\.\./)?((?:bench|src|tests|examples|hardware|models|LICENSE)[^)]*)\)", r"] (`\1`)", text)


def navigation(pages):
    lines = ["site_name: plimsoll", "site_description: Memory and performance planner for distributed training", "docs_dir: pages", "site_dir: ../site",
             "use_directory_urls: false", "theme:", "  name: mkdocs", "  highlightjs: false", "nav:"]
    for title, entries in pages:
        if isinstance(entries, str):
            lines.append(f"  - {json.dumps(title)}: {entries}")
            continue
        lines.append(f"  - {json.dumps(title)}:")
        lines += [f"    - {json.dumps(name)}: {path}" for name, path in entries]
    return "\n".join(lines) + "\n"


def main(program_path, out):
    program, source = Program(program_path), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    folder = os.path.join(out, "pages")
    shutil.rmtree(folder, ignore_errors=True)
    guides = sorted(name for name in os.listdir(source) if name.endswith(".md"))
    for name in guides:
        with open(os.path.join(source, name), encoding="utf-8") as file:
            write(folder, name, linked(file.read(), source))
    shutil.copytree(os.path.join(source, "schema"), os.path.join(folder, "schema"))
    with open(os.path.join(source, "..", "README.md"), encoding="utf-8") as file:
        readme = file.read()
    write(folder, "index.md", linked(readme.replace("](docs/", "](").replace("<!-- accuracy: written by ./dev accuracy -->", "").replace("<!-- accuracy: end -->", ""), source))
    write(folder, "accuracy.md", "# How close it comes\n" + linked(accuracy_of(readme), source).replace("](docs/", "]("))
    formats = format_pages(source, folder)
    commands, frameworks = commands_of(program), program.json("frameworks")["frameworks"]
    for name, help_text in commands:
        write(folder, f"commands/{name}.md", command_page(program, name, help_text, os.path.join(source, f"{name}.md")) if name != "formula" else
              f"# plimsoll formula\n\n{help_text}.\n\n[The guide](../formula.md).\n")
    for framework in frameworks:
        write(folder, f"frameworks/{framework['name']}.md", framework_page(framework))
    write(folder, "catalogue.md", "# Devices and clusters\n\nEvery number with its source: `plimsoll hardware NAME`.\n\n" + device_table(program))
    page = os.path.join(out, "..", "page")
    if os.path.exists(os.path.join(page, "index.html")):
        shutil.copytree(page, os.path.join(folder, "page"))
        with open(os.path.join(source, "tour.md"), encoding="utf-8") as file:
            write(folder, "tour.md", linked(with_page(file.read()), source))
        write(folder, "try.md", "# Try it\n\nThe planner, in this page.\n\n<iframe src=\"page/index.html\" title=\"plimsoll\" style=\"width:100%;height:90vh;border:1px solid #ccc\"></iframe>\n")
    titles = {name: re.search(r"^# (.+)$", open(os.path.join(source, name), encoding="utf-8").read(), re.MULTILINE).group(1) for name in guides}
    first = ("tour.md", "recipes.md")
    pages = [("plimsoll", "index.md"), ("Tour", "tour.md"), ("By question", "recipes.md")]
    pages += [("Try it", "try.md")] if os.path.exists(os.path.join(folder, "try.md")) else []
    pages += [("Guides", [(titles[name], name) for name in guides if name not in first]), ("Commands", [(name, f"commands/{name}.md") for name, _ in commands]),
              ("Formats", formats), ("Frameworks", [(each["title"], f"frameworks/{each['name']}.md") for each in frameworks]), ("Devices", "catalogue.md"), ("Accuracy", "accuracy.md")]
    write(out, "mkdocs.yml", navigation(pages))


if __name__ == "__main__":
    main(*sys.argv[1:])
