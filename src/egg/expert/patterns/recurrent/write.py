"""Recurrent layers: the input's share as products, then a walk through time in as few steps as can be.

Eager PyTorch runs steps times layers small kernels that wait for each other, so launches and latency are what
it costs. Three ways to walk, named by the setting ``mode``:

``alone``
    One program has all hidden units of its rows of the batch, with their weights on chip, and walks through
    all steps by itself. Right for small hidden sizes, and no program waits for another.
``steps``
    Hidden units are divided among programs, and each step is a launch. Layers of one direction run side by
    side, each one step behind the one below: steps + layers - 1 launches instead of their product.
``cooperative``
    The same kernel with all steps in one launch: programs count themselves when they have published their
    units, and wait until all have. That takes a device that runs all of them at the same time: ``forward``
    asks it for its multiprocessors, and where they are too few (or in the interpreter, which runs one program
    after another) each step is a launch again, and the counters are there before any program reads them.
    The first choice where ``alone`` is too large and all programs fit; a third faster than replayed launches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from egg.expert.emit.code import Code
from egg.expert.emit.device import MULTIPROCESSORS, TEXT, multiprocessors
from egg.expert.emit.kernel import Knobs
from egg.expert.graph import Graph, Node, Origin, Value
from egg.expert.parts import REACH, Group, Launch, Part, Target, Unfit, Use, spelled, within_reach
from egg.expert.patterns.recurrent.triton.functions import PROJECT
from egg.expert.patterns.recurrent.triton.kernel import COLUMNS, CONSTANTS, GATES, SIZES, Walk, project_launch
from egg.expert.sizes import Size

MODES = ("alone", "steps", "cooperative")
_USES = {"steps": frozenset({Use.STEPPED}), "cooperative": frozenset({Use.COOPERATIVE})}
ON_CHIP = 160 * 1024
"""Bytes of weights that a program can hold in registers and shared memory, with room for the rest."""
PARTS, DEEP = 4, 512
"""Parts of the summed dimension: one per warp, and four warps up to so many hidden units."""
ALONE = 32
"""Hidden units of which one program has all."""
MOST_ROWS = 64
STATE_BYTES, SHARED = 6, 200 * 1024
"""Of shared memory: for each number of a state that passes through it in two halves, and in all."""
NARROWEST = 16
"""Columns and rows of the smallest product."""


def write(graph: Graph, group: Group, target: Target) -> Part:
    """One recurrent node as a few kernels; :class:`Unfit` where its weights do not fit on chip."""
    if len(group.nodes) != 1 or group.nodes[0].op != "recurrent":
        raise Unfit("a recurrent layer takes nothing along")
    return _Layer.of(graph, group, target).part()


@dataclass(frozen=True)
class _Weights:
    """Of one layer and direction; names of values."""

    w_ih: str
    w_hh: str
    b_ih: str | None = None
    b_hh: str | None = None


@dataclass
class _Layer:
    """A recurrent node taken apart, and the lines of ``forward`` in the making."""

    graph: Graph
    group: Group
    node: Node
    target: Target
    weights: tuple[_Weights, ...]
    """By layer, and within it by direction."""
    knobs: Knobs
    code: Code = field(default_factory=Code)

    def __post_init__(self) -> None:
        self.device = f"{spelled(self.graph, self.x.name)}.device"
        self.first = self._held(str(self.node.inputs[1]), "first")

    @classmethod
    def of(cls, graph: Graph, group: Group, target: Target) -> _Layer:
        (node,) = group.nodes
        states = 2 if node["cell"] == "lstm" else 1
        flat = [str(name) for name in node.inputs[1 + states :]]
        each, chains = (4 if node["bias"] else 2), node["layers"] * (2 if node["bidirectional"] else 1)
        if node["cell"] not in GATES or len(flat) != each * chains:
            raise Unfit("a recurrent layer with a projection of its state")
        if None in node.inputs or any(v is not None and v.dtype != "float32" for v in graph.operands(node)):
            raise Unfit("a recurrent layer in other than fp32")
        weights = tuple(_Weights(*flat[at : at + each]) for at in range(0, len(flat), each))
        return cls(graph, group, node, target, weights, Knobs(group.name, target.settings))

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def x(self) -> Value:
        return self.graph.value(str(self.node.inputs[0]))

    @property
    def steps(self) -> Size:
        return self.x.shape[1 if self.node["batch_first"] else 0]

    @property
    def batch(self) -> Size:
        return self.x.shape[0 if self.node["batch_first"] else 1]

    @property
    def hidden(self) -> Size:
        return self.graph.value(self.weights[0].w_hh).shape[1]

    @property
    def gates(self) -> int:
        return len(GATES[self.node["cell"]])

    @property
    def columns(self) -> int:
        return COLUMNS[self.node["cell"]]

    @property
    def parts(self) -> int:
        """Of the summed dimension, and warps."""
        return PARTS if self.depth <= DEEP else 2 * PARTS

    @property
    def directions(self) -> int:
        return 2 if self.node["bidirectional"] else 1

    @property
    def layers(self) -> int:
        return int(self.node["layers"])

    @property
    def depth(self) -> int:
        return max(NARROWEST, _power_above(self.hidden.value))

    def on_chip(self, units: int, stacked: bool) -> bool:
        return self._held_bytes(units, stacked) <= ON_CHIP

    def _held_bytes(self, units: int, stacked: bool) -> int:
        """Of the weights of a program."""
        return 4 * self.columns * self.depth * units * (2 if stacked else 1)

    # -- rules -----------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        chosen = self.target.settings.get("mode")
        if chosen is None:
            if self.depth <= ALONE:
                return "alone"
            side_by_side = self.layers > 1 and self.directions == 1
            side_by_side = side_by_side and self.on_chip(self._units_of(True), True)
            programs, gpu = self._programs(self._shared_rows, side_by_side), self.target.gpu
            return "cooperative" if gpu.vendor == "nvidia" and programs <= gpu.sms else "steps"
        if chosen not in MODES:
            raise Unfit(f"no mode {chosen} of a recurrent layer")
        return str(chosen)

    def programs(self, stacked: bool) -> int:
        """At the program's own size."""
        return self._programs(self.rows, stacked)

    def _programs(self, rows: int, stacked: bool) -> int:
        return self._programs_of(self._units_of(stacked), rows, stacked)

    def _programs_of(self, units: int, rows: int, stacked: bool) -> int:
        groups, tiles = -(-self.hidden.value // units), -(-self.batch.value // rows)
        return groups * tiles * (self.layers if stacked else self.directions)

    @property
    def units(self) -> int:
        return self._units_of(self.stacked)

    def _units_of(self, stacked: bool) -> int:
        """As few as a product takes, while all programs run at the same time: a step has a latency of its
        own, and the more programs share its work the less comes on top."""
        if chosen := self.target.settings.get("UNITS"):
            return int(chosen)
        least = NARROWEST // self.columns
        fitting = (
            units
            for units in (least, 2 * least)
            if self._programs_of(units, self._shared_rows, stacked) <= self.target.gpu.sms
        )
        return next(fitting, NARROWEST)

    @property
    def rows(self) -> int:
        if self.mode == "alone":
            return int(self.target.settings.get("ROWS", NARROWEST))
        return self._shared_rows

    @property
    def _shared_rows(self) -> int:
        """Where hidden units are divided among programs: as many as their states leave room for."""
        chosen = max(NARROWEST, min(MOST_ROWS, _power_above(self.batch.value)))
        inputs = 2 if self.layers > 1 and self.directions == 1 else 1
        while chosen > NARROWEST and chosen * self.depth * STATE_BYTES * inputs > SHARED:
            chosen //= 2
        return int(self.target.settings.get("ROWS", chosen))

    @property
    def stacked(self) -> bool:
        """Layers side by side: of one direction, with the weights of both inputs of a unit on chip."""
        if self.layers == 1 or self.directions == 2 or self.mode == "alone":
            return False
        return self.on_chip(self._units_of(True), True) and (
            self.mode == "steps" or self.programs(True) <= self.target.gpu.sms
        )

    @property
    def exact(self) -> bool:
        grade = str(self.target.settings.get("grade", "fp32"))
        if grade not in ("fp32", "tf32x3", "tf32"):
            raise Unfit(f"no recurrent layer at grade {grade}")
        return grade != "tf32"

    def check(self) -> None:
        units = self.depth if self.mode == "alone" else self.units
        if not self.on_chip(units, False):
            raise Unfit(f"the weights of {self.hidden.value} hidden units do not fit on chip")
        if any(count.value >= REACH for count in self.counts):
            raise Unfit("states beyond the reach of 32-bit offsets")

    @property
    def counts(self) -> tuple[Size, ...]:
        """Elements of the gates of all steps, of the input, and of the states of all layers."""
        rows = self.steps * self.batch
        widths = (self.hidden * self.gates * self.directions, self.x.shape[2], self.hidden * self.layers)
        return tuple(rows * width for width in widths)

    @property
    def waves(self) -> int:
        """Steps of all layers, side by side or one after the other, at the program's own size."""
        return self.steps.value + (self.layers - 1 if self.stacked else 0)

    # -- the part --------------------------------------------------------------------------------------

    def part(self) -> Part:
        self.check()
        walk = Walk(
            f"{self.group.name}_kernel", self.node["cell"], bool(self.node["bias"]), self.stacked,
            self.directions == 2, self._read(1), self.mode,
        )  # fmt: skip
        self._begin()
        if self.stacked:
            self._project(self._held(self.x.name, "x"), 0, self.x.shape[2])
            self._walk(walk, 0, self.layers * self.directions)
            self.code.call.append(f"{self.node.outputs[0]} = {self._local('y')}[{self.layers - 1}]")
        else:
            self._layer_by_layer(walk)
        self.code.define((PROJECT, *walk.functions()))
        if self.mode == "cooperative":
            self.code.helpers[MULTIPROCESSORS] = TEXT
        self.code.uses |= _USES.get(self.mode, frozenset())
        return self.code.part(self.knobs.constants(), self._summary(), counts=within_reach(self.counts))

    def _summary(self) -> str:
        how = {
            "alone": "a program walks through all steps of its rows with the weights on chip",
            "steps": "each step is one launch over all hidden units",
            "cooperative": "all steps are one launch whose programs wait for each other",
        }[self.mode]
        behind = ", layers side by side, each one step behind the one below" if self.stacked else ""
        return f"the input's share of all steps is one product; then {how}{behind}"

    def _local(self, name: str) -> str:
        return f"{self.group.name}_{name}"

    def _read(self, place: int) -> bool:
        """Whether a result is read."""
        name = self.node.outputs[place]
        return name in self.group.writes(self.graph)

    def _contiguous(self, name: str) -> str:
        value, text = self.graph.value(name), spelled(self.graph, name)
        return text if value.contiguous or value.origin is Origin.PARAMETER else f"{text}.contiguous()"

    def _held(self, name: str, local: str) -> str:
        """The name of a contiguous tensor with this value."""
        text = self._contiguous(name)
        if text == spelled(self.graph, name):
            return text
        self.code.call.append(f"{self._local(local)} = {text}")
        return self._local(local)

    def _begin(self) -> None:
        """States, and room for what walks write."""
        kind = f"device={self.device}, dtype=torch.float32"
        add, count = self.code.call.append, self.gates
        if self.node["cell"] == "lstm":
            initial = spelled(self.graph, str(self.node.inputs[2]))
            add(f"{self.node.outputs[2]} = {initial}.clone(memory_format=torch.contiguous_format)")
        if self._read(1):
            add(f"{self.node.outputs[1]} = torch.empty_like({self.first})")
        space = f"{self.x.shape[0]}, {self.x.shape[1]}"
        chains = "2, " if self.directions == 2 else ""
        add(f"{self._local('gates')} = torch.empty(({chains}{space}, {self.hidden * count}), {kind})")
        if self.stacked:
            add(f"{self._local('y')} = torch.empty(({self.layers}, {space}, {self.hidden}), {kind})")
        rows, units = self._rows(), self._units()
        chains_now = self.layers if self.stacked else self.directions
        tiles, groups = f"triton.cdiv({self.batch}, {rows})", f"triton.cdiv({self.hidden}, {units})"
        tiles = f"{chains_now} * {tiles}" if chains_now > 1 else tiles
        add(f"{self._local('programs')} = {tiles}" + ("" if self.mode == "alone" else f" * {groups}"))
        waves = f"{self.steps} + {self.layers - 1}" if self.stacked else self.steps.code()
        add(f"{self._local('waves')} = {waves}")
        if self.mode == "cooperative":
            together = f"{self._local('programs')} <= {multiprocessors(self.device)}"
            add(f"{self._local('stride')} = {self._local('waves')} if {together} else 1")

    def _rows(self) -> str:
        return self.knobs.constant("ROWS", self.rows, (), "rows of the batch per program")

    def _units(self) -> str:
        if self.mode == "alone":
            return self._depth()
        return self.knobs.constant("UNITS", self.units, (), "hidden units per program")

    def _depth(self) -> str:
        least = NARROWEST if self.mode == "alone" else NARROWEST * self.parts
        return f"max({least}, triton.next_power_of_2({self.hidden}))"

    # -- launches --------------------------------------------------------------------------------------

    def _layer_by_layer(self, walk: Walk) -> None:
        source, depth = self._held(self.x.name, "x"), self.x.shape[2]
        space = f"{self.x.shape[0]}, {self.x.shape[1]}"
        for layer in range(self.layers):
            last = layer == self.layers - 1
            made = self.node.outputs[0] if last else self._local(f"y_{layer}")
            shape = f"({space}, {self.hidden * self.directions})"
            self.code.call.append(f"{made} = torch.empty({shape}, device={self.device}, dtype=torch.float32)")
            for way in range(self.directions):
                self._project(source, layer * self.directions + way, depth)
            self._walk(walk, layer, self.directions, made)
            source, depth = made, self.hidden * self.directions

    def _project(self, source: str, chain: int, depth: Size) -> None:
        weights, knobs = self.weights[chain], self.knobs
        tiles = [knobs.constant(f"PROJECT_{name}", size) for name, size in (("M", 64), ("N", 64), ("K", 32))]
        warps = knobs.constant("PROJECT_WARPS", 4)
        rows, columns = f"{self.x.shape[0] * self.x.shape[1]}", self.hidden * self.gates
        gates = self._local("gates") + (f"[{chain % 2}]" if self.directions == 2 else "")
        w = self._contiguous(weights.w_ih)
        b = self._contiguous(weights.b_ih) if weights.b_ih else w
        grid = f"(triton.cdiv({rows}, {tiles[0]}), triton.cdiv({columns}, {tiles[1]}))"
        given = (source, w, b, gates, rows, columns.code(), depth.code(), str(bool(weights.b_ih)), *tiles)
        self.code.launched(Launch(PROJECT.name), project_launch(grid, given, warps))

    def _walk(self, walk: Walk, layer: int, chains: int, made: str = "") -> None:
        """One launch, or one for each step."""
        first = layer * self.directions
        given = self._operands(walk, first, chains, made)
        along = ("1", self.steps.code()) if self.node["batch_first"] else (self.batch.code(), "1")
        sizes = (self.steps.code(), self.batch.code(), self.hidden.code(), *along)
        given |= dict(zip(SIZES, sizes, strict=True))
        parts = (
            "1"
            if self.mode == "alone"
            else self.knobs.constant("PARTS", self.parts, (), "of the summed dimension")
        )
        warps = self.knobs.constant("NUM_WARPS", self.parts if self.mode != "alone" else 4, (4, 8, 16))
        constants = (self._rows(), self._units(), self._depth(), parts, str(self.exact))
        given |= dict(zip(CONSTANTS, constants, strict=True))
        options = {"num_warps": warps, "num_stages": "1"}
        step, waves, stride = self._local("step"), self._local("waves"), self._local("stride")
        grid = f"({self._local('programs')},)"
        match self.mode:
            case "alone":
                head, given["first"], given["last"] = "", "0", waves
            case "steps":
                head = f"for {step} in range({waves}):"
                given["first"], given["last"] = step, f"{step} + 1"
            case _:
                head = f"for {step} in range(0, {waves}, {stride}):"
                given["first"], given["last"] = step, f"{step} + {stride}"
                options["launch_cooperative_grid"] = f"{stride} > 1"
        lines = walk.launch(grid, given, options)
        launch = Launch(walk.name, self.waves if self.mode == "steps" else 1)
        self.code.launched(launch, [head, *(f"    {line}" for line in lines)] if head else lines)

    def _operands(self, walk: Walk, first: int, chains: int, made: str) -> dict[str, str]:
        """What the walk's pointers are: weights of several chains stacked, states of these chains."""
        everything = first == 0 and chains == len(self.weights)
        part = "" if everything else f"[{first}:{first + chains}]"
        own = self.weights[first : first + chains]
        found = {
            "gates": self._local("gates"),
            "w_hh": self._together("w_hh", [w.w_hh for w in own]),
            "h_first": f"{self.first}{part}",
            "y": made or self._local("y"),
            "h_last": f"{self.node.outputs[1]}{part}",
        }
        if walk.stacked:
            found["w_ih"] = self._together("w_ih", [w.w_ih for w in own[1:]])
        if walk.bias:
            found["b_hh"] = self._together("b_hh", [str(w.b_hh) for w in own])
            if walk.stacked:
                found["b_ih"] = self._together("b_ih", [str(w.b_ih) for w in own[1:]])
        if walk.cell == "lstm":
            found["c"] = f"{self.node.outputs[2]}{part}"
        if walk.together:
            found["published"] = self._local("published")
            shape = f"({self._local('programs')}, {self.steps})"
            self.code.call.append(
                f"{found['published']} = torch.zeros({shape}, device={self.device}, dtype=torch.int32)"
            )
        return found

    def _together(self, what: str, names: list[str]) -> str:
        if len(names) == 1:
            return self._contiguous(names[0])
        local = self._local(what)
        self.code.call.append(f"{local} = torch.stack([{', '.join(spelled(self.graph, n) for n in names)}])")
        return local


def _power_above(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
