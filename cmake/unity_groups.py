"""unity_groups.py LINES SOURCE...: which sources are compiled together where PLIMSOLL_UNITY is on, one `group source` a line.

Sources that share a translation unit share their unnamed namespaces, and this project's files use the same short names there (`take`, `seen`,
`node`). So a source joins a group only when none of its private names may be looked up in any source of the group or in the headers that these
include, nor one of theirs in it: neither a second definition nor another overload can then change what a line means. An alias that both declare
alike is one. Looked up are names that are called, and types and constants; not members of objects, what another namespace is named for, nor local
variables. A group holds at most LINES lines. A source that defines a macro stays alone (it is not printed).
"""
import functools
import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_NOISE = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|\S")
# A type or a constant by its spelling, or what is called or instantiated; not behind `.`, `->` or `::`.
_LOOKED_UP = re.compile(r"(?<![\w.:>])(?<!->)((?:[A-Z]|k[A-Z])\w*|[A-Za-z_]\w*(?=\s*[({<]))|(?<=[^-]>)([A-Za-z_]\w*(?=\s*[({<]))")
_NAME = re.compile(r"[A-Za-z_]")
_TEST = re.compile(r"TEST(?:_[FP])?|INSTANTIATE_TEST_SUITE_P")   # its name is made of its suite's and its own, which stand once in a program
_TYPES = {"struct", "class", "enum", "union", "final"}


def without_noise(text):
    """The text without comments, literals and the separators of digits."""
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    return _NOISE.sub(lambda match: " " if match[0][0] == "/" else " 0 ", text)


def without_template(declaration):
    """A declaration without its `template <...>`."""
    depth = parentheses = 0
    for index, token in enumerate(declaration):
        parentheses += (token == "(") - (token == ")")  # in them < and > compare and shift
        if parentheses == 0:
            depth += (token == "<") - (token == ">")
        if index and depth == 0:
            return declaration[index + 1:]
    return []


def is_alias(declaration):
    """Whether a declaration names what stands elsewhere, so that it may stand twice."""
    return declaration[0] in {"using", "namespace"}


def declared(declaration):
    """The names that a declaration at namespace scope, given by its tokens up to `{` or `;`, may bring in."""
    if declaration and declaration[0] == "template":
        declaration = without_template(declaration)
    if not declaration or _TEST.fullmatch(declaration[0]):
        return set()
    if is_alias(declaration) and "=" in declaration:
        return {declaration[1]}
    names, depth = [], 0
    for token in declaration:
        if depth == 0 and token in "(=[{:":
            break
        depth = max(0, depth + (token == "<") - (token == ">"))
        if depth == 0 and _NAME.match(token):
            names.append(token)
    return set(names) - _TYPES if declaration[0] in _TYPES else set(names[-1:])


def is_private(declaration, scopes):
    """Whether a declaration at namespace scope is its source's own: in an unnamed namespace, or a constant."""
    return "unnamed" in scopes or (declaration and declaration[0] in {"const", "constexpr", "static"})


def enumerators(declaration, tokens):
    """The names in the braces that follow an unscoped enumeration's declaration: they belong to the scope around it."""
    if "enum" not in declaration[:1] or "class" in declaration:
        return set()
    return {token for token in tokens[:tokens.index("}")] if _NAME.match(token)}


def private_names(text):
    """What a source (without noise) declares for itself: names, of aliases with what they stand for."""
    tokens = _TOKEN.findall(re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE))
    scopes, declaration, names, parentheses, index = [], [], {}, 0, 0
    while index < len(tokens):
        token = tokens[index]
        outside = "code" not in scopes
        if token == "namespace" and not declaration:
            opened = next(later for later in range(index + 1, len(tokens)) if tokens[later] in "{=;")
            if tokens[opened] == "{":
                scopes.append("unnamed" if opened == index + 1 else "named")
                index = opened + 1
                continue
        if token in "{;" and outside and parentheses == 0 and is_private(declaration, scopes):
            stands_for = " ".join(declaration) if declaration and is_alias(declaration) else None
            names |= dict.fromkeys(declared(declaration), stands_for)
            if token == "{":
                names |= dict.fromkeys(enumerators(declaration, tokens[index + 1:]))
        parentheses += (token == "(") - (token == ")")
        if token == "{" and parentheses == 0:
            scopes.append("code")
        elif token == "}" and parentheses == 0:
            scopes.pop()
        if token in "};" and parentheses == 0 and "code" not in scopes:
            declaration = []
        elif outside:
            declaration.append(token)
        index += 1
    return names


def looked_up(text):
    return {one or other for one, other in _LOOKED_UP.findall(text)}


@functools.lru_cache(maxsize=None)
def words_of_header(folder, name):
    """What the header that a source in a folder includes as "name" declares or looks up."""
    for root in (folder, _ROOT / "src", _ROOT / "include", _ROOT / "tests"):
        if (root / name).is_file():
            return frozenset(looked_up(without_noise((root / name).read_text(encoding="utf-8"))))
    return frozenset()


def words_of(folder, text):
    """What a source in a folder, and the headers that it names itself, declare or look up."""
    headers = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
    return looked_up(without_noise(text)).union(*(words_of_header(folder, each) for each in headers))


def is_one(alias, other):
    """Whether two declarations of a name (None: of something else than an alias, or none) are one alias."""
    return alias is not None and alias == other


class Group:
    """Sources that are compiled together."""

    def __init__(self):
        self.lines, self.private, self.used, self.sources = 0, {}, set(), []

    def takes(self, lines, private, used, most):
        clash = (private.keys() & self.used) | (self.private.keys() & used)
        return self.lines + lines <= most and all(is_one(private.get(name), self.private.get(name)) for name in clash)

    def add(self, source, lines, private, used):
        self.lines += lines
        self.private |= private
        self.used |= used
        self.sources.append(source)


def grouped(sources, most):
    groups = []
    for source in sources:
        with open(source, encoding="utf-8") as file:
            text = file.read()
        if re.search(r"^[ \t]*#[ \t]*define", text, re.MULTILINE):
            continue
        lines, private = text.count("\n"), private_names(without_noise(text))
        used = words_of(pathlib.Path(source).parent, text) | private.keys()
        group = next((each for each in groups if each.takes(lines, private, used, most)), None)
        if group is None:
            group = Group()
            groups.append(group)
        group.add(source, lines, private, used)
    return groups


if __name__ == "__main__":
    for number, group in enumerate(grouped(sorted(sys.argv[2:]), int(sys.argv[1]))):
        for source in group.sources:
            print(f"{number} {source}")
