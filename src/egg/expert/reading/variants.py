"""The same program at other sizes: captures that agree on everything but numbers.

The integers of a task's source are its knobs (:mod:`egg.evaluator.task.knobs`). Each is moved in some way
that the program allows (:mod:`egg.expert.reading.turning`); one that cannot move, or that changes what the
program does, stays as it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from egg.core.errors import MachineError, TaskError
from egg.core.source import Task
from egg.evaluator.task.dataless import calls_without_data
from egg.evaluator.task.knobs import Knob, find_knobs, rewritten
from egg.evaluator.task.program import Program
from egg.expert.graph import Graph, Node
from egg.expert.reading.points import Capture, Capturing, Changes, Variant
from egg.expert.reading.turning import FREE, WAYS, Move, Sizes, alone, jointly, moved, odd

SMALLEST = 8
"""Integers below this are kernels, strides, heads and depths, unless they are a batch."""
VARIANTS = 3
TRACES, RUNS, REHEARSALS = 9_000, 60_000, 6_000
"""Nodes that may be traced, and run without being traced, in search of sizes. A count and no clock, so that a
task is captured alike on every machine; each program has a few tries whatever its length."""
LARGE = 300
"""Programs with more nodes are captured at one size less."""

LAYERS = frozenset(
    ["linear", "bilinear", "embedding", "embedding_bag", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
     "conv_transpose2d", "conv_transpose3d", "batch_norm", "layer_norm", "group_norm", "instance_norm",
     "rms_norm", "scaled_dot_product_attention"]
)  # fmt: skip
"""Calls of which each is a node of its own, by the names of their functions."""

SIZED = frozenset(
    [
        "starts",
        "before",
        "range",
        "scalars",
        "fill",
        "diagonal",
        "arguments",
        "keywords",
        "value",
        "scale",
        "groups",
        "rounds",
    ]
)
"""Attributes that may hold numbers which follow from sizes; all others belong to the structure."""


Check = Callable[[Sizes], bool]


@dataclass
class Variants:
    """Captures of one task, each made once."""

    task: Task
    capture: Capturing
    knobs: list[Knob] = field(default_factory=list)
    _made: dict[Sizes, Capture | None] = field(default_factory=dict)
    _changed: dict[Changes, Variant | None] = field(default_factory=dict)
    _running: dict[Sizes, Counter[str] | None] = field(default_factory=dict)
    """The layers that a forward calls, and how often; ``None`` where it does not work."""
    _traces: int = 0
    _runs_left: int = 0
    _rehearsals: int = 0

    def __post_init__(self) -> None:
        self.knobs = find_knobs(self.task.source)

    @property
    def original(self) -> Sizes:
        return tuple(knob.value for knob in self.knobs)

    def base(self) -> Variant:
        """The program's own size; this one must work."""
        capture = self.capture(self.task, Changes())
        self._made[self.original] = capture
        length = max(len(capture.graph.nodes), 1)
        self._traces, self._runs_left = max(8, TRACES // length), max(24, RUNS // length)
        self._rehearsals = max(24, REHEARSALS // length)
        return Variant(self.original, capture)

    @property
    def turnable(self) -> tuple[int, ...]:
        """Places of the knobs that are sizes."""
        return tuple(i for i, knob in enumerate(self.knobs) if knob.value >= SMALLEST or knob.batch)

    def found(self, turned: Sequence[int], base: Variant) -> tuple[list[Variant], tuple[int, ...]]:
        """Captures with as many of ``turned`` moved as the program allows, and those that are.

        Whether sizes fit together, and leave the program its layers, is asked of a plain forward, which is
        much cheaper than a trace; whether the program still does the same only a trace shows, and is asked
        knob by knob where it does not: at one size each, and at all of them where some size turned out to
        change it.
        """
        count = VARIANTS if len(base.graph.nodes) <= LARGE else VARIANTS - 1
        checks: tuple[tuple[Check, int], ...] = (
            (self._runs_alike, count),
            (lambda sizes: self.at(sizes, base) is not None, 1),
            (lambda sizes: self._runs(sizes) and not self._changes(sizes, base), count),
        )
        found: list[Variant | None] = []
        manner: dict[int, Move] = {}
        for place, (check, tries) in enumerate(checks):
            manner = self._manner(turned, tries, check)
            if not manner:
                return [], ()
            self._traces = max(self._traces, count)
            found = [self.at(moved(self.knobs, manner, variant), base) for variant in range(count)]
            changing = any(self._changes(moved(self.knobs, manner, v), base) for v in range(count))
            if all(found) or (place > 0 and not changing):
                break
        return [variant for variant in found if variant is not None], tuple(manner)

    @property
    def rehearsals(self) -> int:
        """Forwards without data that looking for single dimensions may take."""
        return self._rehearsals

    def changed(self, changes: Changes, base: Variant) -> Variant | None:
        """The program at its own integers with ``changes``; ``None`` where it does something else then."""
        if changes not in self._changed:
            self._changed[changes] = None
            with contextlib.suppress(TaskError, MachineError, AssertionError):
                capture = self.capture(self.task, changes)
                if same_structure(capture.graph, base.graph):
                    self._changed[changes] = Variant(self.original, capture, changes)
        return self._changed[changes]

    def _manner(self, turned: Sequence[int], count: int, check: Check) -> dict[int, Move]:
        """How each knob may move: all at once, else one by one, else together where one alone cannot."""

        def fits(trial: dict[int, Move]) -> bool:
            return all(check(moved(self.knobs, trial, variant)) for variant in range(count))

        manner = dict.fromkeys(turned, Move(odd))
        if fits(manner):
            return manner
        manner = {}

        def add(moves: list[dict[int, Move]]) -> None:
            """The first that goes with those that were found before."""
            manner.update(next((move for move in moves if fits(manner | move)), {}))

        for index in turned:
            add(alone(index, FREE))
        by_value: dict[int, list[int]] = {}
        for index in turned:
            by_value.setdefault(self.knobs[index].value, []).append(index)
        for group in by_value.values():
            stuck = [index for index in group if index not in manner]
            add(jointly(stuck) if len(stuck) > 1 else [])
        for index in turned:
            add(alone(index, WAYS[len(FREE) :]) if index not in manner else [])
        stuck = [index for index in turned if index not in manner]
        add(jointly(stuck) if len(stuck) > 1 else [])
        return manner

    def _task_at(self, sizes: Sizes) -> Task:
        changed = [(k, v) for k, v in zip(self.knobs, sizes, strict=True) if v != k.value]
        source = rewritten(self.task.source, changed)
        return Task(self.task.name, source, self.task.level, self.task.problem_id)

    def _runs(self, sizes: Sizes) -> bool:
        if sizes not in self._running:
            if self._runs_left <= 0:
                return False
            self._runs_left -= 1
            self._running[sizes] = self._layers(self._task_at(sizes))
        return self._running[sizes] is not None

    def _layers(self, task: Task) -> Counter[str] | None:
        try:
            with Program.load(task) as program:
                names = (call.partition(" ")[0] for call in calls_without_data(program))
                return Counter(name for name in names if name in LAYERS)
        except (TaskError, MachineError):
            return None

    def _runs_alike(self, sizes: Sizes) -> bool:
        return self._runs(sizes) and not self._has_other_layers(sizes)

    def _has_other_layers(self, sizes: Sizes) -> bool:
        """Whether a forward calls more or fewer layers there: then it is another program, and need not be
        traced to be known as one. That takes many times as long, and a count of tables or of layers among
        the integers is tried in many ways."""
        if self.original not in self._running:
            self._running[self.original] = self._layers(self.task)
        own, other = self._running[self.original], self._running.get(sizes)
        return own is not None and other is not None and own != other

    def _changes(self, sizes: Sizes, base: Variant) -> bool:
        """Whether the program is known to do something else at these sizes."""
        self.at(sizes, base)
        return sizes in self._made and self._made[sizes] is None

    def at(self, sizes: Sizes, base: Variant) -> Variant | None:
        """The program at other sizes; ``None`` where it does not run, or does something else there."""
        if sizes not in self._made:
            if self._traces <= 0 or not self._runs(sizes):
                return None
            if self._has_other_layers(sizes):
                self._made[sizes] = None
                return None
            self._traces -= 1
            try:
                capture = self.capture(self._task_at(sizes), Changes())
                self._made[sizes] = capture if same_structure(capture.graph, base.graph) else None
            except (TaskError, MachineError, AssertionError):
                self._made[sizes] = None
        capture = self._made[sizes]
        return None if capture is None or sizes == base.sizes else Variant(sizes, capture)


def same_structure(a: Graph, b: Graph) -> bool:
    """The same nodes on the same values, whatever their sizes."""
    if len(a.nodes) != len(b.nodes) or a.values.keys() != b.values.keys():
        return False
    if (a.results, a.form, a.places) != (b.results, b.form, b.places):
        return False
    for name, value in a.values.items():
        other = b.values[name]
        if (value.rank, value.dtype, value.origin, value.path) != (
            other.rank, other.dtype, other.origin, other.path
        ):  # fmt: skip
            return False
    return all(_alike(x, y) for x, y in zip(a.nodes, b.nodes, strict=True))


def _alike(a: Node, b: Node) -> bool:
    if (a.op, a.inputs, a.outputs, a.attributes.keys()) != (b.op, b.inputs, b.outputs, b.attributes.keys()):
        return False
    return all(b.attributes[key] == value for key, value in a.attributes.items() if key not in SIZED)
