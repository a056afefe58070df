"""Tunables read from a kernel file's text and written back into it, and not a byte besides."""

from __future__ import annotations

import ast
import keyword
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.evaluation import Accepted, Compiled, Gate
from egg.core.policy import LibraryCalls
from egg.core.source import Candidate
from egg.core.space import Space, Tunable
from egg.engine.tunables import BadTunables, read_space, with_point
from egg.evaluator import static

TASK = """
import torch
from torch import nn

rows, columns = 512, 768

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""

KERNEL = '''
"""Scale and shift, a block per program; the block and the warps are left to a sweep."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK, NUM_WARPS = 1024, 4
UNROLL: tl.constexpr = tl.constexpr(2)
TUNABLES = {"BLOCK": (512, 1024, 2048), "NUM_WARPS": (4, 8), "UNROLL": (1, 2)}


@triton.jit
def scale_shift(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK * UNROLL
    for step in tl.static_range(UNROLL):
        at = start + step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        tl.store(y_ptr + at, x * 2.0 + 1.0, mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        programs = triton.cdiv(x.numel(), BLOCK * UNROLL.value)
        scale_shift[(programs,)](x, y, x.numel(), BLOCK=BLOCK, num_warps=NUM_WARPS)
        return y
'''


def test_a_kernel_file_with_a_table() -> None:
    assert read_space(KERNEL) == Space(
        (
            Tunable("BLOCK", 1024, (512, 1024, 2048)),
            Tunable("NUM_WARPS", 4, (4, 8)),
            Tunable("UNROLL", 2, (1, 2)),
        )
    )


@pytest.mark.parametrize("calls", list(LibraryCalls))
def test_the_static_gate_takes_every_point_of_it(calls: LibraryCalls) -> None:
    space = read_space(KERNEL)
    assert space is not None
    for point in space.points():
        assert static.check(Candidate(with_point(KERNEL, point)), calls) is None


def test_the_judge_accepts_it_at_another_point(judged) -> None:
    changed = with_point(KERNEL, {"BLOCK": 512, "NUM_WARPS": 8, "UNROLL": 1})
    verdict = judged(TASK, changed, skip=(Gate.REGRADE,)).verdict
    assert isinstance(verdict, Accepted), verdict
    assert isinstance(verdict.performance, Compiled)
    (kernel,) = verdict.performance.kernels
    assert kernel.num_warps == 8
    assert kernel.grid[0] == 768


@pytest.mark.parametrize(
    "source",
    [
        "",
        "BLOCK = 4",
        "TUNABLES = {}",
        "def f():\n    TUNABLES = {'A': (1,)}",
        "class C:\n    TUNABLES = {'A': (1,)}",
        "f(TUNABLES={'A': 1})",
        "# TUNABLES = {'A': (1,)}\n",
        "this is not python",
        "A = 1\x00\nTUNABLES = {'A': (1,)}",
        "A = '\ud800'\nTUNABLES = {'A': ('x',)}",
        "(" * 5000,
    ],
)
def test_files_without_tunables(source: str) -> None:
    assert read_space(source) is None
    with pytest.raises(ValueError, match="no tunables"):
        with_point(source, {})


BAD = {
    "A = 1\nTUNABLES = dict(A=(1, 2))": (2, "literal dict"),
    "A = 1\nTUNABLES = [('A', (1, 2))]": (2, "literal dict"),
    "A = 1\nB = TUNABLES = {'A': (1, 2)}": (2, "literal dict"),
    "A = 1\nTUNABLES: dict": (2, "literal dict"),
    "A = 1\nif A:\n    TUNABLES = {'A': (1, 2)}": (3, "literal dict"),
    "from x import TUNABLES": (1, "literal dict"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nTUNABLES = {'A': (1, 3)}": (3, "more than once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nTUNABLES |= {}": (3, "more than once"),
    "A = 1\nTUNABLES = {A: (1, 2)}": (2, "in quotes"),
    "A = 1\nTUNABLES = {**{'A': (1, 2)}}": (2, "in quotes"),
    "A = 1\nTUNABLES = {1: (1, 2)}": (2, "in quotes"),
    "TUNABLES = {'A': (1, 2)}": (1, "not a constant"),
    "TUNABLES = {\n 'TUNABLES': (1, 2)}": (1, "literal"),
    "def f():\n    A = 1\nTUNABLES = {'A': (1, 2)}": (3, "not a constant"),
    "A = 1 + 1\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A = 1.0\nTUNABLES = {'A': (1.0, 2.0)}": (1, "literal"),
    "A = None\nTUNABLES = {'A': (None, 2)}": (1, "literal"),
    "A = f'x'\nTUNABLES = {'A': ('x', 'y')}": (1, "literal"),
    "A = tl.constexpr(1, 2)\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A = tl.constexpr(x)\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A = 1\nTUNABLES = {'A': (1, tl.constexpr(2))}": (2, "literal"),
    "A = f(1)\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A = B = 1\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A, B = pair\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A, *B = 1, 2\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A, B = 1, *x\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A: int\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "if True:\n    A = 1\nTUNABLES = {'A': (1, 2)}": (2, "literal"),
    "def A(): pass\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "import A\nTUNABLES = {'A': (1, 2)}": (1, "literal"),
    "A = 1\nA = 2\nTUNABLES = {'A': (1, 2)}": (2, "exactly once"),
    "A, A = 1, 2\nTUNABLES = {'A': (1, 2)}": (1, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nA += 1": (3, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\ndel A": (3, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nfor A in x: pass": (3, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nwith x as A: pass": (3, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nif x:\n    A = 2": (4, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\n[A := y for y in x]": (3, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nfrom x import y as A": (3, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\ntry: pass\nexcept E as A: pass": (4, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nmatch x:\n    case [*A]: pass": (4, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\nmatch x:\n    case {**A}: pass": (4, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2)}\ndef f():\n    global A\n    A = 2": (4, "exactly once"),
    "A = 1\nTUNABLES = {'A': (1, 2), 'A': (1, 3)}": (2, "twice"),
    "A = 1\nTUNABLES = {'A': ()}": (2, "at least one"),
    "A = 1\nTUNABLES = {'A': 1}": (2, "tuple"),
    "A = 1\nTUNABLES = {'A': {1, 2}}": (2, "tuple"),
    "A = 1\nTUNABLES = {'A': range(4)}": (2, "tuple"),
    "A = 1\nTUNABLES = {'A': (1,\n 2 * 3)}": (3, "2 \\* 3"),
    "A = 1\nTUNABLES = {'A': (1, 2, 1)}": (2, "more than once"),
    "A = 1\nTUNABLES = {'A': (1, True)}": (2, "different types"),
    "A = 1\nTUNABLES = {'A': (1, '2')}": (2, "different types"),
    "A = 1\nTUNABLES = {'A': (True, False)}": (2, "different types"),
    "A = True\nTUNABLES = {'A': (1, 0)}": (2, "different types"),
    "A = 3\nTUNABLES = {'A': (1, 2)}": (2, "not among"),
    "NUM_WARPS = 4\nTUNABLES = {'NUM_WARPS': (3, 4)}": (2, "power of two"),
    "dot_num_warps = 4\nTUNABLES = {'dot_num_warps': (4, 64)}": (2, "power of two"),
    "Num_Warps = 0\nTUNABLES = {'Num_Warps': (0, 1)}": (2, "power of two"),
    "NUM_WARPS = '4'\nTUNABLES = {'NUM_WARPS': ('4',)}": (2, "power of two"),
    "NUM_WARPS = True\nTUNABLES = {'NUM_WARPS': (True,)}": (2, "power of two"),
    "NUM_STAGES = 1\nTUNABLES = {'NUM_STAGES': (1, 13)}": (2, "1 to 12"),
    "NUM_STAGES = 0\nTUNABLES = {'NUM_STAGES': (0, 1)}": (2, "1 to 12"),
    f"A = {1 << 64}\nTUNABLES = {{'A': ({1 << 64}, 2)}}": (1, "literal"),
}


@pytest.mark.parametrize("source", BAD)
def test_a_malformed_declaration_is_told_with_its_line(source: str) -> None:
    line, words = BAD[source]
    ast.parse(source)
    with pytest.raises(BadTunables, match=words) as caught:
        read_space(source)
    assert caught.value.line == line
    assert str(caught.value) == f"line {line}: {caught.value.sentence}"


def test_too_many_tunables() -> None:
    names = [f"A{i}" for i in range(9)]

    def source(count: int) -> str:
        table = ", ".join(f"'{n}': (1, 2)" for n in names[:count])
        return "\n".join(f"{n} = 1" for n in names) + f"\nTUNABLES = {{{table}}}\n"

    space = read_space(source(8))
    assert space is not None
    assert space.size == 2**8
    with pytest.raises(BadTunables, match="at most 8"):
        read_space(source(9))


def test_names_that_only_look_bound_elsewhere() -> None:
    source = textwrap.dedent(
        """
        (A, (B, C)), [D] = (1, (2, "c")), [-4]
        TUNABLES: dict = {"A": [1, 2], "B": (2, 3), "C": ("c", "d"), "D": (-4, 4)}
        squares = [A for A in range(3)] + list({B: 1 for B in "xy"})
        def kernel(A, B):
            C = A
            for D in range(B):
                C += D
            return lambda A: A
        class K:
            D = 5
        x.A = x["B"] = A
        """
    )
    space = read_space(source)
    assert space is not None
    assert space.current == {"A": 1, "B": 2, "C": "c", "D": -4}
    changed = with_point(source, {"A": 2, "B": 3, "C": "d", "D": 4})
    assert changed == source.replace('(1, (2, "c")), [-4]', "(2, (3, 'd')), [4]")


@pytest.mark.parametrize(
    "point",
    [
        {},
        {"BLOCK": 512},
        {"BLOCK": 512, "NUM_WARPS": 4, "X": 1},
        {"BLOCK": 512, "NUM_WARPS": 4, "UNROLL": 1, "X": 1},
        {"BLOCK": 512, "NUM_WARPS": 4, "UNROLL": 3},
        {"BLOCK": 512, "NUM_WARPS": 4, "UNROLL": True},
        {"BLOCK": "512", "NUM_WARPS": 4, "UNROLL": 1},
    ],
)
def test_a_point_outside_the_space_is_refused(point: dict) -> None:
    with pytest.raises(ValueError, match=r"the space has|may be one of"):
        with_point(KERNEL, point)


def test_line_ends_and_characters_of_every_kind() -> None:
    source = (
        '"""Größe: 块\x0b\x1c\u2028\x85"""\r\n'
        "é = 'ß'; A = 0x10  # ½\r"
        'S: str = """two\r\nlines"""; B = (\n  1_000\n)\n'
        "\x0cC = True\n"
        'TUNABLES = {"é": ("ß", "\\n\'"), "A": (16, 8), "S": ("two\\nlines", ""), "B": (1000, 7), '
        '"C": (True, False)}'
    )
    space = read_space(source)
    assert space is not None
    assert with_point(source, space.current) == source
    changed = with_point(source, {"é": "\n'", "A": 8, "S": "", "B": 7, "C": False})
    assert changed == source.replace("'ß'; A = 0x10", '"\\n\'"; A = 8').replace(
        '"""two\r\nlines"""', "''"
    ).replace("1_000", "7").replace("\x0cC = True", "\x0cC = False")


# -- any file at all -------------------------------------------------------------------------------

VALUES = st.one_of(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5, unique=True),
    st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
    st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True),
)
NAMES = st.from_regex(r"[A-Za-zäλ]{1,6}", fullmatch=True).filter(
    lambda n: n.isidentifier() and not keyword.iskeyword(n) and n not in ("x", "y")
)
PLAIN = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="\ufeff")


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict]:
    """A source that declares a space, and a point of it."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    table = {name: draw(VALUES) for name in names}
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines = [f"# {draw(st.text(PLAIN, max_size=12))}", f"x = {draw(st.text(PLAIN, max_size=8))!a}"]
    left = list(table)
    while left:
        taken = [left.pop() for _ in range(min(len(left), draw(st.integers(1, 3))))]
        values = [repr(draw(st.sampled_from(table[name]))) for name in taken]
        if len(taken) == 1 and draw(st.booleans()):
            lines.append(f"{taken[0]}: object = {values[0]}  # {draw(st.text(PLAIN, max_size=8))}")
        else:
            lines.append(f"y = 'é'; {', '.join(taken)} = {', '.join(values)}")
    lines.insert(draw(st.integers(0, len(lines))), f"TUNABLES = {table!r}")
    return end.join(lines) + end, {name: draw(st.sampled_from(values)) for name, values in table.items()}


@settings(max_examples=200, deadline=None)
@given(files())
def test_a_rewrite_changes_the_point_and_nothing_else(made: tuple[str, dict]) -> None:
    source, point = made
    space = read_space(source)
    assert space is not None
    assert with_point(source, space.current) == source
    changed = with_point(source, point)
    after = read_space(changed)
    assert after is not None
    assert after.current == point
    assert [(t.name, t.values) for t in after.tunables] == [(t.name, t.values) for t in space.tunables]
    assert with_point(changed, point) == changed
    assert _without_literals(changed, set(point)) == _without_literals(source, set(point))
    assert with_point(changed, space.current) == source


def _without_literals(source: str, names: set[str]) -> str:
    """The text with every tuned constant's literal cut out, found anew by the tree of this very text."""
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    spans = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            paired = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if paired else [(target, node.value)]
            spans += [v for t, v in pairs if isinstance(t, ast.Name) and t.id in names]
    for value in sorted(spans, key=lambda v: (v.lineno, v.col_offset), reverse=True):
        text = lines[value.lineno - 1].encode()
        lines[value.lineno - 1] = (text[: value.col_offset] + text[value.end_col_offset :]).decode()
    return "\n".join(lines)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_but_never_crashes(text: str) -> None:
    for source in (text, f"TUNABLES = {text}", f"A = 1\nTUNABLES = {{'A': {text}}}"):
        try:
            space = read_space(source)
        except BadTunables:
            continue
        assert space is None or space.size >= 1
