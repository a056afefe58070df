"""The static gate: what it refuses, under which reason, on which line; and what it must leave alone."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from egg.core.evaluation import Gate
from egg.core.policy import LibraryCalls
from egg.core.source import Candidate
from egg.evaluator.static import check, findings

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))

from corpus import Case, load_corpus

ALLOW, FORBID = LibraryCalls.ALLOW, LibraryCalls.FORBID

KERNEL = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


"""
MODEL = """

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self._scratch = None

    def forward(self, x):
        {body}
        y = torch.empty_like(x)
        double[(1,)](x, y, x.numel(), BLOCK=1024)
        return y
"""


def codes(*, top: str = "", body: str = "pass", library_calls: LibraryCalls = ALLOW) -> tuple[str, ...]:
    return findings(KERNEL + top + MODEL.format(body=body), library_calls).codes


CASES = [case for case in load_corpus() if case.static]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corpus(case: Case) -> None:
    """Exploits that name this gate first are refused here, for the reason they name; all others pass."""
    refusal = check(Candidate.from_file(case.path), case.policy.library_calls)
    if case.gates[:1] == (Gate.STATIC,):
        assert refusal is not None
        assert refusal.gate is Gate.STATIC
        assert refusal.reason.startswith(case.reasons)
        assert refusal.hint
    else:
        assert refusal is None


def test_corpus_is_large_enough() -> None:
    corpus = load_corpus()
    count = Counter(case.path.parent.name for case in corpus)
    past_static = [c for c in corpus if c.path.parent.name == "exploits" and Gate.STATIC not in c.gates]
    assert count["exploits"] >= 45
    assert count["honest"] >= 12
    assert count["hostile"] >= 12
    assert len(past_static) >= 40
    assert all(not case.static for case in corpus if case.path.parent.name == "hostile")


# -- the shape of an answer ------------------------------------------------------------------------


def test_evidence_names_lines_and_counts_the_rest() -> None:
    source = (
        "import os\nimport sys\nimport gc\nimport ctypes\nimport time\nimport socket\n"
        + KERNEL
        + MODEL.format(body="pass")
    )
    refusal = check(Candidate(source), ALLOW)
    assert refusal is not None
    assert refusal.reason == "static.import"
    assert refusal.evidence.startswith("line 1: imports os; line 2: imports sys; ")
    assert refusal.evidence.endswith("; and 2 more")
    assert "math" in refusal.hint


def test_reading_order_decides_the_reason() -> None:
    assert codes(top="exec('')\n", body="torch.ops") == ("static.dynamic",)
    assert codes(top="open('x')\n", body="eval('x')") == ("static.io", "static.dynamic")


@pytest.mark.parametrize("source", ["def f(:\n", "x = '\0'\n", "(" * 5000])
def test_unreadable_source(source: str) -> None:
    refusal = check(Candidate(source), ALLOW)
    assert refusal is not None
    assert refusal.reason == "static.syntax"


@pytest.mark.parametrize(
    "source",
    [
        "t0 = torch\n" + "".join(f"t{i + 1} = t{i} if x else t{i}\n" for i in range(60)),
        "t0 = torch\n" + "".join(f"t{i + 1} = t{i}\n" for i in range(3000)),
        "x = " + "-" * 3000 + "1\n",
    ],
    ids=["doubling", "chain", "nesting"],
)
def test_source_that_would_keep_the_gate_busy(source: str) -> None:
    found = findings("import torch\n" + source, ALLOW)
    assert found.codes[0] in ("static.dynamic", "static.syntax")


def test_absences() -> None:
    assert findings("x = 1\n", ALLOW).codes == ("static.no_kernel", "static.no_model")
    assert findings(KERNEL, ALLOW).codes == ("static.no_model",)


# -- names are followed ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "top",
    [
        "o = torch.ops\n",
        "t = torch\no = t.ops\n",
        "import torch as t\no = t.ops\n",
        "from torch import ops as o\n",
        "import torch.ops\n",
        "o = getattr(torch, 'ops')\n",
        "o = (t := torch).ops\n",
        "a, b = nn, 1\no = torch.ops if b else a\n",
        "class A:\n    t = torch\n    o = t.ops\n",
        "o = [t.ops for t in (torch,)]\n",
        "o = (lambda t=torch: t)().ops\n",
        "def get():\n    return torch\n",
        "tools = dict(t=torch)\n",
        "import importlib\n",
        "o = __import__('torch').ops\n",
        "o = __builtins__\n",
        "def f(t):\n    return t.ops\n\n\nf(torch)\n",
        "o = nn.functional.torch.ops\n",
        "o = torch.sys.modules\n",
        "o = torch.functional.F\n",
        "o = tl.core.builtins\n",
        "from operator import attrgetter\n",
        "from typing import get_type_hints\n",
        "from dataclasses import sys\n",
        "match torch:\n    case object(ops=o):\n        pass\n",
    ],
)
def test_roads_to_other_modules(top: str) -> None:
    assert codes(top=top)


def test_comprehension_variable_does_not_hide_a_module() -> None:
    body = "z = [t for t in (1, 2)]; t.ops.aten"
    assert "static.dynamic" in codes(top="t = torch\n", body=body)


def test_a_local_variable_may_have_the_name_of_a_builtin() -> None:
    top = "def helper(input, compile, vars):\n    open = input\n    return open, compile, vars\n"
    assert codes(top=top) == ()
    assert codes(top="if 0:\n    eval = None\n\n\ndef helper():\n    return eval('1')\n") == (
        "static.dynamic",
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("getattr(x, 'mat' + 'mul')", "static.dynamic"),
        ("getattr(self, f'{x}_l')", "static.dynamic"),
        ("getattr(torch, f'ma{x}')", "static.dynamic"),
        ("getattr(x, '__class__')", "static.private"),
        ("x.__class__", "static.private"),
        ("x.__dict__", "static.private"),
        ("x._base", "static.private"),
        ("'{0.__class__}'.format(x)", "static.dynamic"),
        ("type('A', (), {})", "static.dynamic"),
        ("x.untyped_storage()", "static.private"),
        ("torch.load('x')", "static.io"),
        ("torch.cuda.current_stream()", "static.stream"),
        ("torch.cuda.Event()", "static.stream"),
        ("torch.use_deterministic_algorithms(True)", "static.backend"),
        ("torch.cuda.empty_cache()", "static.namespace"),
        ("triton.testing.do_bench(x)", "static.stream"),
        ("triton.knobs.runtime", "static.backend"),
        ("triton.runtime.driver", "static.namespace"),
        ("nn.attention.sdpa_kernel", "static.namespace"),
        ("nn.modules.module.register_module_forward_hook(x)", "static.namespace"),
        ("torch.nn.Linear.forward = None", "static.patch"),
        ("nn.functional.relu = None", "static.patch"),
        ("double.fn = None", "static.patch"),
        ("self.fc.forward = lambda v: v", "static.patch"),
        ("x.helper = lambda v: v", "static.patch"),
        ("del torch.matmul", "static.patch"),
        ("setattr(x, 'name', 1)", "static.patch"),
        ("for n in ('name', 'other'):\n            setattr(x, n, 1)", "static.dynamic"),
        ("for n in ('a', '__class__'):\n            setattr(self, n, 1)", "static.private"),
        ("for n in ('__cla',):\n            setattr(self, n + 'ss__', 1)", "static.private"),
        ("for n in ('a', str(x)):\n            setattr(self, n, 1)", "static.dynamic"),
        ("n = str(x)\n        for n in ('a', 'b'):\n            setattr(self, n, 1)", "static.dynamic"),
        ("for n in ('a', 'b'):\n            n += str(x)\n            setattr(self, n, 1)", "static.dynamic"),
        ("for n, m in zip(x, 'ab'):\n            setattr(self, n, 1)", "static.dynamic"),
        ("ModelNew.kept = x", "static.cache"),
        ("type(self).kept = x", "static.cache"),
        ("exit()", "static.process"),
        ("self.fc.compile()", "static.dynamic"),
        ("x.numpy().tofile('x')", "static.private"),
        ("torch.cuda.graph(x).capture_stream", "static.stream"),
    ],
)
def test_roads_inside_functions(body: str, code: str) -> None:
    assert code in codes(body=body)


@pytest.mark.parametrize(
    ("top", "code"),
    [
        ("class A(torch.Tensor):\n    pass\n", "static.subclass"),
        ("class A(nn.Parameter):\n    pass\n", "static.subclass"),
        ("class A(type(torch.empty(0))):\n    pass\n", "static.subclass"),
        ("class A(float):\n    pass\n", "static.subclass"),
        ("class A(metaclass=type):\n    pass\n", "static.subclass"),
        ("class A:\n    def __getattr__(self, name):\n        return 1\n", "static.dynamic"),
        ("class A:\n    def __del__(self):\n        pass\n", "static.dynamic"),
        ("class A:\n    def __exit__(self, *e):\n        return True\n", "static.try"),
        ("try:\n    import torch\nfinally:\n    pass\n", "static.try"),
        ("try:\n    double.warm = 1\nexcept ImportError:\n    pass\n", "static.try"),
        ("async def f():\n    pass\n", "static.dynamic"),
        ("from torch import *\n", "static.import"),
        ("from . import other\n", "static.import"),
        ("import scipy\n", "static.import"),
        ("import numpy as np\nTABLE = np.zeros(3)\n", "static.import"),
        ("import numpy as np\n\ndef root(x):\n    return np.sqrt(x)\n", "static.import"),
        ("from numpy import sqrt\n\ndef root(x):\n    return sqrt(x)\n", "static.import"),
        ("import numpy.random\n", "static.import"),
        ("import torch.utils.cpp_extension\n", "static.import"),
        ("import functools\n\n@functools.lru_cache\ndef f(x):\n    return x\n", "static.cache"),
        ("from functools import cache\nkept = cache(len)\n", "static.cache"),
        ("class A:\n    import torch as T\n", "static.dynamic"),
        ("class A:\n    if True:\n        def __exit__(self, *e):\n            return True\n", "static.try"),
        ("import math as __builtins__\n", "static.private"),
        ("match 1:\n    case __builtins__:\n        pass\n", "static.private"),
        ("match []:\n    case [*__builtins__]:\n        pass\n", "static.private"),
        ("def __getattr__(name):\n    return 1\n", "static.private"),
        ("def f(__name__):\n    return 1\n", "static.private"),
        ("kept = [(t := torch)]\n", "static.dynamic"),
        ("same = 1 == torch\n", "static.dynamic"),
        ("from triton.runtime import driver\n", "static.import"),
    ],
)
def test_roads_at_module_level(top: str, code: str) -> None:
    assert code in codes(top=top)


# -- state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("C = {}\n", "C[0] = x"),
        ("C = []\n", "C.append(x)"),
        ("C = []\nD = C\n", "D.append(x)"),
        ("C = []\n", "c = C; c.append(x)"),
        ("C = {}\n", "C.setdefault('y', {})['z'] = x"),
        ("from collections import deque\nC = deque()\n", "C.appendleft(x)"),
        ("class H:\n    kept = {}\n", "H.kept[0] = x"),
        ("class H:\n    def put(self, v):\n        self.v = v\n\n\nK = H()\n", "K.put(x)"),
        ("class H:\n    v = None\n", "H.v = x"),
        ("def f(v, kept=[]):\n    kept.append(v)\n", "f(x)"),
        ("def f(kept, v):\n    kept.append(v)\n\n\nC = []\n", "f(C, x)"),
        ("import itertools\nN = itertools.count()\n", "next(N)"),
        ("def numbers():\n    yield 1\n\n\nN = numbers()\n", "next(N)"),
        ("B = torch.empty(4)\n", "B.copy_(x)"),
        (
            "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g\n",
            "pass",
        ),
    ],
)
def test_state_that_outlives_a_call(top: str, body: str) -> None:
    assert "static.cache" in codes(top=top, body=body)


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("CONFIGS = [(1, 2), (3, 4)]\n", "best = [c for c in CONFIGS if c[0] > 1]; best.append(3)"),
        ("TABLE = {'a': 1}\n", "v = TABLE['a']"),
        ("", "self._scratch = x; self._scratch = None"),
        ("", "parts = []; parts.append(x); parts[0] = 1"),
        ("", "v = self.fc.weight._version"),
        ("", "w = getattr(self, f'weight_l{3}', None); setattr(self, 'packed', w)"),
        ("", "for part in ('key', 'value'):\n            setattr(self, part + '1', x)"),
        ("", "for part, n in [('a', 1), ('b', 2)]:\n            setattr(self, f'{part}_scale', n)"),
        ("", "self.fc.weight.data = x"),
        ("", "g = torch.cuda.CUDAGraph()\n        with torch.cuda.graph(g):\n            pass"),
        ("", "n = torch.cuda.get_device_properties(x.device).multi_processor_count"),
        ("import math\nSCALE = math.log2(math.e)\n", "v = math.sqrt(x.shape[0])"),
        ("from functools import partial\n", "f = partial(max, 1)"),
        (
            "try:\n    import triton.language.extra.libdevice\nexcept ImportError:\n    pass\n",
            "pass",
        ),
        ("from triton.language.extra import libdevice\n", "pass"),
        (
            "from triton.language.extra import libdevice\n\n\n"
            "@triton.jit\ndef k(x):\n    return libdevice.tanh(x)\n",
            "pass",
        ),
        (
            "import triton.language.extra.cuda.libdevice as ld\n\n\n"
            "@triton.jit\ndef k(x):\n    return ld.log1p(x)\n",
            "pass",
        ),
        ("from enum import Enum\n\n\nclass Mode(Enum):\n    FAST = 1\n", "m = Mode.FAST"),
        (
            "from typing import NamedTuple\n\n\nclass Tile(NamedTuple):\n    m: int = 1\n\n\nT = Tile()\n",
            "v = T.m",
        ),
        (
            "class F(torch.autograd.Function):\n    def forward(ctx, x):\n        return x\n",
            "F.apply(x)",
        ),
        (
            "DTYPE = torch.float16\nEPS = torch.finfo(torch.float32).eps\n",
            "pass",
        ),
        (
            "def alloc(size, align, _):\n    return torch.empty(size)\n\n\ntriton.set_allocator(alloc)\n",
            "pass",
        ),
    ],
)
def test_honest_habits_pass(top: str, body: str) -> None:
    assert codes(top=top, body=body) == ()


# -- library calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "torch.matmul(x, x)",
        "f = torch.softmax",
        "nn.functional.relu(x)",
        "torch.linalg.norm(x)",
        "x @ x",
        "x.sum()",
        "x.mul_(2)",
        "self.fc(x)",
        "self.fc.forward(x)",
        "[layer(x) for layer in self.layers]",
        "self.layers[0](x)",
        "layer = self.fc; layer(x)",
        "torch.Tensor.sum(x)",
        "getattr(torch, 'relu')(x)",
    ],
)
def test_library_compute_is_refused_only_where_forbidden(body: str) -> None:
    if body.startswith("[layer"):
        body = "for layer in self.layers: x = layer(x)"
    assert codes(body=body, library_calls=FORBID) == ("static.library",)
    assert codes(body=body, library_calls=ALLOW) == ()


@pytest.mark.parametrize(
    "body",
    [
        "y = torch.zeros_like(x); z = x.t().contiguous().view(-1)",
        "w, b = self.fc.weight, self.fc.bias",
        "seen = set(); seen.add(1); n = max(1, sum([1, 2]))",
        "z = nn.functional.pad(x, (0, 1))",
    ],
)
def test_moving_data_is_no_library_compute(body: str) -> None:
    assert codes(body=body, library_calls=FORBID) == ()


def test_constructors_and_inputs_may_compute() -> None:
    top = "def get_inputs():\n    return [torch.rand(4, 4).sum(0) @ torch.eye(4)]\n"
    assert codes(top=top, library_calls=FORBID) == ()


# -- nothing tells the judge from another caller ---------------------------------------------------


@pytest.mark.parametrize(
    "top",
    [
        "JUDGED = 'dida' in __name__\n",
        "def f():\n    return __name__\n",
        "JUDGED = 'built-in' in repr(hasattr)\n",
        "kind = type\n",
        "JUDGED = type.__name__ == 'type'\n",
        "import functools\nJUDGED = functools.wraps.__name__ == 'wraps'\n",
        "from functools import wraps\nkeep = wraps\nJUDGED = 'wraps' in str(keep)\n",
        "import functools\nJUDGED = 'wraps' in str(getattr(functools, 'wraps'))\n",
        "import logging\nJUDGED = 'getLogger' in repr(logging.getLogger)\n",
        "from torch.library import custom_op\nJUDGED = 'locals' in repr(custom_op)\n",
    ],
)
def test_a_stand_in_is_called_and_nothing_else(top: str) -> None:
    assert codes(top=top) == ("static.dynamic",)


@pytest.mark.parametrize(
    "top",
    [
        "import logging\nlogger = logging.getLogger(__name__)\n",
        "import logging\nlogger = logging.getLogger(name=__name__)\n",
        "def f(x):\n    return isinstance(x, type) or isinstance(x, (int, type))\n",
        "def f(kind: type, other: type[nn.Module] | None = None) -> type:\n    return type(kind.dtype)\n",
        "def f(type, dir):\n    return [type, dir]\n",
        "from dataclasses import dataclass\nkept = dataclass\n\n@kept\nclass P:\n    n: int\n",
        "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g():\n        f()\n    return g\n",
        "import abc\nclass A(metaclass=abc.ABCMeta):\n    pass\n",
        "if __name__ == '__main__':\n    print(__name__)\n",
    ],
)
def test_plain_uses_of_stand_ins_stay(top: str) -> None:
    assert codes(top=top) == ()
