"""What every convolution kernel begins and ends with: which tile a program owns, and what becomes of its
sums.

A tile is ``BLOCK_P`` output positions by ``BLOCK_O`` output channels of one group and one phase. Phases are
the fastest part of the program number (together they fill whole sectors of the output), then blocks of
channels (they read the same inputs), then groups, then positions (neighbours share rows of the input in L2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from egg.expert.graph import Node, Value
from egg.expert.index import Expr, Index, flat, loop_index
from egg.expert.parts import Part, Unfit, spelled
from egg.expert.patterns.convolution_form import Form
from egg.expert.patterns.product_host import Host
from egg.expert.patterns.product_text import Kernel, Knobs, allocation, size_names
from egg.expert.reader import Body, Reader, address, beyond_view
from egg.expert.scalar import imports_of, stored
from egg.expert.sizes import ONE, Size

RESERVED = frozenset(
    {
        "pid", "group", "p", "o", "n", "c", "s", "k", "k0", "kk", "ci", "t", "e", "acc", "part",
        "inside", "kept", "live", "summed", "scale", "row", "column", "at", "step", "first",
        "plane", "top", "top_e", "start", "item", "item_q", "end", "u", "largest", "packed", "high",
        "x_at", "w_at", "x_e", "w_e", "x_low", "w_low", "x_high",
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
    stages: list[Node] = field(default_factory=list)
    """What is computed over all output channels of a position."""

    @classmethod
    def of(cls, form: Form, index: Index | None = None) -> Tail:
        tail = cls(form, index or form.output_index())
        tail.places[form.result.name] = tail.index
        for node in form.group.nodes:
            if node is form.node or not any(name in tail.places for name in node.inputs):
                continue
            if len(node.outputs) != 1:
                raise Unfit(f"{node.op} with {len(node.outputs)} results after a convolution")
            tail.places[node.output] = tail._beyond(node)
        if odd := [value.name for value in tail.writes if value.name not in tail.places]:
            raise Unfit(f"{odd[0]} is needed outside, but is computed only in passing")
        return tail

    def _beyond(self, node: Node) -> Index:
        graph, shape = self.form.graph, self.form.graph.result(node).shape
        reached = [str(name) for name in node.inputs if name in self.places]
        if node.op in ("reduce", "softmax"):
            return self._over_channels(node, self.places[reached[0]])
        if node.op == "view":
            return beyond_view(graph, node, self.places[reached[0]])
        if node.op not in ("pointwise", "where"):
            raise Unfit(f"{node.op} after a convolution needs more than one tile")
        for name in reached:
            if graph.value(name).shape != shape or self.places[name] != self.places[reached[0]]:
                raise Unfit("a tail that combines different positions of the convolution")
        return self.places[reached[0]]

    def _over_channels(self, node: Node, index: Index) -> Index:
        """A reduction or softmax over the output channels, all of which one tile then has."""
        form = self.form
        dims = (node["dim"],) if node.op == "softmax" else tuple(node["dims"])
        at = dims[0] % len(index)
        if node.op == "reduce" and node["fn"] not in REDUCTIONS:
            raise Unfit(f"{node['fn']} after a convolution")
        if len(dims) != 1 or index[at] != loop_index("c", form.outputs) or form.groups != ONE:
            raise Unfit(f"{node.op} after a convolution needs more than one tile")
        if form.outputs.value > MOST_CHANNELS or form.outputs == ONE:
            raise Unfit(f"no tile has {form.outputs.value} output channels")
        self.stages.append(node)
        if node.op == "softmax":
            return index
        return (*index[:at], *((Expr(),) if node["keepdim"] else ()), *index[at + 1 :])

    @property
    def block_o(self) -> str:
        """The width of a tile with all output channels, whatever their number; empty where none is needed."""
        return Host(self.form.graph, self.form.group).local("block_o") if self.stages else ""

    def preparations(self) -> list[str]:
        width = f"max(16, triton.next_power_of_2({self.form.outputs}))"
        return [*([f"{self.block_o} = {width}"] if self.stages else []), *self.allocations()]

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
        for node in self.stages:
            x = reader.read(str(node.inputs[0]), self.places[str(node.inputs[0])])
            self._hold(reader, node.output, _staged(reader.body, node, x, self.form.outputs.code()))

    def _hold(self, reader: Reader, name: str, text: str) -> None:
        def held(index: Index) -> str:
            if index != self.places[name]:
                raise Unfit(f"{name} is needed at another place than it is computed at")
            return text

        reader.bound[name] = held

    def store(self, kernel: Kernel, reader: Reader, mask: str) -> None:
        texts = [(value, reader.read(value.name, self.places[value.name])) for value in self.writes]
        kernel.add_pointers(reader.pointers)
        for value, text in texts:
            pointer = kernel.body.name(f"{value.name}_ptr")
            kernel.operands[pointer] = value.name
            at = self._address(value)
            whole = any("c" in place.symbols() for place in self.places[value.name])
            shown = mask if whole or not self.stages else "inside"
            kernel.body.line(f"tl.store({pointer} + {at}, {stored(text, value.dtype)}, mask={shown})")

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


def finished(form: Form, kernels: Mapping[str, str], call: Sequence[str], knobs: Knobs, summary: str) -> Part:
    """The part: kernels, and one function for the host, which ``forward`` calls in a line."""
    host = Host(form.graph, form.group).function(call, f"{summary[0].upper()}{summary[1:]}.")
    return Part(
        kernels=kernels,
        call=(host.call,),
        constants=knobs.constants(),
        helpers={host.name: host.text},
        imports=imports_of("\n".join(kernels.values())),
        sizes=host.sizes,
        summary=summary,
    )


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


REDUCTIONS = {
    "sum": "0.0", "mean": "0.0", "max": "-float('inf')", "min": "float('inf')", "logsumexp": "-float('inf')",
}  # fmt: skip
"""What can be computed over channels, and what stands for channels that are not there."""
MOST_CHANNELS = 256
"""Output channels that one tile holds."""


def _staged(body: Body, node: Node, x: str, count: str) -> str:
    """Lines for a reduction or softmax over the channels of a tile, which lie along its first axis."""
    if node.op == "reduce" and node["fn"] not in ("max", "logsumexp"):
        fn = node["fn"]
        text = f"tl.{'min' if fn == 'min' else 'sum'}(tl.where(kept, {x}, {REDUCTIONS[fn]}), axis=0)[None, :]"
        return body.let(fn, f"{text} / ({count})" if fn == "mean" else text)
    x = body.let("seen", f"tl.where(kept, {x}, -float('inf'))")
    top = body.let("highest", f"tl.max({x}, axis=0)[None, :]")
    if node.op == "reduce" and node["fn"] == "max":
        return top
    if node.op == "reduce":
        top = body.let("finite", f"tl.where(tl.abs({top}) == float('inf'), 0.0, {top})")
    powers = body.let("powers", f"tl.exp({x} - {top})")
    total = body.let("total", f"tl.sum({powers}, axis=0)[None, :]")
    if node.op == "reduce":
        return body.let("logsumexp", f"{top} + tl.log({total})")
    if node.get("log"):
        return body.let("logs", f"{x} - {top} - tl.log({total})")
    return body.let("shares", f"{powers} / {total}")


def _wrapped(text: str) -> str:
    return f"({text})" if " " in text else text
