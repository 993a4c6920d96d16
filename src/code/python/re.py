# Regular expressions by backtracking, written as code that is evaluated, so that its steps are counted as a model's are: a pattern that would
# try for ever is refused as any endless loop is. Literals, ., classes, groups, |, *, +, ?, {m,n} and their lazy forms, ^, $, \\d \\w \\s \\b.
_SPACES = " \t\n\r"
_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_KINDS = {"d": _DIGITS, "s": _SPACES, "w": _DIGITS + _LETTERS + "_"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class error(Exception):
    pass


class _Parser:
    def __init__(self, pattern):
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self.names = {}

    def peek(self):
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def take(self):
        if self.at == len(self.pattern):
            raise error("unexpected end of the pattern " + self.pattern)
        self.at += 1
        return self.pattern[self.at - 1]

    def choice(self):
        branches = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else ("choice", branches)

    def sequence(self):
        parts = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated(self.atom()))
        return ("sequence", parts)

    def repeated(self, atom):
        while self.peek() in ("*", "+", "?", "{"):
            mark = self.take()
            if mark == "{":
                low, high = self.bounds()
            else:
                low, high = (1 if mark == "+" else 0), (1 if mark == "?" else None)
            lazy = self.peek() == "?"
            if lazy:
                self.at += 1
            atom = ("repeat", atom, low, high, lazy)
        return atom

    def bounds(self):
        words = ""
        while self.peek() != "}":
            words += self.take()
        self.at += 1
        ends = words.split(",")
        return int(ends[0] or 0), (int(ends[-1]) if ends[-1] else None)

    def atom(self):
        c = self.take()
        if c == "(":
            return self.group()
        if c == "[":
            return self.letters()
        if c == ".":
            return ("not", "\n")
        if c in "^$":
            return ("begin",) if c == "^" else ("end",)
        if c == "\\":
            return self.escaped()
        return ("in", c)

    def escaped(self):
        c = self.take()
        if c == "b":
            return ("edge",)
        if c in _KINDS:
            return ("in", _KINDS[c])
        if c.lower() in _KINDS:
            return ("not", _KINDS[c.lower()])
        if c in _DIGITS:
            from plimsoll import refuse

            refuse("a regular expression that refers to its own groups")
        return ("in", _ESCAPES.get(c, c))

    def letters(self):
        kind = "in"
        if self.peek() == "^":
            self.at += 1
            kind = "not"
        found = ""
        while self.peek() != "]" or not found:
            c = self.take()
            if c == "\\":
                c = self.escaped()[1]
            elif self.peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self.take()
                c = "".join(chr(code) for code in range(ord(c), ord(last) + 1))
            found += c
        self.at += 1
        return (kind, found)

    def group(self):
        number = None
        if self.peek() == "?":
            self.at += 1
            mark = self.take()
            if mark == "P":
                if self.take() != "<":
                    raise error("unknown extension in " + self.pattern)
                name = ""
                while self.peek() != ">":
                    name += self.take()
                self.at += 1
                self.groups += 1
                number = self.names[name] = self.groups
            elif mark in "=!":
                inner = self.choice()
                self.take()
                return ("ahead", inner, mark == "=")
            elif mark != ":":
                from plimsoll import refuse

                refuse("such a group of a regular expression")
        else:
            self.groups += 1
            number = self.groups
        inner = self.choice()
        if self.peek() != ")":
            raise error("missing ), unterminated subpattern in " + self.pattern)
        self.at += 1
        return inner if number is None else ("group", inner, number)


# Each gives what `then(position)` gives at the first position behind a match for which that is not None.
def _match(node, text, at, spans, then):
    kind = node[0]
    if kind in ("in", "not"):
        fits = at < len(text) and (text[at] in node[1]) == (kind == "in")
        return then(at + 1) if fits else None
    if kind == "sequence":
        return _match_all(node[1], 0, text, at, spans, then)
    if kind == "choice":
        for branch in node[1]:
            found = _match(branch, text, at, spans, then)
            if found is not None:
                return found
        return None
    if kind == "group":
        return _match_group(node, text, at, spans, then)
    if kind == "repeat":
        return _match_letters(node, text, at, then) if node[1][0] in ("in", "not") else _match_again(node, text, at, spans, then, 0)
    if kind == "ahead":
        seen = _match(node[1], text, at, spans, lambda end: end) is not None
        return then(at) if seen == node[2] else None
    if kind == "begin":
        return then(at) if at == 0 else None
    if kind == "end":
        return then(at) if at == len(text) or text[at:] == "\n" else None
    word = _KINDS["w"]
    before, behind = at > 0 and text[at - 1] in word, at < len(text) and text[at] in word
    return then(at) if before != behind else None


def _match_all(parts, index, text, at, spans, then):
    if index == len(parts):
        return then(at)
    return _match(parts[index], text, at, spans, lambda end: _match_all(parts, index + 1, text, end, spans, then))


def _match_group(node, text, at, spans, then):
    before = spans.get(node[2])

    def behind(end):
        spans[node[2]] = (at, end)
        return then(end)

    found = _match(node[1], text, at, spans, behind)
    if found is None:
        spans[node[2]] = before
    return found


# A letter of one kind many times: how far it goes, then fewer.
def _match_letters(node, text, at, then):
    _, inner, low, high, lazy = node
    most = at
    while most < len(text) and (high is None or most - at < high) and (text[most] in inner[1]) == (inner[0] == "in"):
        most += 1
    ends = list(range(at + low, most + 1))
    for end in ends if lazy else ends[::-1]:
        found = then(end)
        if found is not None:
            return found
    return None


def _match_again(node, text, at, spans, then, count):
    _, inner, low, high, lazy = node

    def once_more():
        if high is not None and count >= high:
            return None
        return _match(inner, text, at, spans, lambda end: None if end == at else _match_again(node, text, end, spans, then, count + 1))

    if count < low:
        return once_more()
    found = then(at) if lazy else once_more()
    if found is not None:
        return found
    return once_more() if lazy else then(at)


class Match:
    def __init__(self, pattern, text, start, end, spans):
        self.re = pattern
        self.string = text
        self._spans = {0: (start, end)}
        self._spans.update(spans)

    def _number(self, group):
        return self.re.groupindex[group] if isinstance(group, str) else group

    def span(self, group=0):
        return self._spans.get(self._number(group)) or (-1, -1)

    def start(self, group=0):
        return self.span(group)[0]

    def end(self, group=0):
        return self.span(group)[1]

    def _text(self, group):
        start, end = self.span(group)
        return None if start < 0 else self.string[start:end]

    def group(self, *groups):
        found = tuple(self._text(group) for group in groups or (0,))
        return found[0] if len(found) == 1 else found

    def __getitem__(self, group):
        return self._text(group)

    def groups(self, default=None):
        found = [self._text(number + 1) for number in range(self.re.groups)]
        return tuple(default if each is None else each for each in found)

    def groupdict(self):
        return {name: self._text(number) for name, number in self.re.groupindex.items()}


class Pattern:
    def __init__(self, pattern, flags=0):
        if flags:
            from plimsoll import refuse

            refuse("a flag of a regular expression")
        parser = _Parser(pattern)
        self.pattern = pattern
        self._node = parser.choice()
        if parser.at < len(pattern):
            raise error("unbalanced parenthesis in " + pattern)
        self.groups = parser.groups
        self.groupindex = parser.names

    def _at(self, text, start, whole=False):
        spans = {}
        end = _match(self._node, text, start, spans, lambda end: None if whole and end != len(text) else end)
        return None if end is None else Match(self, text, start, end, spans)

    def match(self, text):
        return self._at(text, 0)

    def fullmatch(self, text):
        return self._at(text, 0, True)

    def search(self, text):
        for start in range(len(text) + 1):
            found = self._at(text, start)
            if found is not None:
                return found
        return None

    def finditer(self, text):
        found = []
        start = 0
        while start <= len(text):
            each = self._at(text, start)
            if each is None:
                start += 1
                continue
            found.append(each)
            start = max(each.end(), start + 1) if each.end() == each.start() else each.end()
        return iter(found)

    def findall(self, text):
        found = []
        for each in self.finditer(text):
            parts = each.groups("") if self.groups else (each.group(),)
            found.append(parts[0] if len(parts) == 1 else parts)
        return found

    def split(self, text, maxsplit=0):
        parts = []
        last = 0
        for each in self.finditer(text):
            if maxsplit and len(parts) >= maxsplit * (1 + self.groups):
                break
            parts.append(text[last : each.start()])
            parts.extend(each.groups())
            last = each.end()
        return parts + [text[last:]]

    def sub(self, replacement, text, count=0):
        made = ""
        last = done = 0
        for each in self.finditer(text):
            if count and done == count:
                break
            made += text[last : each.start()] + (replacement(each) if callable(replacement) else _filled(replacement, each))
            last = each.end()
            done += 1
        return made + text[last:]


def _filled(replacement, match):
    made = ""
    at = 0
    while at < len(replacement):
        c = replacement[at]
        at += 1
        if c == "\\":
            c = replacement[at]
            at += 1
            c = (match.group(int(c)) or "") if c in _DIGITS else _ESCAPES.get(c, c)
        made += c
    return made


def compile(pattern, flags=0):
    return pattern if isinstance(pattern, Pattern) else Pattern(pattern, flags)


def match(pattern, text, flags=0):
    return compile(pattern, flags).match(text)


def fullmatch(pattern, text, flags=0):
    return compile(pattern, flags).fullmatch(text)


def search(pattern, text, flags=0):
    return compile(pattern, flags).search(text)


def findall(pattern, text, flags=0):
    return compile(pattern, flags).findall(text)


def finditer(pattern, text, flags=0):
    return compile(pattern, flags).finditer(text)


def split(pattern, text, maxsplit=0, flags=0):
    return compile(pattern, flags).split(text, maxsplit)


def sub(pattern, replacement, text, count=0, flags=0):
    return compile(pattern, flags).sub(replacement, text, count)


def escape(text):
    return "".join(c if c in _KINDS["w"] else "\\" + c for c in text)
