"""The kernels of a recurrent layer as text: the input's share of all steps, and the walk through time.

``project`` multiplies every step's input with the input weights: that half of the work has no chain through
time, so it is one product. The walk is what is left. A program owns some hidden units of one chain (a layer,
or a direction of one) for some rows of the batch: it holds their weights on chip, and in each step reads the
whole previous state, computes its own units of the next one, and stores them.

Products keep fp32's accuracy on 16-bit tensor cores: operands are multiplied by powers of two, which is
exact, and become two fp16 numbers each; three of the four products are added up. A unit's weights are scaled
by their largest; a state by the largest it can ever become, one or what it began with, as gates and tanh
never give more. (Only relu has no such bound; there each step looks for its largest.) The summed dimension is
divided among the warps and added up once, since a few rows and a few units give one warp enough to do.

The gates of a unit are neighbouring columns of one product: they are added up over the warps together, and a
program may have as few as four units. A GRU's three gates take four columns, the last one of zeros. Seen on
an H200 with 256 hidden units in two directions: 3 us a step with four units to a program, where a product
for each gate of sixteen units takes 11 us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from egg.expert.emit.kernel import DeviceFunction
from egg.expert.emit.language import Argument, docstring
from egg.expert.emit.triton.language import TRITON
from egg.expert.patterns.convolution.triton.scaling import POWER, SCALE
from egg.expert.patterns.recurrent.triton.functions import (
    ADD,
    HALVES,
    LARGEST,
    PROJECT,
    SIGMOID,
    SIZE,
    TANH,
    TILE,
    WAIT,
)  # fmt: skip

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn_tanh": "h", "rnn_relu": "h"}
"""Letters of a cell's gates in PyTorch's order."""
COLUMNS = {"lstm": 4, "gru": 4, "rnn_tanh": 1, "rnn_relu": 1}
"""Of the product, for each hidden unit."""
SIZES = ("steps", "batch", "hidden", "step_rows", "batch_rows")
CONSTANTS = ("ROWS", "UNITS", "DEPTH", "PARTS", "EXACT")
"""Arguments of the walk behind its pointers and steps."""


def project_launch(grid: str, given: Sequence[str], warps: str) -> list[str]:
    """Of ``project_input``, with what the host passes for its arguments in order."""
    names = ("x_ptr", "w_ptr", "b_ptr", "gates_ptr", "rows", "columns", "depth")
    known = ("HAS_BIAS", "BLOCK_M", "BLOCK_N", "BLOCK_K")
    plain = [Argument(name, text) for name, text in zip(names, given[:7], strict=True)]
    named = [Argument(name, text, True, True) for name, text in zip(known, given[7:], strict=True)]
    return TRITON.launch(PROJECT.name, grid, [*plain, *named], {"num_warps": warps})


@dataclass(frozen=True)
class Walk:
    """Which walk through time is to be written."""

    name: str
    cell: str
    bias: bool
    stacked: bool
    """Chains are layers, each one step behind the one below; otherwise they are directions of one layer."""
    backward: bool
    """The second chain goes from the last step to the first."""
    last_state: bool
    """Whether the state behind the last step is read."""
    mode: str
    """``steps``: a launch is one step, so launches order them. ``alone``: a program has all units of its
    rows, so no program waits for another. ``cooperative``: programs wait for each other through counters."""

    @property
    def together(self) -> bool:
        return self.mode == "cooperative"

    @property
    def gates(self) -> str:
        return GATES[self.cell]

    @property
    def gated(self) -> bool:
        return COLUMNS[self.cell] > 1

    @property
    def operands(self) -> tuple[str, ...]:
        """Pointers in order."""
        found = ["gates", "w_hh"]
        found += ["w_ih"] if self.stacked else []
        found += ["b_hh"] if self.bias else []
        found += ["b_ih"] if self.bias and self.stacked else []
        found += ["h_first", "y"]
        found += ["c"] if self.cell == "lstm" else []
        found += ["h_last"] if self.last_state else []
        found += ["published"] if self.together else []
        return tuple(found)

    def functions(self) -> list[DeviceFunction]:
        """All that the walk calls, and the walk."""
        needed = [SCALE, POWER, TILE, LARGEST, SIZE, HALVES, ADD]
        needed += [SIGMOID] if self.cell in ("lstm", "gru") else []
        needed += [TANH] if self.cell != "rnn_relu" else []
        needed += [WAIT] if self.together else []
        return [*needed, DeviceFunction(self.name, self._text())]

    def _text(self) -> str:
        lines = [
            *(f"    {line}" for line in (*self._place(), *self._weights(), *self._start())),
            "    for t in range(start, end):",
            *(f"        {line}" for line in (*self._sums(), *self._cell(), *self._publish())),
            *(f"    {line}" for line in self._end()),
        ]
        return TRITON.definition(self.name, self._arguments({}), self._doc(), lines)

    def launch(self, grid: str, given: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
        """With what the host passes, by the names of pointers, steps, sizes and constants."""
        return TRITON.launch(self.name, grid, self._arguments(given), options)

    def _arguments(self, given: Mapping[str, str]) -> list[Argument]:
        return [
            *(Argument(f"{name}_ptr", given.get(name, "")) for name in self.operands),
            *(Argument(name, given.get(name, ""), varies=True) for name in ("first", "last")),
            *(Argument(name, given.get(name, "")) for name in SIZES),
            *(Argument(name, given.get(name, ""), known=True, by_name=True) for name in CONSTANTS),
        ]

    # -- before the first step -------------------------------------------------------------------------

    def _doc(self) -> list[str]:
        text = f"Steps first to last of a chain of {self.cell.split('_')[0]} cells: UNITS units of ROWS rows."
        if self.stacked:
            text += " A layer is one step behind the layer below."
        if self.together:
            text += " A step begins when all programs of the one before have counted themselves."
        return docstring(text)

    def _place(self) -> list[str]:
        count = len(self.gates)
        lines = [
            "groups, tiles = tl.cdiv(hidden, UNITS), tl.cdiv(batch, ROWS)",
            "pid = tl.program_id(0)",
            "chain, tile = pid // (groups * tiles), pid // groups % tiles",
            "u = pid % groups * UNITS + tl.arange(0, UNITS)",
            "b = tile * ROWS + tl.arange(0, ROWS)",
            "span: tl.constexpr = DEPTH // PARTS",
            "k = tl.arange(0, PARTS)[:, None] * span + tl.arange(0, span)[None, :]",
            "own = (b < batch)[:, None] & (u < hidden)[None, :]",
            "whole = (b < batch)[None, :, None] & (k < hidden)[:, None, :]",
            *self._columns(),
            "given = (b < batch)[:, None] & there[None, :]",
        ]
        if self.stacked:
            lines += [
                "start, end = tl.maximum(first - chain, 0), tl.minimum(last - chain, steps)",
                "width = hidden",
                "y_ptr += chain * steps * batch * hidden",
                "below_ptr = y_ptr - steps * batch * hidden",
                "fed = chain > 0",
                f"w_ih_ptr += tl.maximum(chain - 1, 0) * {count} * hidden * hidden",
            ]
        else:
            lines += [
                "start, end = first, last",
                f"width = {'2 * hidden' if self.backward else 'hidden'}",
                "y_ptr += chain * hidden",
                f"gates_ptr += chain * steps * batch * {count} * hidden",
            ]
        lines += [
            f"w_hh_ptr += chain * {count} * hidden * hidden",
            "h_at = (chain * batch + b)[:, None] * hidden + u[None, :]",
            "h_whole = h_first_ptr + (chain * batch + b)[None, :, None] * hidden + k[:, None, :]",
        ]
        return lines

    def _columns(self) -> list[str]:
        """Which row of the weights each column of the product is: gates of a unit side by side."""
        if not self.gated:
            return ["place, there = u, u < hidden"]
        lines = [
            "column = tl.arange(0, 4 * UNITS)",
            "gate, unit = column % 4, pid % groups * UNITS + column // 4",
            "place = gate * hidden + unit",
        ]
        spare = "" if len(self.gates) == COLUMNS[self.cell] else f" & (gate < {len(self.gates)})"
        return [*lines, f"there = (unit < hidden){spare}" if spare else "there = unit < hidden"]

    def _weights(self) -> list[str]:
        lines = ["w = weight_tile(w_hh_ptr, place, there, k, hidden, True)"]
        top = "largest_weight(w)"
        if self.stacked:
            lines.append("v = weight_tile(w_ih_ptr, place, there, k, hidden, fed)")
            top = f"tl.maximum({top}, largest_weight(v))"
        lines += [
            f"e_w = scale_exponent({top})",
            "w_high, w_low = halves(w * power_of_two(141 - e_w)[None, None, :])",
        ]
        if self.stacked:
            lines.append("v_high, v_low = halves(v * power_of_two(141 - e_w)[None, None, :])")
        lines.append("back = power_of_two(e_w - 141)[None, :]")
        return [*lines, *self._bias()] if self.bias else lines

    def _bias(self) -> list[str]:
        """What is added in every step; where a GRU's reset gate multiplies, its own share stays apart."""
        count = len(self.gates)
        own = f"b_hh_ptr + chain * {count} * hidden + place"
        lines = [f"bias = tl.load({own}, mask=there, other=0.0)[None, :]"]
        if self.stacked:
            below = f"b_ih_ptr + tl.maximum(chain - 1, 0) * {count} * hidden + place"
            loaded = f"tl.load({below}, mask=there & fed, other=0.0)[None, :]"
            lines.append(f"input_bias = {loaded}" if self.cell == "gru" else f"bias += {loaded}")
        return lines

    def _start(self) -> list[str]:
        lines: list[str] = []
        if self.cell != "rnn_relu":
            lines.append(
                "bound = tl.maximum(tl.max(finite_size(tl.load(h_whole, mask=whole, other=0.0)).reshape("
                "PARTS * ROWS * span), axis=0), 1.0)"
            )
            if self.stacked:
                lines += [
                    "under = tl.load(h_whole - batch * hidden, mask=whole & fed, other=0.0)",
                    "under = finite_size(under).reshape(PARTS * ROWS * span)",
                    "bound = tl.maximum(bound, tl.max(under, axis=0))",
                ]
            lines += ["e_h = scale_exponent(bound)", "to_half = power_of_two(141 - e_h)"]
            lines.append("from_half = power_of_two(e_h - 141)")
        lines.append("active = own & (start < end)")
        if self.cell == "lstm":
            lines.append("c = tl.load(c_ptr + h_at, mask=active, other=0.0)")
        if self.cell == "gru":
            before = self._row("start - 1")
            lines += [
                "h = tl.load(h_first_ptr + h_at, mask=active & (start == 0), other=0.0)",
                f"row = {before}",
                "h_before = y_ptr + row[:, None] * width + u[None, :]",
                "h += tl.load(h_before, mask=active & (start > 0), other=0.0)",
            ]
        elif self.last_state:
            lines.append("h = tl.zeros((ROWS, UNITS), tl.float32)")
        return lines

    def _row(self, step: str) -> str:
        """Where rows of a step lie; the chain backwards counts from the end."""
        place = f"({step})" if " " in step else step
        if self.backward:
            place = f"tl.where(chain == 0, {step}, steps - 1 - {place})"
        return f"b * batch_rows + {place} * step_rows"

    # -- one step --------------------------------------------------------------------------------------

    def _sums(self) -> list[str]:
        lines = [f"row = {self._row('t')}"]
        given = "given & (chain == 0)" if self.stacked else "given"
        rows = f"row[:, None] * ({len(self.gates)} * hidden)" if self.gated else "row[:, None] * hidden"
        lines.append(f"x = tl.load(gates_ptr + {rows} + place[None, :], mask={given}, other=0.0)")
        width = "4 * UNITS" if self.gated else "UNITS"
        lines.append(f"none = tl.zeros((PARTS, ROWS, {width}), tl.float32)")
        if self.stacked:
            if self.together:
                lines += [
                    "if chain > 0:",
                    "    wait_for(published_ptr + ((chain - 1) * tiles + tile) * steps + t, groups)",
                ]
            lines += [
                "below = tl.load(below_ptr + row[None, :, None] * width + k[:, None, :], mask=whole & fed, "
                'other=0.0, cache_modifier=".cg")',
            ]
        if self.together:
            lines += [
                "if t > 0:",
                "    wait_for(published_ptr + (chain * tiles + tile) * steps + t - 1, groups)",
            ]
        before = self._row("t - 1")
        lines += [
            f"before = {before}",
            "state = tl.load(y_ptr + before[None, :, None] * width + k[:, None, :], mask=whole & (t > 0), "
            'other=0.0, cache_modifier=".cg")',
            "state += tl.load(h_whole, mask=whole & (t == 0), other=0.0)",
        ]
        if self.cell == "rnn_relu":
            lines += self._relu_scale()
        if self.stacked:
            lines.append("below_high, below_low = halves(below * to_half)")
        lines.append("state_high, state_low = halves(state * to_half)")
        return [*lines, *self._products()]

    def _relu_scale(self) -> list[str]:
        lines = ["bound = tl.max(finite_size(state).reshape(PARTS * ROWS * span), axis=0)"]
        if self.stacked:
            lines.append(
                "bound = tl.maximum(bound, tl.max(finite_size(below).reshape(PARTS * ROWS * span), axis=0))"
            )
        return [
            *lines,
            "e_h = scale_exponent(bound)",
            "to_half, from_half = power_of_two(141 - e_h), power_of_two(e_h - 141)",
        ]

    def _products(self) -> list[str]:
        """The inputs' and the state's share of all gates; a GRU's stay apart, as its reset gate multiplies
        one of them."""
        lines: list[str] = []
        sums, apart = "none", self.cell == "gru"
        if self.stacked:
            lines.append("sums = add_product(below_high, below_low, v_high, v_low, none, EXACT)")
            sums = "sums"
            if apart:
                shift = " + input_bias" if self.bias else ""
                lines.append(f"x += tl.sum(sums, axis=0) * back * from_half{shift}")
                sums = "none"
        lines.append(f"sums = add_product(state_high, state_low, w_high, w_low, {sums}, EXACT)")
        total = f"tl.sum(sums, axis=0) * back * from_half{' + bias' if self.bias else ''}"
        return [*lines, f"total = {total}" if apart else f"total = x + {total}"]

    def _cell(self) -> list[str]:
        """The next state of the own units."""
        match self.cell:
            case "lstm":
                return [
                    *_taken_apart("total", "i", "f", "g", "o"),
                    "c = cell_sigmoid(f) * c + cell_sigmoid(i) * cell_tanh(g)",
                    "h = cell_sigmoid(o) * cell_tanh(c)",
                ]
            case "gru":
                return [
                    *_taken_apart("total", "r", "z", "n", "spare"),
                    *_taken_apart("x", "x_r", "x_z", "x_n", "spare"),
                    "n = cell_tanh(x_n + cell_sigmoid(x_r + r) * n)",
                    "h = n + cell_sigmoid(x_z + z) * (h - n)",
                ]
            case "rnn_tanh":
                return ["h = cell_tanh(total)"]
        return ["h = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)"]

    def _publish(self) -> list[str]:
        lines = ["tl.store(y_ptr + row[:, None] * width + u[None, :], h, mask=own)"]
        if self.mode != "steps":
            lines.append("tl.debug_barrier()")
        if self.together:
            lines += [
                'tl.atomic_add(published_ptr + (chain * tiles + tile) * steps + t, 1, sem="release")',
            ]
        return lines

    def _end(self) -> list[str]:
        lines = ["tl.store(c_ptr + h_at, c, mask=active)"] if self.cell == "lstm" else []
        return [*lines, "tl.store(h_last_ptr + h_at, h, mask=active)"] if self.last_state else lines


def _taken_apart(columns: str, first: str, second: str, third: str, fourth: str) -> list[str]:
    """The gates of each unit, which are neighbouring columns."""
    return [
        f"even, odd = tl.split({columns}.reshape(ROWS, UNITS, 2, 2))",
        f"{first}, {third} = tl.split(even)",
        f"{second}, {fourth} = tl.split(odd)",
    ]
