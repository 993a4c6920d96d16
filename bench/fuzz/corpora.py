"""corpora.py FOLDER: what the fuzzers begin with, made of what is shipped.

FOLDER/READER/: the files that the reader is for, small: without spaces, stacks of layers of two, lists of three, sentences cut. A mutation then
costs what the reader costs, not what a hundred layers do, and the whole of a file fits into one input.
FOLDER/READER.dict: libFuzzer's dictionary, the words in quotes of the reader's own sources.
"""
import json
import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_LAYERS = re.compile(r"n_layers?|num_layers|.*num_.*layers|n_.*layers|.*depths?|.*num_.*blocks|layers_per_block|first_k_dense_replace")
_LIST, _SENTENCE = 3, 16
_FILES = {
    "model": ["models/*/*.json"],
    "hardware": ["hardware/accelerators/*.json", "hardware/clusters/*.json"],
    "strategy": ["examples/*.json"],
    "code": ["tests/code/data/*.py"],
    "foreign": ["tests/formats/samples/*/*"],
}
_SOURCES = {
    "cluster_text": ["src/hardware"],
    "code": ["src/code"],
    "foreign": ["src/formats/foreign", "src/strategy"],
    "hardware": ["src/hardware"],
    "importers": ["src/calibrate/importers"],
    "model": ["src/model"],
    "request": ["src/api", "src/strategy"],
    "rows": ["src/formats", "src/strategy"],
    "strategy": ["src/strategy"],
    "syntax": ["src/formats/foreign"],
    "texts": ["src/units", "src/rehearse", "src/campaign", "src/search"],
    "trace": ["src/trace"],
}


def small(value, key=""):
    """The value with fewer layers, elements and letters."""
    if isinstance(value, dict):
        return {name: small(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [small(each) for each in value[:_LIST]]
    if isinstance(value, str) and " " in value:
        return value[:_SENTENCE]
    if isinstance(value, int) and not isinstance(value, bool) and value > 2 and _LAYERS.fullmatch(key):
        return 2
    return value


def write_seeds(folder, patterns):
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in patterns:
        for path in sorted(_ROOT.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".json":
                text = json.dumps(small(json.loads(text)), separators=(",", ":"))
            (folder / "-".join(path.parts[-2:])).write_text(text, encoding="utf-8")


def write_rows(folder):
    """The first measured row of every file, as a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(_ROOT.glob("bench/corpus/*.json")):
        row = small(json.loads(path.read_text(encoding="utf-8"))[0])
        (folder / path.name).write_text(json.dumps([row], separators=(",", ":")), encoding="utf-8")


def write_dictionary(path, sources):
    words = set()
    for source in sources:
        for file in sorted((_ROOT / source).rglob("*.cpp")):
            code = re.sub(r"^#include.*$|//.*$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            words.update(re.findall(r'"([A-Za-z_#$@%-][\w.:/#-]{1,30})"', code))
    path.write_text("".join(f'"{word}"\n' for word in sorted(words)), encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    for reader, patterns in _FILES.items():
        write_seeds(folder / reader, patterns)
    write_rows(folder / "rows")
    for reader, sources in _SOURCES.items():
        write_dictionary(folder / f"{reader}.dict", sources)


if __name__ == "__main__":
    main()
