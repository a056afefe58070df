"""The constructor of a plan: cut from the task's, and it must make the same."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.evaluator.judge.constructors import check, private_names, settings
from egg.evaluator.plan.assemble import Signature, constructor_text, form_literal
from egg.evaluator.plan.skeleton import skeleton
from egg.evaluator.plan.spelling import Unspelled
from egg.evaluator.plan.verify import findings
from egg.evaluator.task.program import Program

HEAD = """
import random
from dataclasses import dataclass
import torch
import torch.nn as nn
"""
TAIL = """
    def forward(self, x):
        return self.helped(torch.relu(x)) * self.w

    def helped(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []

if __name__ == "__main__":
    print(Model()(*get_inputs()))
"""
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {}
"""


def task_of(before: str, constructed: str) -> Task:
    return Task("t", HEAD + before + MODEL.format(constructed.replace("; ", "\n        ")) + TAIL)


RESET = (
    "class Scale(nn.Linear):\n    def reset_parameters(self):\n        nn.init.constant_(self.weight, 2.0)\n"
)
POST = "@dataclass\nclass C:\n    std: float = 1.0\n    def __post_init__(self):\n        self.std *= 500\n"
BUILT = {
    "draws": ("", "self.w = nn.Parameter(torch.randn(8))"),
    "draws of Python": ("", "self.w = nn.Parameter(torch.ones(8) * random.random())"),
    "a method of the library's constructor": (RESET, "self.w = Scale(8, 1, bias=False).weight"),
    "a method of a dataclass": (POST, "self.w = nn.Parameter(torch.randn(8) * C().std)"),
    "a statement that changes a table": (
        "T = {'std': 0.1}\nT['std'] = 5.0\n", "self.w = nn.Parameter(torch.randn(8) * T['std'])"
    ),
    "a function that changes a table": (
        "T = {'std': 0.1}\ndef put():\n    T['std'] = 5.0\nput()\n",
        "self.w = nn.Parameter(torch.randn(8) * T['std'])",
    ),
    "an overridden method of a module": (
        "class Two(nn.Module):\n    def register_buffer(self, name, value):\n"
        "        super().register_buffer(name, value * 2)\n",
        "self.part = Two(); self.part.register_buffer('v', torch.ones(8)); self.w = 1",
    ),
    "a table beside the state": ("", "self.table = torch.arange(8); self.w = nn.Parameter(torch.randn(8))"),
}  # fmt: skip
REFUSED = {
    "a number that is drawn": (
        "",
        "self.shift = int(torch.randint(1, 99, (1,))); self.w = nn.Parameter(torch.ones(8))",
    ),
    "a table that is drawn": ("", "self.table = torch.randn(8); self.w = nn.Parameter(torch.ones(8))"),
    "a forward that the constructor calls": (
        "class Five(nn.Module):\n    def forward(self, x):\n        return x * 5\n",
        "self.w = nn.Parameter(Five()(torch.ones(8)))",
    ),
    "a change under another name": (
        "T = {'std': 0.1}\n_ = T.update(std=5.0)\n", "self.w = nn.Parameter(torch.randn(8) * T['std'])"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILT)
def test_a_plan_is_built_as_the_task_is(name: str) -> None:
    task = task_of(*BUILT[name])
    check(task)
    text = constructor_text(task.source)
    assert "relu" not in text
    assert "print(" not in text


@pytest.mark.parametrize("name", REFUSED)
def test_a_constructor_that_a_plan_cannot_repeat_is_refused(name: str) -> None:
    with pytest.raises(Unspelled):
        check(task_of(*REFUSED[name]))


def guarded(before: str, constructed: str) -> tuple[str, Task]:
    """A plan that returns its input, with the settings of the module in its guard."""
    from egg.evaluator.plan.assemble import assembled

    task = task_of(before, constructed)
    with Program.load(task) as program:
        kept = settings(program.module.__dict__["Model"](), private_names(task.source))
    form = "(('list', ('tensor', (4, 8), (8, 1), torch.float32)), ('list',), ('list',), [True, True])"
    kernel = "import triton\n@triton.jit\ndef k(x):\n    pass\n"
    signature = Signature(form, ("k[(1,)](1)",), "x", tuple(kept), form_literal(list(kept.values())))
    return assembled(task.source, kernel, ["k"], [signature], "a\rb"), task


def test_attributes_of_a_part_are_compared() -> None:
    import torch

    text, task = guarded("", "self.act = nn.LeakyReLU(0.25); self.w = 1.0")
    assert "form_of([self.w, self.act.negative_slope, self.act.inplace])" in text
    assert not findings(text, task.source, (), ())
    held: dict[str, object] = {}
    exec(text.replace("k[(1,)](1)", "pass").replace("@triton.jit", ""), held)
    module, x = held["ModelNew"](), torch.ones(4, 8)  # pyright: ignore
    assert module(x) is x
    for value in (-0.0, 0.5, float("nan")):
        module.act.negative_slope = value
        with pytest.raises(ValueError, match="no such call"):
            module(x)
    module.act.negative_slope = 0.25
    with pytest.raises(RuntimeError, match="negated"):
        module(torch._neg_view(x))  # pyright: ignore
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="tangent"):
        module(torch.autograd.forward_ad.make_dual(x, x))
    with pytest.raises(RuntimeError, match="tangent"):
        torch.func.jvp(module, (x,), (x,))  # pyright: ignore[reportPrivateImportUsage]
    module.register_buffer("b", torch.ones(1, requires_grad=True))
    with torch.enable_grad(), pytest.raises(RuntimeError, match="no gradients"):
        module(x)


PARTS = """
class Gain(nn.Module):
    floor = 0.5
    def __init__(self):
        super().__init__()
        self._scale = 3.0
        self.options = {"shift": 0.5, "kind": torch.float16}
"""


def test_private_numbers_dictionaries_and_numbers_of_a_class_are_compared() -> None:
    import torch

    text, task = guarded(PARTS, "self.gain = Gain(); self.w = 1.0")
    assert "form_of([self.w, self.gain.floor, self.gain._scale, self.gain.options])" in text
    assert not findings(text, task.source, (), ())
    held: dict[str, object] = {}
    exec(text.replace("k[(1,)](1)", "pass").replace("@triton.jit", ""), held)
    module, x = held["ModelNew"](), torch.ones(4, 8)  # pyright: ignore
    assert module(x) is x
    gain = module.gain
    for change, back in (
        (lambda: setattr(gain, "_scale", 4.0), lambda: setattr(gain, "_scale", 3.0)),
        (lambda: gain.options.update(shift=0.25), lambda: gain.options.update(shift=0.5)),
        (lambda: gain.options.update(kind=torch.float32), lambda: gain.options.update(kind=torch.float16)),
        (lambda: setattr(type(gain), "floor", 0.0), lambda: setattr(type(gain), "floor", 0.5)),
    ):
        change()
        with pytest.raises(ValueError, match="no such call"):
            module(x)
        back()
        assert module(x) is x


def test_a_private_number_that_no_statement_names_cannot_be_compared() -> None:
    hidden = PARTS.replace("self._scale = 3.0", "setattr(self, '_sc' + 'ale', 3.0)")
    with pytest.raises(Unspelled, match="which no statement names"):
        guarded(hidden, "self.gain = Gain(); self.w = 1.0")


def test_what_a_library_keeps_of_its_layers_is_not_compared() -> None:
    text, _ = guarded("", "self.cell = nn.LSTM(8, 8); self.w = 1.0")
    assert "._" not in text.partition("form_of([self.w")[2].partition("]")[0]


def test_a_private_number_that_is_drawn_is_refused() -> None:
    with pytest.raises(Unspelled, match="depends on the seed"):
        check(task_of("", "self._shift = int(torch.randint(1, 99, (1,))); self.w = 1.0"))


def test_a_method_that_only_a_call_leads_to_is_left_out() -> None:
    made = skeleton(task_of("", "self.w = 1").source)
    assert len(made.before) == 1
