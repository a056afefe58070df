"""The form of a recorded plan: a file that is edited by hand is refused, with the line."""

from __future__ import annotations

import pytest

from egg.evaluator.plan.assemble import Signature, assembled
from egg.evaluator.plan.stores import Stores
from egg.evaluator.plan.verify import findings

TASK = """
import torch
import torch.nn as nn


def spread(features):
    return 2.0 / features


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features) * spread(features))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        return x * self.weight


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
"""
KERNEL = """
import math
import torch
import torch.nn as nn
import triton
import triton.language as tl

WIDE: tl.constexpr = tl.constexpr(16)
HALF = 0.5
KIND = tl.float32
WHOLE = 2 * math.pi


@triton.jit
def doubled(v):
    return v + v


@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.jit
def scale(x, w, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = doubled(tl.load(x + i, mask=i < n)).to(KIND) * HALF * WHOLE
    tl.store(y + i, v * tl.load(w + i % WIDE), mask=i < n)
"""
FORM = "(('list', ('tensor', (8, 16), (16, 1), torch.float32)), ('list', ('int', 16)), ('list',), [True])"
STATEMENTS = (
    "self.seen.add_(1)",
    "t1 = torch.empty_like(x)",
    "scale[(1, 1, 1,)](x, self.weight, t1, 128, 128, num_warps=4)",
)
STATE, MOVING = ("weight", "seen"), ("seen",)
PLAN = assembled(TASK, KERNEL, ["scale"], [Signature(FORM, STATEMENTS, "t1")], "scale")


def found(plan: str) -> list[str]:
    return [str(finding) for finding in findings(plan, TASK, STATE, MOVING)]


def test_a_plan_has_its_form() -> None:
    assert found(PLAN) == []
    assert "autotune" not in PLAN
    assert "get_inputs" not in PLAN
    assert PLAN.count("def forward") == 1


EDITS = {
    "control flow": ("t1 = torch.empty_like(x)", "t1 = torch.empty_like(x)\n        if x.numel(): pass"),
    "a loop": ("        return t1", "        for t2 in x: t1.add_(t2)\n        return t1"),
    "a store on self": ("t1 = torch.empty_like(x)", "t1 = self.kept = torch.empty_like(x)"),
    "an attribute of self": ("](x, self.weight", "](self.kept, self.weight"),
    "getattr": ("torch.empty_like(x)", "getattr(torch, 'empty_like')(x)"),
    "a default argument": ("def recorded_1(self, x)", "def recorded_1(self, x, kept=[])"),
    "a default of forward": ("def forward(self, x)", "def forward(self, x, kept=[])"),
    "a decorator": ("    def recorded_1", "    @torch.no_grad()\n    def recorded_1"),
    "a decorator of forward": ("    def forward", "    @torch.no_grad()\n    def forward"),
    "a walrus": ("torch.empty_like(x)", "torch.empty_like((t9 := x))"),
    "a comprehension": ("torch.empty_like(x)", "torch.stack([v for v in x])"),
    "an f-string": ("torch.empty_like(x)", "torch.zeros(8, 16, device=f'{x.device}')"),
    "a lambda": ("torch.empty_like(x)", "(lambda: x)()"),
    "a conditional": ("torch.empty_like(x)", "torch.empty_like(x if x.is_cuda else x)"),
    "a class": ("torch.empty_like(x)", "x.__class__(x)"),
    "a host read": ("torch.empty_like(x)", "torch.full((8, 16), x.sum().item())"),
    "an address": ("t1, 128, 128", "t1, x.data_ptr(), 128"),
    "a grid that is computed": ("scale[(1,", "scale[(x.numel(),"),
    "arithmetic": ("t1, 128, 128", "t1, 64 + 64, 128"),
    "operators": ("torch.empty_like(x)", "x * 2"),
    "a name again": (
        "t1 = torch.empty_like(x)",
        "t1 = torch.empty_like(x)\n        t1 = torch.empty_like(x)",
    ),
    "a name of the module": (
        "t1 = torch.empty_like(x)",
        "t1 = torch.empty_like(x)\n        scale = t1.view(128)",
    ),
    "an import inside": ("        return t1", "        import math\n        return t1"),
    "unpacking": ("(x, self.weight, t1, 128, 128,", "(*[x, self.weight, t1, 128, 128],"),
    "a global": ("        return t1", "        global HALF\n        return t1"),
    "an assertion": ("        return t1", "        assert x is not None\n        return t1"),
    "an early return": ("        self.seen.add_(1)", "        return x\n        self.seen.add_(1)"),
    "a place in an input's memory": ("torch.empty_like(x)", "torch.as_strided(x, [8], [1], 0)"),
    "the same as a method": ("torch.empty_like(x)", "x.as_strided([8], [1], 0)"),
    "a product of one factor in place": (
        "self.seen.add_(1)",
        "t7 = torch.einsum('ij->ji', x)\n        t7.add_(1)",
    ),
    "a reshape in place": ("self.seen.add_(1)", "t7 = torch.reshape(x, (128,))\n        t7.add_(1)"),
    "a dropout that is off, in place": (
        "self.seen.add_(1)",
        "t7 = torch.nn.functional.dropout(x, 0.5, False)\n        t7.add_(1)",
    ),
    "a product of one matrix in place": (
        "self.seen.add_(1)",
        "t7 = torch.cartesian_prod(self.weight)\n        t7.add_(1)",
    ),
    "a function in place by its place": (
        "self.seen.add_(1)",
        "t7 = torch.nn.functional.relu(x, True)\n        ",
    ),
    "statistics of an input": (
        "self.seen.add_(1)",
        "t7 = torch.nn.functional.batch_norm(x, self.weight, self.weight, None, None, True)\n        ",
    ),
    "a table that is scaled": (
        "self.seen.add_(1)",
        "t7 = torch.nn.functional.embedding(x, self.weight, None, 1.0)\n        ",
    ),
    "an architecture": ("num_warps=4)", "num_warps=4, arch='sm80')"),
    "a launch that does not wait": ("num_warps=4)", "num_warps=4, launch_pdl=True)"),
    "an out argument": ("torch.empty_like(x)", "torch.mul(x, 2, out=self.weight)"),
    "a weight in place": ("self.seen.add_(1)", "self.weight.add_(1)"),
    "an input in place": ("self.seen.add_(1)", "x.add_(1)"),
    "a view of a weight in place": ("self.seen.add_(1)", "t7 = self.weight.view(16)\n        t7.add_(1)"),
    "a kernel that stores in a weight": ("(x, self.weight, t1,", "(x, t1, self.weight,"),
    "a kernel that stores in an input": ("(x, self.weight, t1,", "(t1, self.weight, x,"),
    "a copy in place of the base": ("self.seen.add_(1)", "x.t().copy_(self.weight)"),
    "another constructor": ("self.built_with = form_of([features])", "self.built_with = 1"),
    "settings that are computed": (
        "        if form == ",
        "        if form_of([self.seen.sum()]) == ('list', 1) and form == ",
    ),
    "another guard": ("weights, modes)\n", "weights, self.modes)\n"),
    "a guard that stores": ("        modes = [", "        self.count = 1\n        modes = ["),
    "another base": ("class ModelNew(Model)", "class ModelNew(Model, dict)"),
    "a metaclass": ("class ModelNew(Model)", "class ModelNew(Model, metaclass=type)"),
    "a method more": ("    def recorded_1", "    def __del__(self):\n        pass\n\n    def recorded_1"),
    "a task's method more": (
        "        self.register_buffer",
        "        self.kept = []\n        self.register_buffer",
    ),
    "the task's helper, otherwise": ("return 2.0 / features", "return 3.0 / features"),
    "state of the module": ("HALF = 0.5", "HALF = 0.5\nKEPT = {}"),
    "code of the module": ("HALF = 0.5", "HALF = 0.5\nprint(HALF)"),
    "a call in a constant": ("HALF = 0.5", "HALF = float(open('/dev/null').read() or 1)"),
    "a condition of the module": ("HALF = 0.5", "if torch.cuda.is_available():\n    HALF = 0.5"),
    "a store by another name": ("HALF = 0.5", "HALF = 0.5\nput = tl.store"),
    "a store by another name in an import": (
        "import triton\n",
        "import triton\nfrom triton.language import store as put\n",
    ),
    "a number as an address by a type": (
        "    v = doubled(",
        "    tl.store(tl.load(w).to(x.dtype), 1.0)\n    v = doubled(",
    ),
    "an address by name": ("import triton\n", "import triton\nfrom triton.language import pointer_type\n"),
    "a function as a default": ("n, BLOCK: tl.constexpr", "n, BLOCK: tl.constexpr = tl.store"),
    "a kernel that is called load": ("HALF = 0.5", "HALF = 0.5\n\n@triton.jit\ndef load(p):\n    return p\n"),
    "a kernel again": ("HALF = 0.5", "HALF = 0.5\n\n@triton.jit\ndef scale(x):\n    pass\n"),
    "a plain function": ("HALF = 0.5", "HALF = 0.5\n\ndef helper(x):\n    return x\n"),
    "an autotuner": (
        "@triton.jit\ndef scale",
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef scale",
    ),
    "a decorator with an effect": (
        "@triton.jit\ndef scale",
        "@triton.jit(do_not_specialize=print())\ndef scale",
    ),
    "a default of a kernel": ("n, BLOCK: tl.constexpr", "n, BLOCK: tl.constexpr = print()"),
    "an annotation with an effect": ("n, BLOCK: tl.constexpr", "n, BLOCK: print()"),
    "a closure in a kernel": ("    return v + v", "    def inner():\n        return v\n    return inner()"),
    "a helper in a kernel": ("    return v + v", "    return form_of(v)"),
    "a private name in a kernel": ("    return v + v", "    return v.__class__(v)"),
    "an address in a kernel": ("    return v + v", "    return tl.load(v.to(tl.pointer_type(tl.float32)))"),
    "a name of Python's in a kernel": ("    return v + v", "    return globals()"),
    "another torch": ("import torch\n", "import math as torch\n"),
    "another range": ("HALF = 0.5", "HALF = 0.5\nrange = 3"),
    "an import of the system": ("import torch\n", "import torch\nimport os\n"),
    "another frame": ("and value.requires_grad", "and False"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_is_edited_is_refused(name: str) -> None:
    before, after = EDITS[name]
    assert before in PLAN, name
    edited = PLAN.replace(before, after, 1)
    wrong = found(edited)
    assert wrong
    named = [int(text.removeprefix("line ").partition(":")[0]) for text in wrong if text.startswith("line ")]
    assert named, wrong
    changed = edited.splitlines()
    assert all(0 < line <= len(changed) for line in named)


HONEST = {
    "a copy in place": "t7 = x.to(torch.float16, copy=True)\n        t7.add_(1)",
    "a clone in place": "t7 = torch.clone(x)\n        t7.add_(1)",
    "a function that is not in place": "t7 = torch.nn.functional.relu(x, False)\n        t7.add_(1)",
    "statistics": "t7 = torch.batch_norm(x, None, None, self.weight, self.weight, False, 0.1, 0.1, True)",
    "a view that is read": "t7 = torch.einsum('ij->ji', x)\n        t8 = torch.add(t7, 1)",
    "moved statistics": "t7 = torch.batch_norm(x, None, None, self.seen, self.seen, True, 0.1, 0.1, True)",
}


@pytest.mark.parametrize("name", HONEST)
def test_a_plan_may_say_more(name: str) -> None:
    assert not found(PLAN.replace("self.seen.add_(1)", HONEST[name], 1))


def test_no_statement_can_be_left_out_of_the_frame() -> None:
    """Every top-level statement of the task and of the frame is needed, and ModelNew stands last."""
    for name in (
        "def form_of(value)",
        "def learns(value)",
        "def apart(value)",
        "def spread(features)",
        "class Model(nn.Module)",
    ):
        start = PLAN.index(name)
        end = PLAN.index("\n\n\n", start)
        assert found(PLAN[:start] + PLAN[end:]), name


AROUND = """
import other
import triton.language as tl
from triton.language.extra import libdevice
put = tl.store

def helper(v, out):
    tl.store(out, v)

def first(p):
    return p

def typed(p, v):
    return v.to(p.dtype)

def total(v, w):
    return v + w
"""
STORES: dict[str, tuple[str, set[str] | None]] = {
    "directly": ("tl.store(a + 1, b)", {"a"}),
    "through names": ("p = a\n    q = p + 1\n    tl.store(q, tl.load(b))", {"a"}),
    "by a loaded offset": ("tl.store(a + tl.load(b), 1)", {"a"}),
    "by either": ("p = tl.where(c, a, b)\n    tl.atomic_add(p, 1)", {"a", "b", "c"}),
    "by a helper": ("helper(b, a)", {"a"}),
    "by a method": ("d = tl.make_tensor_descriptor(b, [1], [1], [1])\n    d.store([0], a)", {"b"}),
    "by a loop": ("for p in tl.static_range(a):\n        tl.store(p, b)", {"a"}),
    "nothing": ("tl.load(a + b)", set()),
    "by a value that is stored": ("tl.store(a, b + c)", {"a"}),
    "by a helper with the name of a load": ("tl.store(first(b), a)", {"b"}),
    "by gathered addresses": ("tl.store(tl.gather(b, c, 0), a)", {"b", "c"}),
    "an atomic store": ("tl.atomic_store(a, b)", {"a"}),
    "by the type of what lies there": ("tl.store(a, tl.load(b).to(a.dtype.element_ty))", {"a"}),
    "by the type of a loaded value": ("v = tl.load(b)\n    tl.store(a, tl.load(c).to(v.dtype))", {"a"}),
    "a reduction": ("tl.store(a, tl.reduce(tl.load(b), 0, total))", {"a"}),
    "a function of the library": ("tl.store(a, libdevice.tanh(tl.load(b)))", {"a"}),
    "another name": ("put(a, b)", None),
    "a number as an address": ("tl.store(tl.load(c).to(a.dtype), 1)", {"a", "a.dtype"}),
    "a number as an address in a helper": ("typed(a + 1, b)", {"a.dtype"}),
    "a helper handed over": ("tl.store(a, tl.reduce(b, 0, helper))", None),
    "a method that is not known": ("a.copy_to(b)", None),
    "a member of a helper": ("helper.fn(a, b)", None),
    "another package": ("other.put(a, b)", None),
    "the language as an argument": ("tl = a\n    tl.put(b)", set()),
}


@pytest.mark.parametrize("name", STORES)
def test_what_a_kernel_may_store_through(name: str) -> None:
    body, stored = STORES[name]
    assert Stores.of_source(f"{AROUND}\n\ndef kernel(a, b, c):\n    {body}\n").of("kernel") == stored


def test_of_a_function_that_is_handed_over_nothing_is_known() -> None:
    assert Stores.of_source("def kernel(a, f):\n    f(a)\n").of("kernel") is None
