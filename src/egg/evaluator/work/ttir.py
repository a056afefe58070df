"""Read Triton's IR as the compiler prints it, as far as counting needs it, and never stumble.

MLIR's printer puts every operation on a line of its own and opens a region at the end of a
line, so lines and braces carry the structure. Of an operation its name, operands, attributes
and types are taken; what they mean is left to the reader. An operation that is not known is
kept like any other, and text that is no IR at all gives a module without functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_DEEPEST = 100
"""Regions within regions; no kernel comes near."""

_PLAIN_LOC = re.compile(r"\s*\bloc\(#loc\d*\)")
_ANY_LOC = re.compile(r"\s*\bloc\(")
_ALIAS = re.compile(r'^(#loc\d*) = loc\("([^"]*)"', re.MULTILINE)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_STRUCTURE = re.compile(r"[^\w.\-]")
_REFERENCE = re.compile(r"%[\w.$\-]+(?:#\d+)?")
_RESULTS = re.compile(r"^((?:%[\w.$\-]+(?::\d+)?(?:,\s*)?)+)\s*=\s*(.*)$")
_NAME = re.compile(r'^"?([a-zA-Z_][\w.]*)"?')
_ATTRIBUTES = re.compile(r"<?\{([^{}]*)\}>?")
_ATTRIBUTE = re.compile(r'([\w.]+)\s*=\s*("[^"]*"|array<[^>]*>|[^,]+)')
_BITS = re.compile(r"(?:bf|f|tf|i|ui|si)(\d+)")


@dataclass(frozen=True)
class Type:
    """``tensor<64x32x!tt.ptr<f16>>`` has shape (64, 32), element ``f16``, and points."""

    shape: tuple[int, ...]
    element: str
    points: bool = False
    describes: bool = False
    """A tensor descriptor: ``shape`` is its block's."""

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bits(self) -> int:
        found = _BITS.match(self.element)
        return int(found.group(1)) if found else 64

    @property
    def itemsize(self) -> int:
        return max(1, self.bits // 8)

    @property
    def floating(self) -> bool:
        return not self.points and self.element.startswith(("f", "bf", "tf"))

    @property
    def integral(self) -> bool:
        plain = not self.points and not self.describes
        return plain and (self.element == "index" or bool(re.match(r"[us]?i\d", self.element)))


@dataclass(slots=True)
class Op:
    """One operation: ``results = name text : inputs -> outputs`` with its regions."""

    name: str
    results: tuple[str, ...]
    text: str
    """What stands between the name and the types: operands, keywords, attributes."""
    operands: tuple[str, ...]
    inputs: tuple[Type, ...]
    outputs: tuple[Type, ...]
    """After the arrow; empty where the operation has none and its types follow from ``inputs``."""
    attributes: dict[str, str]
    line: int
    regions: list[Region] = field(default_factory=list)


@dataclass(slots=True)
class Block:
    label: str
    arguments: tuple[str, ...]
    types: tuple[Type, ...]
    ops: list[Op] = field(default_factory=list)


@dataclass(slots=True)
class Region:
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Parameter:
    """Of a function: its name in the IR, the name in the source, and its type."""

    reference: str
    name: str
    type: Type


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[Parameter, ...]
    body: Region
    public: bool


@dataclass(frozen=True)
class Module:
    functions: dict[str, Function]

    @property
    def entry(self) -> Function | None:
        """The kernel itself; other functions are what it calls without inlining."""
        functions = list(self.functions.values())
        return next((f for f in functions if f.public), functions[0] if functions else None)


def parse(text: str) -> Module:
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self._aliases = dict(_ALIAS.findall(text))
        self._lines = text.splitlines()
        self._at = 0

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        while self._at < len(self._lines):
            raw = self._lines[self._at]
            self._at += 1
            if raw.lstrip().startswith("tt.func "):
                function = self._function(raw)
                if function is not None:
                    functions[function.name] = function
        return Module(functions)

    def _function(self, raw: str) -> Function | None:
        header = _without_strings_structure(raw)
        found = re.match(r"\s*tt\.func\s+(public|private)?\s*@([\w.$\-]+|\"[^\"]*\")\(", header)
        if found is None:
            return None
        arguments = _within(header, found.end() - 1)
        parameters = [p for part in _split(arguments) if (p := self._parameter(part)) is not None]
        opens = _without_locs(header).endswith("{")
        body = self._region(0) if opens else Region()
        return Function(found.group(2).strip('"'), tuple(parameters), body, found.group(1) != "private")

    def _parameter(self, part: str) -> Parameter | None:
        """``%a_0: i32 {tt.divisibility = 16 : i32} loc("a"(#loc))``."""
        reference, separator, rest = part.strip().partition(":")
        if not separator or not reference.startswith("%"):
            return None
        named = re.search(r'loc\(\s*(?:"([^"]*)"|(#loc\d*))', rest)
        source = (named.group(1) or self._aliases.get(named.group(2), "")) if named else ""
        plain = re.split(r"\s+(?:\{|loc\()", rest.strip(), maxsplit=1)[0]
        return Parameter(reference, source or reference[1:], parse_type(plain))

    def _region(self, depth: int) -> Region:
        """Up to the line that closes it, which is left to be read."""
        region = Region([Block("", (), ())])
        while self._at < len(self._lines):
            line = _clean(self._lines[self._at])
            if line.startswith("}"):
                break
            self._at += 1
            if not line or line.startswith(("//", "#")):
                continue
            if line.startswith("^"):
                region.blocks.append(_block(line))
            elif depth < _DEEPEST:
                region.blocks[-1].ops.append(self._op(line, depth))
        if len(region.blocks) > 1 and not region.blocks[0].ops:
            del region.blocks[0]
        return region

    def _op(self, line: str, depth: int) -> Op:
        number, regions, opened = self._at, [], line.endswith("{")
        text = line[:-1].rstrip().removesuffix("(") if opened else line
        while opened:
            regions.append(self._region(depth + 1))
            closing = _clean(self._lines[self._at]) if self._at < len(self._lines) else "}"
            self._at += 1
            opened = closing.endswith("{")  # } else {, } do {, }, {
            if not opened:
                text += " " + closing[1:].lstrip(" )")
        op = _header(text, number)
        op.regions = regions
        return op


def _header(text: str, line: int) -> Op:
    results: tuple[str, ...] = ()
    if assigned := _RESULTS.match(text):
        results, text = _result_names(assigned.group(1)), assigned.group(2)
    named = _NAME.match(text)
    name = named.group(1) if named else ""
    body, _, types = _cut_types(text[named.end() :] if named else text)
    inputs, outputs = _types(types)
    body, operands = body.strip(), tuple(_REFERENCE.findall(body))
    return Op(name, results, body, operands, inputs, outputs, _attributes(body), line)


def _result_names(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        several = int(count) if count.isdigit() else 1
        names += [name] if not count else [f"{name}#{i}" for i in range(min(several, 1_000))]
    return tuple(n for n in names if n)


def _outside_brackets(text: str, mark: str) -> Iterator[int]:
    """Where a character stands outside of all brackets; the end of an arrow closes none."""
    depth = 0
    for at, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[at - 1] != "-"):
            depth -= 1
        elif character == mark and depth == 0:
            yield at


def _cut_types(text: str) -> tuple[str, str, str]:
    """Split at the last colon outside all brackets; region operations have theirs at the very end."""
    at = max(_outside_brackets(text, ":"), default=-1)
    return (text, "", "") if at < 0 else (text[:at], ":", text[at + 1 :])


def _types(text: str) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    before, arrow, after = text.partition("->")
    if not arrow:
        before, arrow, after = text.partition(" to ")
    return _type_list(before), _type_list(after)


def _type_list(text: str) -> tuple[Type, ...]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return tuple(parse_type(part) for part in _split(text.replace(" * ", ", ")) if part.strip())


@lru_cache(maxsize=4_096)
def parse_type(text: str) -> Type:
    text = re.sub(r"\s*\{.*$", "", text.strip())
    if text.startswith("!tt.ptr<"):
        inner = parse_type(_split(text[8:].removesuffix(">"))[0])
        return Type(inner.shape, inner.element, points=True)
    if text.startswith("!tt.tensordesc<"):
        inner = parse_type("tensor<" + text[15:].removeprefix("tensor<").rstrip(">") + ">")
        return Type(inner.shape, inner.element, describes=True)
    if text.startswith(("tensor<", "<")):
        inside = text[text.index("<") + 1 :].removesuffix(">").removeprefix("tensor<")
        sizes = re.match(r"(?:\d+x)*", inside)
        head = sizes.group(0) if sizes else ""
        element = parse_type((_split(inside[len(head) :]) or [""])[0])
        shape = tuple(int(n) for n in head.split("x") if n)
        return Type(shape, element.element, element.points)
    return Type((), text.rstrip(">"))


def _block(line: str) -> Block:
    """``^bb2(%i: i32, %acc: tensor<64xf32>):``, possibly with a comment behind."""
    label = re.match(r"\^[\w$.\-]+", line)
    opened = line.find("(")
    commented = line.find("//")
    arguments = _within(line, opened) if opened >= 0 and (commented < 0 or opened < commented) else ""
    pairs = [part.strip().partition(":") for part in _split(arguments)]
    return Block(
        label.group(0) if label else "",
        tuple(name.strip() for name, _, _ in pairs),
        tuple(parse_type(rest) for _, _, rest in pairs),
    )


def _attributes(text: str) -> dict[str, str]:
    """``{end = 64 : i32}``, ``<{axis = 1 : i32}>`` and ``inputPrecision = tf32`` outside of braces."""
    found: dict[str, str] = {}
    if "=" not in text:
        return found
    outside = _ATTRIBUTES.sub(" ", text)
    for inside in (*_ATTRIBUTES.findall(text), outside):
        for name, value in _ATTRIBUTE.findall(inside):
            found[name] = value.strip().strip('"').split(" :")[0].split(" {")[0].strip()
    return found


def _split(text: str) -> list[str]:
    """At the commas outside of all brackets."""
    parts, start = [], 0
    for at in _outside_brackets(text, ","):
        parts.append(text[start:at])
        start = at + 1
    return [*parts, text[start:]] if text[start:].strip() else parts


def _within(text: str, opened: int) -> str:
    """Between the bracket at ``opened`` and the one that closes it."""
    depth = 0
    for i in range(opened, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return text[opened + 1 : i]
    return text[opened + 1 :]


def _clean(line: str) -> str:
    return _without_locs(_without_strings_structure(line)).strip()


def _without_strings_structure(line: str) -> str:
    """Strings without the characters that would be mistaken for structure."""
    if '"' not in line:
        return line
    return _STRING.sub(lambda found: '"' + _STRUCTURE.sub("_", found.group(1)) + '"', line)


def _without_locs(line: str) -> str:
    line = _PLAIN_LOC.sub("", line)
    while found := _ANY_LOC.search(line):
        inside = _within(line, found.end() - 1)
        line = line[: found.start()] + line[found.end() + len(inside) + 1 :]
    return line.rstrip()
