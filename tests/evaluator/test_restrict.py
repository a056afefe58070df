"""Restricted execution: what runs is what was read, and names that are computed meet the same rule."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import egg.evaluator.operators.ops  # noqa: F401
from egg.evaluator.restrict.execute import execute, lines_of
from egg.evaluator.restrict.integrity import Snapshot
from egg.evaluator.restrict.modules import Modules
from egg.evaluator.restrict.names import RestrictedError

IMPORTS = "import torch\nimport torch.nn as nn\nimport functools, dataclasses, abc, typing, enum\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    linecache.clearcache()


def run(text: str) -> dict[str, object]:
    return vars(execute(IMPORTS + text, "restricted_sample", "sample.py", restricted=True))


@pytest.mark.parametrize(
    "text",
    [
        "g = getattr\ng(nn.Module.forward, '__glo' + 'bals__')\n",
        "getattr(*[nn.Module.forward, '__globals__'])\n",
        "list(map(getattr, [len], ['__self__']))\n",
        "functools.reduce(getattr, ['__globals__'], nn.Module.forward)\n",
        "functools.partial(getattr, len)('__self__')\n",
        "hasattr(len, '__self__')\n",
        "getattr(torch, 'os')\n",
        "[torch][0].os\n",
        "[torch][0].save\n",
        "[nn.functional][0].torch.os\n",
        "[torch][0]._C\n",
        "class Name(str):\n    pass\ngetattr(len, Name('x'))\n",
        "def g():\n    yield 1\ngetattr(*[g(), 'gi_frame'])\n",
        "match torch.relu:\n    case object(os=found):\n        pass\n",
        "class P:\n    def _new(self):\n        return self._make_subclass\nP._new(torch.Tensor)\n",
        "say = str.format\nsay('{0.__globals__}', nn.Module.forward)\n",
        "getattr(str, 'format')('{0.__globals__}', nn.Module.forward)\n",
        "getattr('{0.real}', 'format')(1)\n",
        "list(map(str.format, ['{0:{1.__class__}}'], [1], [2]))\n",
        "('{x' + '.real}').format_map({'x': 1})\n",
        "enum.StrEnum.format('{0[x]}', {'x': 1})\n",
        "class T(enum.StrEnum):\n    A = '{0.__globals__}'\nT.A.format(nn.Module.forward)\n",
        "class T(enum.StrEnum):\n    A = '{0.__globals__}'\nT.format(T.A, nn.Module.forward)\n",
        "@dataclasses.dataclass\nclass P(abc.ABC):\n    gi_frame: object\n"
        "def g():\n    yield 1\nP.register(type(g()))\nmatch g():\n    case P(x):\n        pass\n",
        "abc.ABC.register(int)\n",
    ],
)
def test_attributes_by_whatever_road(text: str) -> None:
    with pytest.raises(RestrictedError):
        run(text)


@pytest.mark.parametrize(
    "text",
    [
        "torch.Tensor.copy_ = 1\n",
        "setattr(*[torch.Tensor, 'copy_', 1])\n",
        "s = setattr\ns(torch.nn, 'Linear', 1)\n",
        "class P:\n    def put(self, f):\n        self.copy_ = f\nP.put(torch.Tensor, 1)\n",
        "def put(t):\n    for t.copy_ in [1]:\n        pass\nput(torch.Tensor)\n",
        "def put(t):\n    t.copy_ += 1\nput(torch.Tensor)\n",
        "def drop(t):\n    del t.copy_\ndrop(torch.Tensor)\n",
        "def put(t):\n    t.todo = 1\nput(torch.empty(1))\n",
        "def put(m):\n    m.forward = 1\nput(nn.ReLU())\n",
        "dataclasses.dataclass(torch.Size)\n",
        "functools.total_ordering(torch.Size)\n",
        "functools.wraps(torch.relu)(torch.Tensor)\n",
    ],
)
def test_nothing_but_own_objects_is_assigned_to(text: str) -> None:
    before = torch.Tensor.copy_
    with pytest.raises(RestrictedError) as refused:
        run(text)
    assert refused.value.reason == "restricted.patch"
    assert torch.Tensor.copy_ is before


@pytest.mark.parametrize(
    "text",
    [
        "make = type\nmake('Tensor', (torch.Tensor,), {})\n",
        "type(type(nn.ReLU()))\n",
        "class T(torch.Tensor):\n    pass\n",
        "B = [torch.Tensor][0]\nclass T(B):\n    pass\n",
        "class T(nn.Parameter):\n    pass\n",
        "class T(torch.dtype if False else str):\n    pass\n",
        "class C:\n    if True:\n        def __exit__(self, *e):\n            return True\n",
        "class C(nn.Module, extra=1):\n    pass\n",
        "class C(nn.MultiheadAttention):\n    def merge_masks(self, *given):\n        pass\n",
        "class B(nn.GRU):\n    pass\nclass C(B):\n    @property\n    def hidden_size(self):\n        pass\n",
    ],
)
def test_classes_are_judged_by_their_bases_and_methods(text: str) -> None:
    with pytest.raises(RestrictedError) as refused:
        run(text)
    assert refused.value.reason == "restricted.class"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("e = eval\ne('1')\n", "restricted.builtin"),
        ("[open][0]('x')\n", "restricted.builtin"),
        ("def f():\n    return vars()\nf()\n", "restricted.builtin"),
        ("import os\n", "restricted.import"),
        ("from torch import serialization\n", "restricted.import"),
        ("from functools import singledispatch\n", "restricted.import"),
        ("@functools.cache\ndef f(x):\n    return 1\nf(torch.empty(1))\n", "restricted.cache"),
        ("@functools.cache\ndef f():\n    return []\nf()\n", "restricted.cache"),
    ],
)
def test_builtins_imports_and_memos(text: str, reason: str) -> None:
    with pytest.raises(RestrictedError) as refused:
        run(text)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "tl.sum.get_capture_scope()\n",
        "from triton.language import sum as total\ntotal.used_global_vals\n",
        "[tl.sum][0].get_capture_scope()\n",
        "getattr(*[tl.sum, 'device_caches'])\n",
        "hasattr(*[tl.sum, 'get_capture_scope'])\n",
    ],
)
def test_a_kernel_does_not_lead_into_triton(text: str) -> None:
    with pytest.raises(RestrictedError, match="of a kernel"):
        run("import triton.language as tl\n" + text)


@pytest.mark.parametrize(
    "text",
    [
        "kept = tl.sum.run\n",
        "getattr(tl.sum, 'warmup')\n",
        "torch.zeros(0).tolist\n",
        "torch.Tensor.tolist\n",
        "[torch.cuda][0].is_available\n",
        "getattr(*[torch, 'as_tensor'])\n",
    ],
)
def test_what_a_worker_replaces_is_called_on_the_spot(text: str) -> None:
    with pytest.raises(RestrictedError, match="kept instead of called"):
        run("import torch\nimport triton.language as tl\n" + text)


def test_a_kernel_is_run_by_its_public_methods() -> None:
    found = run("import triton.language as tl\nnames = [tl.sum][0].arg_names\nfunction = tl.sum.fn\n")
    assert "input" in str(found["names"])


def test_compiled_code_may_import_on_first_use() -> None:
    """As ``PyImport_Import`` asks: it takes the module from ``sys.modules``, and the caller gets nothing."""
    modules = Modules(set())
    assert modules.imported("torch.storage", None, None, [], 0) is None
    for asked in (("torch.storage", None), ("os", [])):
        with pytest.raises(RestrictedError):
            modules.imported(asked[0], None, None, asked[1], 0)


@pytest.mark.parametrize(
    "asked", ["getattr(Own(), 'answer', None)", "hasattr(Own(), 'answer') and Own().answer"]
)
def test_what_a_property_raises_is_not_caught_by_asking_for_it(asked: str) -> None:
    own = "class Own:\n    @property\n    def answer(self):\n        raise AttributeError('seen')\n"
    with pytest.raises(AttributeError, match="seen"):
        run(f"{own}{asked}\n")


def test_a_module_with_a_forward_of_its_own_may_replace_and_ask_for_what_is_not_there() -> None:
    made = run(
        """
class Own(nn.MultiheadAttention):
    @property
    def width(self):
        return self.embed_dim

    def merge_masks(self, *given):
        return None

    def forward(self, x):
        return x


class Kept(nn.Linear):
    def reset_parameters(self):
        super().reset_parameters()

    def packed(self):
        return self.weight.t()


answer = getattr(Own(2, 2), "missing", 3), getattr(Own(2, 2), "width", 0), Kept(2, 2).packed().shape
"""
    )
    assert made["answer"] == (3, 2, (2, 2))


def test_honest_code_runs_as_it_would() -> None:
    made = run(
        """
import logging
from collections import namedtuple

Pair = namedtuple("Pair", "a b")
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Settings:
    block: int = 3


class Shape(typing.NamedTuple):
    rows: int


class Mode(enum.Enum):
    FAST = 1


class Base(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    def size(self): ...


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self._kept = nn.Linear(2, 2)
        self._kept.bias = None
        self.count = 0
        setattr(self, "weight_0", 1)

    def _apply(self, fn, recurse=True):
        return super()._apply(fn, recurse)

    def forward(self, x):
        self.count += 1
        logger.debug("call %d", self.count)
        return self._kept(x.t().contiguous()) * getattr(self, f"weight_{0}")


@functools.cache
def size() -> int:
    return 5


kind = type(Own()) is Own and isinstance(Own, type)
total = Settings().block + Shape(2).rows + Pair(1, 2).b + size() + Mode.FAST.value
same = torch.nn is nn
answer = Own().to(torch.float64)(torch.ones(2, 2, dtype=torch.float64)).shape
if __name__ == "__main__":
    raise SystemExit
"""
    )
    assert made["total"] == 13
    assert made["kind"] is True
    assert made["same"] is True
    assert made["answer"] == (2, 2)


def test_triton_finds_the_lines_that_run_where_no_file_is() -> None:
    text = "note = '\u2028 is no line end to Python'\r\ndef kernel(x):\r\n    return x + 1\r\n"
    module = execute(text, "lines_sample", "lines.py", restricted=True)
    assert not Path("lines.py").exists()
    assert inspect.getsource(module.kernel) == "def kernel(x):\n    return x + 1\n"
    assert lines_of("a\x0c\u2028b\r\nc") == ["a\x0c\u2028b\n", "c\n"]


def test_what_was_patched_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Snapshot()
    assert before.changed() == []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *_: None, raising=False)
    assert "torch.Tensor.copy_" in before.changed()
    monkeypatch.undo()
    monkeypatch.setattr("egg.evaluator.operators.ops.NEUTRAL", frozenset())
    assert before.changed() == ["egg.evaluator.operators.ops.NEUTRAL"]
    monkeypatch.undo()
    monkeypatch.setattr(execute, "__code__", lines_of.__code__)
    assert any("execute has other code" in name for name in before.changed())


def test_a_live_object_that_hides_a_method_is_named() -> None:
    before = Snapshot()
    modules = Modules(set())
    assert before.changed() == []
    modules.check_value = lambda value, name: None  # type: ignore[method-assign]
    assert before.changed() == ["egg.evaluator.restrict.modules.Modules.check_value of one object"]


def test_a_live_object_of_another_class_is_named() -> None:
    class Lenient(Modules):
        pass

    before = Snapshot()
    modules = Modules(set())
    modules.__class__ = Lenient
    assert before.changed() == ["egg.evaluator.restrict.modules.Modules became a " + Lenient.__qualname__]


def test_plain_format_strings_stay() -> None:
    text = "class F:\n    def format(self, x):\n        return x\n"
    text += "a = '{:>6.2f}|{0!r}|{x:{w}}'.replace('{0!r}', '{!r}').format(1.5, 'y', x=3, w=4)\n"
    text += "b = F().format(7)\nc = list(map(F().format, [1, 2]))\n"
    found = run(text)
    assert (found["a"], found["b"], found["c"]) == ("  1.50|'y'|   3", 7, [1, 2])


@pytest.mark.parametrize("text", ["said = ['{}'][0].format\n", "getattr('{}', 'format')\n"])
def test_a_strings_method_is_called_on_the_spot(text: str) -> None:
    with pytest.raises(RestrictedError, match="kept instead of called"):
        run(text)


def test_a_file_sees_the_objects_that_it_sees_elsewhere() -> None:
    """What restricted execution puts in the place of Python's own is printed, and answers, as that does."""
    text = """
import functools, logging

@functools.cache
def twice(n: int) -> int:
    return 2 * n

answers = [twice(3), twice(3)]
kinds = [type(twice).__name__, hasattr(twice, "cache_clear"), str(type), type.__name__]
logger = logging.getLogger("kernels")
kinds += [repr(logger), type(logger).__name__, logger.isEnabledFor(logging.DEBUG), logger.level]
"""
    plain: dict[str, object] = {}
    exec(text, plain)
    found = run(text)
    assert found["answers"] == plain["answers"] == [6, 6]
    assert found["kinds"] == plain["kinds"]
