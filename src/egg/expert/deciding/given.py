"""Improving a kernel file that no recipe describes: the one that a run was given to begin with.

The moves of the team edit recipes, and such a file has none. Two ways are left. In the structure stage the
team writes the program anew, as its own first kernel; the file stays the base unless that one is faster. In
the tuning stages it turns the constants of the file itself: integers at module level that the file's own
table of tunables lists, or whose names say what they are (``BLOCK_M``, ``NUM_WARPS``, ``NUM_STAGES``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from egg.core.bottleneck import MEANINGS, Diagnosed
from egg.core.plan import Plan, Prediction
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Decision, Origin, Step
from egg.expert.deciding.tuning import BELIEVED, LEAST_GAIN, MOST_POINTS, MOST_TOGETHER, NEAR_FLOOR, room
from egg.expert.moves import Open, change_text, moves_in

ANEW = "write the program anew from its graph, as this team's own first kernel"
FILE = "file"
"""Stands for the group in a move on a constant of the file."""
TABLE = "TUNABLES"


@dataclass(frozen=True)
class Knob:
    """Constants whose names end in ``name``: the stage that turns them, and the values worth a try."""

    name: str
    stage: Stage
    category: Category
    least: int
    most: int
    doubled: bool = True
    """Whether the next value is twice as large, or larger by one."""


KNOBS = (
    Knob(r"(NUM_)?WARPS", Stage.MAPPING, Category.WARP_COUNT, 1, 16),
    Knob(r"GROUP(_\w+)?", Stage.MAPPING, Category.PROGRAM_ORDER, 1, 32),
    Knob(r"(BLOCK|TILE)(_?(SIZE|[A-Z]{1,2}|\d))*", Stage.TILING, Category.TILE_SHAPE, 16, 8192),
    Knob(r"(NUM_)?STAGES", Stage.TILING, Category.PIPELINE_DEPTH, 1, 6, doubled=False),
)


def builds_on_given(steps: Iterable[Step]) -> bool:
    """Whether the base descends from the file that the run was given, by the run's steps so far."""
    given = False
    for step in steps:
        if step.decision is not Decision.PROMOTED:
            continue
        if step.plan is None:
            given = any(attempt.origin is Origin.START for attempt in step.attempts)
        elif step.plan.change == ANEW:
            given = False
    return given


def turned(source: str, stage: Stage, diagnosis: Diagnosed | None) -> Iterator[Plan]:
    """Plans that turn constants of a given file in one stage, up to four at a time.

    Where a diagnosis says that the kernels are near what good ones reach, there is nothing to plan.
    """
    lost = room(diagnosis.whole) if diagnosis is not None else None
    if lost is not None and lost < NEAR_FLOOR:
        return
    turns = [turn for turn in _constants(source) if turn[0].stage is stage]
    if not turns:
        return
    against = MEANINGS[diagnosis.whole.limiter] if diagnosis is not None else "nothing is known of its limits"
    words, moves = [], []
    for at, (_, name, now, values) in enumerate(turns[:MOST_TOGETHER]):
        words.append(f"{name} {' or '.join(map(str, values))}, not {now}")
        moves.append(Open(FILE, name, (*values, now) if at == 0 else (now, *values)))
    gain = max(LEAST_GAIN, lost**BELIEVED) if lost is not None else LEAST_GAIN
    prediction = Prediction(gain, Metric.TIME, "other values of the file's constants suit this GPU better")
    yield Plan(turns[0][0].category, against, change_text("; ".join(words), moves), prediction)


def _constants(source: str) -> Iterator[tuple[Knob, str, int, tuple[int, ...]]]:
    """Every constant that can be turned, with its value and the other values to try."""
    declared = _declared(source)
    for name, node in _integers(source):
        knob = next((k for k in KNOBS if re.fullmatch(rf"(\w+_)?{k.name}", name)), None)
        now = node.value
        assert isinstance(now, int)
        if name in declared:
            others = [value for value in declared[name] if value != now]
            knob = knob or Knob(name, Stage.TILING, Category.TILE_SHAPE, 0, 1 << 31)
            nearest = sorted((abs(value - now), value) for value in others)
            values = [value for _, value in nearest[:MOST_POINTS]]
        elif knob is not None and (not knob.doubled or now & (now - 1) == 0):
            ways = (now * 2, now // 2) if knob.doubled else (now + 1, now - 1)
            values = [value for value in ways if knob.least <= value <= knob.most]
        else:
            continue
        if values and knob is not None and now > 0:
            yield knob, name, now, tuple(values)


def _integers(source: str) -> Iterator[tuple[str, ast.Constant]]:
    """Names that a module binds once, at its top level, to an integer literal."""
    tree = ast.parse(source)
    stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(value)) as literal):
                if stored.count(name) == 1 and not isinstance(value, bool):
                    yield name, literal


def _declared(source: str) -> dict[str, tuple[int, ...]]:
    """The integers that the file's own table of tunables allows, by constant."""
    table = _table(source)
    if table is None or not isinstance(table.value, ast.Dict):
        return {}
    found: dict[str, tuple[int, ...]] = {}
    for key, values in zip(table.value.keys, table.value.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(values, ast.Tuple | ast.List):
            literals = [e.value for e in values.elts if isinstance(e, ast.Constant)]
            numbers = tuple(value for value in literals if type(value) is int)
            if isinstance(key.value, str) and len(numbers) == len(values.elts):
                found[key.value] = numbers
    return found


def _table(source: str) -> ast.Assign | None:
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name == TABLE:
                return node
    return None


def opened(source: str, plan: Plan) -> str:
    """The file with the constants of a plan at their first values, and a table that opens the others."""
    moves = [move for move in moves_in(plan.change) if isinstance(move, Open) and move.group == FILE]
    lines = source.split("\n")  # as a tree counts them: splitlines knows more ends of a line
    literals = dict(_integers(source))
    for move in moves:
        literal = literals[move.name]
        line = lines[literal.lineno - 1].encode()  # a tree counts columns in bytes
        changed = line[: literal.col_offset] + str(move.values[0]).encode() + line[literal.end_col_offset :]
        lines[literal.lineno - 1] = changed.decode()
    table = _table(source)
    if table is not None:
        assert table.end_lineno is not None
        lines[table.lineno - 1 : table.end_lineno] = [""] * (table.end_lineno - table.lineno + 1)
    last = max(literals[move.name].lineno for move in moves)
    rows = [f'    "{move.name}": ({", ".join(map(str, move.values))},),' for move in moves]
    lines[last:last] = ["", f"{TABLE} = {{", *rows, "}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"
