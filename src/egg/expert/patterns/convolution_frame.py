"""What every convolution kernel begins and ends with: which tile a program owns, and what becomes of its
sums.

A tile is ``BLOCK_P`` output positions by ``BLOCK_O`` output channels of one group and one phase. Phases are
the fastest part of the program number (together they fill whole sectors of the output), then blocks of
channels (they read the same inputs), then groups, then positions (neighbours share rows of the input in L2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from egg.expert.graph import Node, Value
from egg.expert.index import Expr, Index, flat, loop_index
from egg.expert.parts import Unfit, spelled
from egg.expert.patterns.convolution_form import Form
from egg.expert.patterns.product_text import Kernel, allocation, size_names, words
from egg.expert.reader import Reader, address, beyond_view
from egg.expert.scalar import stored
from egg.expert.sizes import ONE, Size

RESERVED = frozenset(
    {
        "pid", "group", "p", "o", "n", "c", "s", "k", "k0", "kk", "ci", "t", "e", "acc", "part",
        "inside", "kept", "live", "summed", "scale", "row", "column", "at", "step", "first",
        "plane", "top", "start", "high", "x_at", "w_at", "x_e", "w_e", "x_low", "w_low", "x_high",
        "w_high", "x_scaled", "w_scaled", "padded_c",
        *(f"{word}{axis}" for word in "qrji" for axis in "dhw"),
        *(f"{word}_{axis}" for word in ("steps", "first", "origin", "taps", "padded") for axis in "dhw"),
    }
)  # fmt: skip
"""Names the kernels use for their own purposes."""


def new_kernel(form: Form, name: str, doc: str) -> Kernel:
    """An empty kernel; every size but the batch is known when it is compiled, so that divisions are cheap."""
    if clash := sorted(RESERVED & size_names(form.graph)):
        raise Unfit(f"a size of the program is called {clash[0]}, as something in the kernel is")
    batch = {symbol.name for symbol in form.batch.factors}
    shapes = (*form.x.shape[1:], *form.weight.shape, *form.result.shape[1:])
    sizes = {symbol.name for size in shapes for symbol in size.factors} - batch
    kernel = Kernel(name, doc, form.graph, fixed=frozenset(sizes))
    kernel.body.taken |= RESERVED
    return kernel


def open_tile(form: Form, kernel: Kernel) -> None:
    """Lines that find the tile of a program and its indices."""
    line = kernel.body.line
    line("pid = tl.program_id(0)")
    for axis in reversed(form.phased):
        line(f"r{axis.letter} = pid % {axis.phases}")
        line(f"pid = pid // {axis.phases}")
    blocks = f"tl.cdiv({form.outputs}, BLOCK_O)"
    line(f"o = pid % {blocks} * BLOCK_O + tl.arange(0, BLOCK_O)[None, :]")
    line(f"pid = pid // {blocks}")
    if form.groups.value != 1 or form.groups.factors:
        line(f"group = pid % {_wrapped(form.groups.code())}")
        line(f"pid = pid // {_wrapped(form.groups.code())}")
    define_steps(form, kernel)
    counts = [axis.count.code() for axis in form.axes]
    batch = [form.batch.code()] if form.batch != ONE else []
    line("p = pid * BLOCK_P + tl.arange(0, BLOCK_P)[None, :]")
    line(f"inside = p < {' * '.join([*batch, *counts])}")
    open_positions(form, kernel)
    for axis in form.phased:
        if axis.out.over(Size(axis.phases)) is None:
            line(f"inside &= q{axis.letter} * {axis.phases} + r{axis.letter} < {axis.out}")
    if not form.phased:
        line(f"s = p % {_wrapped(form.plane.code())}")
    define_phases(form, kernel)


def close_tile(form: Form, kernel: Kernel) -> None:
    """The sums turned around: positions along the lanes, so that channels-first stores are contiguous."""
    line = kernel.body.line
    line("acc = tl.trans(acc)")
    line("o = tl.trans(o)")
    line(f"kept = o < {form.outputs}")
    line(f"c = group * {_wrapped(form.outputs.code())} + o" if form.groups.code() != "1" else "c = o")


def open_positions(form: Form, kernel: Kernel) -> None:
    """``p`` as image and steps along each axis."""
    line = kernel.body.line
    inner: list[str] = []
    for axis in reversed(form.axes):
        text = f"p // {_wrapped(' * '.join(reversed(inner)))}" if inner else "p"
        if axis is not form.axes[0] or form.batch != ONE:
            text = f"{text} % {_wrapped(axis.count.code())}"
        line(f"q{axis.letter} = {text}")
        inner.append(axis.count.code())
    if form.batch != ONE:
        line(f"n = (p // {_wrapped(' * '.join(reversed(inner)))}).to(tl.int64)")


def define_steps(form: Form, kernel: Kernel) -> None:
    for axis in form.phased:
        if axis.count.factors:
            kernel.body.line(f"steps_{axis.letter}: tl.constexpr = {axis.count_text}")


def define_phases(form: Form, kernel: Kernel) -> None:
    """Which taps a phase has and where they begin: one number each per program."""
    line = kernel.body.line
    for axis in form.phased:
        x, at = axis.letter, f"r{axis.letter} + {axis.padding}" if axis.padding else f"r{axis.letter}"
        if axis.pace == 1:
            line(f"first_{x} = 0")
        else:
            base = f"({at})" if axis.shared == 1 else f"({at}) // {axis.shared}"
            scaled = f"{base} * {axis.inverse}" if axis.inverse != 1 else base
            line(f"first_{x} = {scaled} % {axis.pace}")
        line(f"origin_{x} = ({at} - first_{x} * {axis.dilation}) // {axis.stride}")
        if axis.uniform:
            line(f"taps_{x}: tl.constexpr = {axis.most_taps}")
            continue
        taps = f"({axis.kernel + axis.pace - 1} - first_{x}) // {axis.pace}"
        line(
            f"taps_{x} = {taps}"
            if axis.shared == 1
            else f"taps_{x} = tl.where(({at}) % {axis.shared} == 0, {taps}, 0)"
        )


def grid(form: Form, block_p: str, block_o: str) -> str:
    """How many programs there are."""
    batch = [_wrapped(form.batch.code())] if form.batch != ONE else []
    total = " * ".join([*batch, *(_wrapped(axis.count_text) for axis in form.axes)])
    programs = [f"triton.cdiv({total}, {block_p})", f"triton.cdiv({form.outputs}, {block_o})"]
    programs += [form.groups.code()] if form.groups.code() != "1" else []
    programs += [str(form.phases)] if form.phases > 1 else []
    return f"({' * '.join(programs)},)"


@dataclass
class Tail:
    """What follows the convolution in its group, computed where the sums are."""

    form: Form
    index: Index
    places: dict[str, Index] = field(default_factory=dict)
    """For each value that depends on the sums: its index in terms of theirs."""

    @classmethod
    def of(cls, form: Form, index: Index | None = None) -> Tail:
        tail = cls(form, index or form.output_index())
        tail.places[form.result.name] = tail.index
        for node in form.group.nodes:
            if node is form.node or not any(name in tail.places for name in node.inputs):
                continue
            tail.places[node.output] = tail._beyond(node)
        if odd := [value.name for value in tail.writes if value.name not in tail.places]:
            raise Unfit(f"{odd[0]} is needed outside, but is computed only in passing")
        return tail

    def _beyond(self, node: Node) -> Index:
        graph, shape = self.form.graph, self.form.graph.result(node).shape
        reached = [str(name) for name in node.inputs if name in self.places]
        if node.op == "view":
            return beyond_view(graph, node, self.places[reached[0]])
        if node.op not in ("pointwise", "where"):
            raise Unfit(f"{node.op} after a convolution needs more than one tile")
        for name in reached:
            if graph.value(name).shape != shape or self.places[name] != self.places[reached[0]]:
                raise Unfit("a tail that combines different positions of the convolution")
        return self.places[reached[0]]

    @property
    def writes(self) -> tuple[Value, ...]:
        return tuple(self.form.graph.value(name) for name in self.form.group.writes(self.form.graph))

    def bind(self, reader: Reader, text: str) -> None:
        """The sums, bias included, are what ``text`` says."""
        name = self.form.result.name

        def held(index: Index) -> str:
            if index != self.index:
                raise Unfit("a tail that reads other positions of the convolution")
            return text

        reader.bound[name] = held

    def store(self, kernel: Kernel, reader: Reader, mask: str) -> None:
        texts = [(value, reader.read(value.name, self.places[value.name])) for value in self.writes]
        kernel.add_pointers(reader.pointers)
        for value, text in texts:
            pointer = kernel.body.name(f"{value.name}_ptr")
            kernel.operands[pointer] = value.name
            at = self._address(value)
            kernel.body.line(f"tl.store({pointer} + {at}, {stored(text, value.dtype)}, mask={mask})")

    def _address(self, value: Value) -> Expr:
        index = self.places[value.name]
        if value.contiguous:
            return flat(index, value.shape)
        return address(value, index)

    def allocations(self) -> list[str]:
        device = f"{spelled(self.form.graph, self.source)}.device"
        return [allocation(value, device) for value in self.writes]

    @property
    def source(self) -> str:
        """A tensor that is there before the group."""
        return self.form.group.reads(self.form.graph)[0]


def mentioned(form: Form, call: tuple[str, ...]) -> tuple[str, ...]:
    """Named sizes in lines of ``forward``."""
    return tuple(sorted(words("\n".join(call)) & size_names(form.graph)))


def tile_masks(form: Form) -> dict[str, str]:
    """Which of a tile's indices may overshoot."""
    masks = {"n": "inside", "s": "inside", "c": "kept"}
    return masks | {f"q{axis.letter}": "inside" for axis in form.axes}


def finish(form: Form, kernel: Kernel, tail: Tail, pointers: dict[str, str], sums: str) -> None:
    """Bias, tail and stores."""
    reader = Reader(form.graph, form.group.nodes, kernel.body, tile_masks(form), pointers=pointers)
    if form.bias is not None:
        channel = loop_index("c", form.groups * form.outputs)
        bias = reader.read(form.bias.name, (channel,))
        sums = kernel.body.let("sums", f"{sums} + {bias}")
    tail.bind(reader, sums)
    tail.store(kernel, reader, "inside & kept")


def _wrapped(text: str) -> str:
    return f"({text})" if " " in text else text
