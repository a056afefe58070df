"""Applying edits to a kernel file: each target is found by its name, and nothing else may change.

The file is read as a syntax tree and cut at the lines of its definitions, so every line outside
the targets stays as it is, comments and blank lines included. An edit is refused, with the reason
for the model that wrote it, where its target is missing or ambiguous, where its text is not a
definition of the target, or where the result does not parse. After each edit the tree of the new
file is compared with the old one: all definitions but the target must be the same.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from egg.agents.extraction import Unreadable
from egg.core.plan import Edit, EditKind

NAMES_LISTED = 40
"""Definitions of the file that a refusal lists."""
UNREADABLE_FILE = (SyntaxError, ValueError, RecursionError, MemoryError)

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


class BadEdit(Unreadable):
    """Why an edit cannot be applied, in words for the model that wrote it."""


@dataclass(frozen=True)
class Definition:
    """A named statement of a file: a function, a class, a method, or an assignment of constants."""

    name: str
    """``ModelNew.forward`` for a method."""
    names: tuple[str, ...]
    """Every name that the statement binds; more than one where constants are assigned together."""
    node: ast.stmt
    first: int
    last: int
    """Lines, counted from 1; decorators belong to the definition."""

    @property
    def indent(self) -> int:
        return self.node.col_offset


def applied(source: str, edits: Sequence[Edit]) -> str:
    """``source`` with all ``edits``, in their order; :class:`BadEdit` where one cannot be applied."""
    if not edits:
        raise BadEdit("there is no edit in the reply")
    _check_targets(edits)
    text = source
    for edit in edits:
        try:
            text = _applied(text, edit)
        except BadEdit as reason:
            raise BadEdit(f"`{edit.operation.value} {edit.target}`: {reason}") from None
    if text == source:
        raise BadEdit("the edits leave the file as it was")
    return text


def definitions(source: str) -> tuple[Definition, ...]:
    """The definitions that an edit can name, in the order of the file."""
    return tuple(_definitions(_parsed(source, "the file")))


def lines_of(source: str) -> list[str]:
    """Lines as Python counts them, with their ends."""
    return [line for line in _LINE.findall(source) if line]


# -- one edit --------------------------------------------------------------------------------------


def _applied(source: str, edit: Edit) -> str:
    tree = _parsed(source, "the file")
    found = list(_definitions(tree))
    target = _target(found, edit.target)
    _check_own_lines(tree, target)
    lines = lines_of(source)
    before, inside, after = (
        lines[: target.first - 1],
        lines[target.first - 1 : target.last],
        lines[target.last :],
    )
    match edit.operation:
        case EditKind.REPLACE:
            inside = _new_text(target, edit.text)
        case EditKind.CHANGE:
            inside = [_changed("".join(inside), edit)]
        case EditKind.DELETE:
            _check_unused(tree, target)
            inside = []
        case EditKind.ADD:
            inside = [*_ended(inside), *_added(found, target, edit.text)]
    if after and inside:
        inside = _ended(inside)
    result = "".join((*before, *inside, *after))
    _check_only(tree, result, target, edit)
    return result


def _new_text(target: Definition, text: str) -> list[str]:
    """The lines of a replacement, at the target's indentation."""
    body, lines = _own_statements(text)
    if len(body) != 1:
        raise BadEdit(
            f"the text has {len(body)} statements, and it must be the one definition of {target.name}"
        )
    given = _bound_names(body[0])
    wanted = tuple(name.rpartition(".")[2] for name in target.names)
    if type(body[0]) is not type(target.node) and not (_assigns(body[0]) and _assigns(target.node)):
        raise BadEdit(f"{target.name} is {_noun(target.node)}, and the text is {_noun(body[0])}")
    if set(given) != set(wanted):
        shown = ", ".join(given) or "nothing"
        raise BadEdit(f"the text defines {shown}, and it must define {' and '.join(wanted)}, nothing else")
    return _shifted(lines, target.indent)


def _added(found: Sequence[Definition], target: Definition, text: str) -> list[str]:
    """The lines of new definitions behind ``target``; methods where the target is one."""
    body, lines = _own_statements(text)
    owner = f"{target.name.rpartition('.')[0]}." if "." in target.name else ""
    known = {name for definition in found for name in definition.names}
    if not body:
        raise BadEdit("the text adds no definition")
    for node in body:
        names = _bound_names(node)
        if not names and not isinstance(node, ast.Import | ast.ImportFrom):
            raise BadEdit(
                f"line {node.lineno} of the text is {_noun(node)}: add functions, classes or constants"
            )
        if taken := [name for name in names if f"{owner}{name}" in known]:
            raise BadEdit(f"{owner}{taken[0]} is in the file already: use `replace {owner}{taken[0]}`")
    blank = "\n" if _assigns(target.node) or owner else "\n\n"
    return [blank, *_shifted(lines, target.indent)]


def _changed(text: str, edit: Edit) -> str:
    """The target's text with its one passage changed; blank lines around the passage do not count."""
    old = edit.old.strip("\n")
    if not old.strip():
        raise BadEdit("the passage to change is empty")
    places = _occurrences(text, old)
    if not places:
        raise BadEdit(f"the passage does not occur in {edit.target}: copy it exactly, with its indentation")
    if len(places) > 1:
        raise BadEdit(f"the passage occurs {len(places)} times in {edit.target}: take more lines around it")
    return text[: places[0]] + edit.text.strip("\n") + text[places[0] + len(old) :]


def _occurrences(text: str, passage: str) -> list[int]:
    """Where ``passage`` begins, overlapping places included: an overlap is ambiguous as well."""
    places, at = [], text.find(passage)
    while at >= 0:
        places.append(at)
        at = text.find(passage, at + 1)
    return places


# -- checks ----------------------------------------------------------------------------------------


def _check_targets(edits: Sequence[Edit]) -> None:
    """A definition is replaced or deleted once, and then nothing inside it is edited."""
    whole = [e.target for e in edits if e.operation in (EditKind.REPLACE, EditKind.DELETE)]
    for target in whole:
        if whole.count(target) > 1:
            raise BadEdit(f"{target} is replaced or deleted more than once")
    for edit in edits:
        owner = edit.target.partition(".")[0]
        again = edit.operation is EditKind.CHANGE and edit.target in whole
        if again or (owner != edit.target and owner in whole):
            raise BadEdit(f"{edit.target} is edited although another edit replaces it as a whole")


def _target(found: Sequence[Definition], name: str) -> Definition:
    named = [definition for definition in found if name in definition.names]
    if len(named) > 1:
        lines = ", ".join(str(definition.first) for definition in named)
        raise BadEdit(
            f"{name} is defined {len(named)} times in the file (lines {lines}): write the whole file"
        )
    if named:
        return named[0]
    names = [n for definition in found for n in definition.names]
    near = difflib.get_close_matches(name, names, 3)
    listed = ", ".join(near or names[:NAMES_LISTED])
    raise BadEdit(f"the file has no definition of that name; {'near it are' if near else 'it has'} {listed}")


def _check_own_lines(tree: ast.Module, target: Definition) -> None:
    """A target that shares a line with another statement cannot be cut out by lines."""
    own = {id(node) for node in ast.walk(target.node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or id(node) in own:
            continue
        first, last = _first_line(node), node.end_lineno or node.lineno
        owns = isinstance(node, ast.ClassDef) and node.lineno < target.first and target.last <= last
        if not owns and first <= target.last and target.first <= last:
            raise BadEdit(f"{target.name} shares a line with another statement: write the whole file")


def _check_unused(tree: ast.Module, target: Definition) -> None:
    own = {id(node) for node in ast.walk(target.node)}
    plain = {name.rpartition(".")[2] for name in target.names}
    for node in ast.walk(tree):
        used = (isinstance(node, ast.Name) and node.id in plain and "." not in target.name) or (
            isinstance(node, ast.Attribute) and node.attr in plain and "." in target.name
        )
        if used and id(node) not in own:
            assert isinstance(node, ast.expr)
            raise BadEdit(f"it is still used in line {node.lineno}: edit that first")


def _check_only(before: ast.Module, result: str, target: Definition, edit: Edit) -> None:
    """The new file parses, and all of it but the target and what was added is as it was."""
    after = _parsed(result, "the file after this edit")
    old, new = _fingerprint(before, target), _fingerprint(after, target)
    if edit.operation is EditKind.DELETE:
        old = [entry for entry in old if entry[0] != target.name]
    if edit.operation is EditKind.ADD:
        kept = {name for name, _ in old}
        new = [entry for entry in new if entry[0] in kept]
    if old != new:
        raise BadEdit(
            f"the text changes more of the file than {target.name}: an indentation or a quote is wrong"
        )


def _fingerprint(tree: ast.Module, target: Definition) -> list[tuple[str, str]]:
    """Every statement of the module level, and every one of a class that holds the target, by name."""
    owner = target.name.partition(".")[0] if "." in target.name else ""
    found: list[tuple[str, str]] = []
    for node in tree.body:
        if owner and isinstance(node, ast.ClassDef) and node.name == owner:
            head = ast.dump(ast.ClassDef(node.name, node.bases, node.keywords, [], node.decorator_list))
            found.append((owner, head))
            found += [_entry(inner, target, f"{owner}.") for inner in node.body]
        else:
            found.append(_entry(node, target, ""))
    return found


def _entry(node: ast.stmt, target: Definition, prefix: str) -> tuple[str, str]:
    names = tuple(f"{prefix}{name}" for name in _bound_names(node))
    if set(names) == set(target.names) and names:
        return target.name, type(node).__name__ if not _assigns(node) else "constant"
    return (names[0] if names else f"{prefix}{ast.dump(node)}"), ast.dump(node)


# -- reading ---------------------------------------------------------------------------------------


def _definitions(tree: ast.Module) -> Iterator[Definition]:
    for node in tree.body:
        yield from _definition(node, "")
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                yield from _definition(inner, f"{node.name}.")


def _definition(node: ast.stmt, prefix: str) -> Iterator[Definition]:
    names = tuple(f"{prefix}{name}" for name in _bound_names(node))
    if names:
        yield Definition(names[0], names, node, _first_line(node), node.end_lineno or node.lineno)


def _bound_names(node: ast.stmt) -> tuple[str, ...]:
    """The names a definition binds; empty for any other statement."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.AnnAssign(target=ast.Name(id=name)):
            return (name,)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return (name,)
        case ast.Assign(targets=[ast.Tuple(elts=parts)]) if all(isinstance(p, ast.Name) for p in parts):
            return tuple(part.id for part in parts if isinstance(part, ast.Name))
    return ()


def _assigns(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)


def _noun(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef):
        return "a class"
    if isinstance(node, Function):
        return "a function"
    return "a constant" if _assigns(node) else "another statement"


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _parsed(source: str, what: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        shown = f": `{error.text.strip()}`" if error.text and error.text.strip() else ""
        raise BadEdit(f"{what} is not valid Python, line {error.lineno}: {error.msg}{shown}") from None
    except UNREADABLE_FILE as error:
        raise BadEdit(f"{what} is not valid Python: {error}") from None


def _own_statements(text: str) -> tuple[list[ast.stmt], list[str]]:
    """The statements of an edit's text, which may be indented as a whole, and its lines without that."""
    lines = _ended(lines_of(text.strip("\r\n")))
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    indent = len(first) - len(first.lstrip(" "))
    plain = _shifted(lines, -indent) if indent else lines
    return _parsed("".join(plain), "the text").body, plain


def _shifted(lines: Sequence[str], by: int) -> list[str]:
    """Lines moved to the right or left; those that begin inside a string keep their blanks."""
    if not by:
        return list(lines)
    moved: list[str] = []
    inside = _inside_strings(lines)
    for number, line in enumerate(lines, start=1):
        if number in inside or not line.strip():
            moved.append(line)
        else:
            moved.append(" " * by + line if by > 0 else line.removeprefix(" " * -by))
    return moved


def _inside_strings(lines: Iterable[str]) -> set[int]:
    """Numbers of the lines that begin within a string. The text may be indented: a header makes it whole."""
    header = "if True:\n"
    text = "".join(lines)
    offset = 1 if text[:1] == " " else 0
    found: set[int] = set()
    opened: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(header * offset + text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "FSTRING_START":
                opened.append(token.start[0])
            elif kind == "FSTRING_END" and opened:
                found.update(range(opened.pop() + 1, token.end[0] + 1))
            elif kind == "STRING":
                found.update(range(token.start[0] + 1, token.end[0] + 1))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return set()  # the parser says what is wrong with it
    return {number - offset for number in found}


def _ended(lines: Sequence[str]) -> list[str]:
    """The last line gets an end, so that another can follow."""
    if lines and not lines[-1].endswith(("\n", "\r")):
        return [*lines[:-1], lines[-1] + "\n"]
    return list(lines)
