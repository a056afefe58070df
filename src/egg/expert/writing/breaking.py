"""One statement over several lines, as a formatter has it: which bracket is opened, where operators go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

LIMIT = 100

PRECEDENCE: dict[type[ast.operator], int] = {
    ast.BitOr: 1, ast.BitXor: 2, ast.BitAnd: 3, ast.LShift: 4, ast.RShift: 4, ast.Add: 5, ast.Sub: 5,
    ast.Mult: 6, ast.Div: 6, ast.FloorDiv: 6, ast.Mod: 6, ast.MatMult: 6, ast.Pow: 7,
}  # fmt: skip
OPENING, CLOSING = "([{", ")]}"
HEADED = ("elif ", "else:", "except", "finally:", "case ")


@dataclass
class Breaker:
    """Breaks one statement, given on one line."""

    text: str
    opened: bool = False
    """Its bracket is opened even if the statement fits on a line."""

    def statement(self, indent: int) -> list[str]:
        headed = self.text.rstrip().endswith(":")
        prefix = "if True: pass\n" if self.text.startswith(HEADED) else ""
        tree = ast.parse(prefix + self.text + (" pass" if headed else ""))
        if prefix:
            tree.body = [getattr(tree.body[0], "orelse", tree.body)[0]]
        if len(tree.body) != 1:
            raise SyntaxError("several statements on one line")
        (statement,) = tree.body
        if prefix and not isinstance(statement, ast.If):
            raise SyntaxError("a header that has nothing to break")
        self._bytes = self.text.encode()
        match statement:
            case ast.FunctionDef():
                return self._parameters(indent)
            case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.Expr(value=value):
                return self._whole(value, indent)
            case ast.AnnAssign(value=ast.expr() as value) | ast.Return(value=ast.expr() as value):
                return self._whole(value, indent)
            case ast.Raise(exc=ast.expr() as value, cause=None):
                return self._whole(value, indent)
            case ast.If(test=value) | ast.While(test=value) | ast.Assert(test=value) | ast.For(iter=value):
                return self._whole(value, indent)
        raise SyntaxError("nothing to break")

    def _whole(self, value: ast.expr, indent: int) -> list[str]:
        start, end = self._span(value, 0, len(self._bytes))
        inner_start, inner_end = value.col_offset, value.end_col_offset or 0
        bare_tuple = isinstance(value, ast.Tuple) and self._bytes[inner_start : inner_start + 1] != b"("
        if not bare_tuple and not isinstance(value, ast.Tuple):
            head, tail = self._cut(0, start), self._cut(end, len(self._bytes))
            return self._expression(value, indent, head, tail, False, (inner_start, inner_end))
        return self._expression(
            value, indent, self._cut(0, start), self._cut(end, len(self._bytes)), False, None
        )

    def _cut(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def _span(self, node: ast.expr, low: int, high: int) -> tuple[int, int]:
        """The bytes of an expression with the parentheses around it, within the bounds of its parent."""
        start, end = node.col_offset, node.end_col_offset or 0
        while True:
            left = len(self._bytes[low:start].rstrip()) + low - 1
            rest = self._bytes[end:high]
            right = end + len(rest) - len(rest.lstrip())
            if (
                left < low
                or right >= high
                or self._bytes[left : left + 1] != b"("
                or self._bytes[right : right + 1] != b")"
            ):
                return start, end
            before = self._bytes[:left].rstrip()[-1:].decode(errors="replace")
            if left > 0 and self._bytes[left - 1 : left] != b" " and (before.isalnum() or before in "_)]"):
                return start, end
            start, end = left, right + 1

    # -- expressions -------------------------------------------------------------------------------

    def _expression(
        self,
        node: ast.expr,
        indent: int,
        head: str,
        tail: str,
        inside: bool,
        span: tuple[int, int] | None,
    ) -> list[str]:
        """``head``, the expression and ``tail``; ``inside`` a bracket lines may break anywhere."""
        start, end = span or (node.col_offset, node.end_col_offset or 0)
        pad = " " * indent
        flat = pad + head + self._cut(start, end) + tail
        opened, self.opened = self.opened, False
        if len(flat) <= LIMIT and not opened:
            return [flat]
        if start < node.col_offset:  # parentheses of its own
            inner = self._expression(node, indent + 4, "", "", True, None)
            return [f"{pad}{head}(", *inner, f"{pad}){tail}"]
        match node:
            case ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
                if inside:
                    return self._operands(node, indent, head, tail, start, end)
                at_an_end = self._at_an_end(node, indent, head, tail, start, end)
                if at_an_end is not None:
                    return at_an_end
                alone = f"{pad}    {self._cut(start, end)}"
                broken = self._operands(node, indent + 4, "", "", start, end)
                return [f"{pad}{head}(", *([alone] if len(alone) <= LIMIT else broken), f"{pad}){tail}"]
            case ast.Tuple() if self._cut(start, start + 1) != "(" or self._cut(end - 1, end) != ")":
                return self._items(node.elts, indent, head + "(", ")" + tail, start, end)
            case ast.Tuple() | ast.List() | ast.Set():
                opening, closing = self._cut(start, start + 1), self._cut(end - 1, end)
                return self._items(node.elts, indent, head + opening, closing + tail, start + 1, end - 1)
            case ast.Dict():
                return self._dictionary(node, indent, head, tail)
            case ast.UnaryOp(operand=operand):
                sign = self._cut(start, operand.col_offset)
                if "(" not in sign:
                    return self._expression(operand, indent, head + sign, tail, inside, None)
            case ast.Call() | ast.Attribute() | ast.Subscript():
                return self._chain(node, indent, head, tail, start, end)
        return [flat]

    def _at_an_end(
        self, node: ast.expr, indent: int, head: str, tail: str, start: int, end: int
    ) -> list[str] | None:
        """Two operands, one of them with a bracket: open that, and spare the parentheses around both."""
        parts = [] if isinstance(node, ast.IfExp) else list(self._parts(node, "", start, end))
        if len(parts) != 2:
            return None
        (_, left), (sign, right) = parts
        left_span, right_span = self._span(left, start, end), self._span(right, start, end)
        before = head + self._cut(*left_span) + f" {sign}"
        bracketed = right_span[0] < right.col_offset or (
            isinstance(right, ast.Call) and bool(right.args or right.keywords)
        )
        opening = right_span[0] + 1 if right_span[0] < right.col_offset else 0
        opening = opening or (right.func.end_col_offset or 0) + 1 if isinstance(right, ast.Call) else opening
        first = indent + len(before) + opening - right_span[0]
        if bracketed and first <= LIMIT:
            return self._expression(right, indent, before, tail, False, right_span)
        if left_span[0] < left.col_offset:
            after = f") {sign}{self._cut(*right_span)}{tail}"
            inner = self._expression(left, indent + 4, "", "", True, None)
            return [f"{' ' * indent}{head}(", *inner, " " * indent + after]
        return None

    def _chain(self, node: ast.expr, indent: int, head: str, tail: str, start: int, end: int) -> list[str]:
        """Open the call of a chain whose arguments are longest."""
        calls: list[ast.Call] = []
        link: ast.expr = node
        while True:
            if isinstance(link, ast.Call):
                if link.args or link.keywords:
                    calls.append(link)
                link = link.func
            elif isinstance(link, ast.Attribute | ast.Subscript):
                link = link.value
            else:
                break
        pad = " " * indent
        if isinstance(link, ast.BinOp | ast.BoolOp | ast.Compare) and self._cut(start, start + 1) == "(":
            closing = self._span(link, start, end)[1]
            widest = max(((c.end_col_offset or 0) - (c.func.end_col_offset or 0) for c in calls), default=0)
            if closing - start > widest:
                inner = self._expression(link, indent + 4, "", "", True, (start + 1, closing - 1))
                return [f"{pad}{head}(", *inner, f"{pad}){self._cut(closing, end)}{tail}"]
        if not calls:
            return [pad + head + self._cut(start, end) + tail]
        longest = max(calls, key=lambda c: (c.end_col_offset or 0) - (c.func.end_col_offset or 0))
        opening = longest.func.end_col_offset or 0
        closing = (longest.end_col_offset or 0) - 1
        head += self._cut(start, opening) + "("
        tail = ")" + self._cut(closing + 1, end) + tail
        items: list[ast.expr | ast.keyword] = [*longest.args, *longest.keywords]
        items.sort(key=lambda item: item.col_offset)
        if len(pad + head) > LIMIT and isinstance(longest.func, ast.Subscript):
            place = longest.func.slice
            name = self._cut(start, longest.func.value.end_col_offset or 0)
            span = self._span(place, longest.func.value.end_col_offset or 0, opening)
            grid = self._expression(place, indent + 4, "", "", True, span)
            rest = self._items(items, indent, "](", tail, opening + 1, closing, called=True)
            return [f"{pad}{head.split(name)[0]}{name}[", *grid, *rest]
        return self._items(items, indent, head, tail, opening + 1, closing, called=True)

    def _items(
        self,
        items: list[ast.expr] | list[ast.expr | ast.keyword],
        indent: int,
        head: str,
        tail: str,
        low: int,
        high: int,
        called: bool = False,
    ) -> list[str]:
        pad, lines = " " * indent, [" " * indent + head]
        for item in items:
            name, value = "", item
            if isinstance(item, ast.keyword):
                name, value = f"{item.arg}=" if item.arg else "**", item.value
            elif isinstance(item, ast.Starred):
                name, value = "*", item.value
            assert isinstance(value, ast.expr)
            if isinstance(value, ast.GeneratorExp) and len(items) == 1:
                return [*lines, *self._comprehension(value, indent + 4, ""), pad + tail]
            if called and len(items) == 1 and not name:
                alone = " " * (indent + 4) + self._cut(*self._span(value, low, high))
                if len(alone) <= LIMIT:
                    return [*lines, alone, pad + tail]
            bounds = (item.col_offset + len(name) if name else low, high)
            span = self._span(value, *bounds)
            lines += self._expression(value, indent + 4, name, ",", True, span)
        return [*lines, pad + tail]

    def _comprehension(self, node: ast.GeneratorExp, indent: int, tail: str) -> list[str]:
        pad = " " * indent
        lines = self._expression(node.elt, indent, "", "", True, None)
        for part in node.generators:
            lines.append(f"{pad}for {ast.unparse(part.target)} in {self._segment(part.iter)}")
            lines += [f"{pad}if {self._segment(test)}" for test in part.ifs]
        lines[-1] += tail
        return lines

    def _segment(self, node: ast.expr) -> str:
        return self._cut(node.col_offset, node.end_col_offset or 0)

    def _dictionary(self, node: ast.Dict, indent: int, head: str, tail: str) -> list[str]:
        pad, lines = " " * indent, [" " * indent + head + "{"]
        for key, value in zip(node.keys, node.values, strict=True):
            name = "**" if key is None else f"{self._segment(key)}: "
            lines += self._expression(value, indent + 4, name, ",", True, None)
        return [*lines, pad + "}" + tail]

    def _operands(self, node: ast.expr, indent: int, head: str, tail: str, low: int, high: int) -> list[str]:
        """One operand a line, the operator in front of it."""
        if isinstance(node, ast.IfExp):
            parts: list[tuple[str, ast.expr]] = [("", node.body), ("if ", node.test), ("else ", node.orelse)]
        else:
            parts = list(self._parts(node, "", low, high))
        lines: list[str] = []
        for place, (sign, operand) in enumerate(parts):
            ending = tail if place == len(parts) - 1 else ""
            beginning = head if place == 0 else ""
            span = self._span(operand, low, high)
            lines += self._expression(operand, indent, beginning + sign, ending, True, span)
        return lines

    def _parts(self, node: ast.expr, sign: str, low: int, high: int) -> Iterator[tuple[str, ast.expr]]:
        """Operands of one level of precedence, each with the operator before it."""
        if isinstance(node, ast.BoolOp):
            word = "and " if isinstance(node.op, ast.And) else "or "
            for place, value in enumerate(node.values):
                yield sign if place == 0 else word, value
        elif isinstance(node, ast.Compare):
            yield sign, node.left
            previous = node.left
            for value in node.comparators:
                yield self._operator(previous, value, low, high), value
                previous = value
        elif isinstance(node, ast.BinOp):
            left = node.left
            bare = self._span(left, low, high) == (left.col_offset, left.end_col_offset)
            same = isinstance(left, ast.BinOp) and PRECEDENCE[type(left.op)] == PRECEDENCE[type(node.op)]
            if same and bare:
                yield from self._parts(left, sign, low, high)
            else:
                yield sign, left
            yield self._operator(left, node.right, low, high), node.right

    def _operator(self, left: ast.expr, right: ast.expr, low: int, high: int) -> str:
        """The text between two operands."""
        return self._cut(self._span(left, low, high)[1], self._span(right, low, high)[0]).strip() + " "

    def _parameters(self, indent: int) -> list[str]:
        """A function's parameters, one a line."""
        depth, start, items, last = 0, self.text.index("(") + 1, list[str](), 0
        for place, letter in enumerate(self.text[start - 1 :], start - 1):
            depth += (letter in OPENING) - (letter in CLOSING)
            if depth == 0 or (depth == 1 and letter == ","):
                items.append(self.text[max(start, last) : place].strip())
                last = place + 1
                if depth == 0:
                    break
        pad = " " * indent
        inner = [f"{pad}    {item}," for item in items if item]
        return [pad + self.text[:start], *inner, pad + ")" + self.text[last:]]
