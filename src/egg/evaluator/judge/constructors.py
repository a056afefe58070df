"""Does a plan's constructor make what the task's makes? Both are run, under several seeds, and compared.

A plan's constructor is cut from the task's text (:mod:`egg.evaluator.plan.skeleton`), and what is cut off may
have been needed. What runs here is the task's text and the frame's, nothing of an author.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.plan.assemble import constructor_text, form_literal
from egg.evaluator.plan.kernels import bound_names
from egg.evaluator.plan.record import path
from egg.evaluator.plan.skeleton import skeleton
from egg.evaluator.plan.spelling import Unspelled, values_in
from egg.evaluator.task.program import Program
from egg.evaluator.task.seeds import BUILD_SEED

SEEDS = (BUILD_SEED, 1_000_003, 7, 2**31 - 1, 99, 123_456)
"""Of a module that is built quickly; two of one with many numbers."""
QUICK = 2**20
CPU = torch.device("cpu")
WITHOUT_CALLS = "\n\ndef get_inputs():\n    return []\n\n\ndef get_init_inputs():\n    return []\n"
HINT = "let the task's constructor need nothing but classes, functions and constants of its file"
NAMED = "assign it by name in the constructor (self._scale = scale), or give it a public name"
DRAWN = "let the constructor draw parameters and buffers only, or take the number as an argument"
Found = dict[str, Any]


def check(task: Task) -> None:
    """Raises :class:`Unspelled` where a plan would be built otherwise than the task, or where what the task
    keeps beside its parameters and buffers depends on the seed."""
    text, own = constructor_text(task.source), private_names(task.source)
    with Program.load(task) as program, Program.load(Task(task.name, text + WITHOUT_CALLS)) as plan:
        kept: list[Found] = []
        for number, seed in enumerate(SEEDS):
            with _seeded(seed):
                theirs = program.build(seed, CPU, Precision.MATCH)
            with _seeded(seed):
                ours = _built(program, plan, seed)
            for wanted, made in ((_state(theirs), _state(ours)), (_beside(theirs, own), _beside(ours, own))):
                if wrong := differing(wanted, made):
                    raise Unspelled(f"the constructor of a plan makes another {wrong} than the task's", HINT)
            kept.append(_beside(theirs, own))
            if wrong := differing(kept[0], kept[-1]):
                raise Unspelled(f"{wrong} depends on the seed, and is no parameter or buffer", DRAWN)
            if number and sum(t.numel() for t in theirs.state_dict().values()) > QUICK:
                break


def settings(module: nn.Module, own: Collection[str] = ()) -> dict[str, Any]:
    """Plain attributes of a module and its parts, by the expressions that stand for them: those of instances,
    and those that the task's classes have for all of theirs.

    ``own`` are the private names that the task's text gives (:func:`private_names`): a plan may read these.
    Raises :class:`Unspelled` where a part of the task's keeps a number under a private name that is none.
    """
    found = {}
    for name, part in module.named_modules():
        for key, value in _attributes(part).items():
            parts = [*(name.split(".") if name else []), key]
            if not _is_plain(value) or not all(p.isidentifier() or p.isdecimal() for p in parts):
                continue
            if key.startswith("_") and key not in own:
                if _is_library(type(part)):
                    continue
                raise Unspelled(
                    f"a number is kept in {path('.'.join(parts))}, which no statement names", NAMED
                )
            found[path(".".join(parts))] = value
    return found


def private_names(task_source: str) -> frozenset[str]:
    """The private names that a plan's constructor gives to attributes of ``self``, or its classes define."""
    found: set[str] = set()
    for part in skeleton(task_source).before:
        for node in ast.walk(part):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.ClassDef():
                    found |= {n for statement in node.body for n in bound_names(statement)}
    return frozenset(name for name in found if name.startswith("_") and not name.startswith("__"))


def _attributes(part: nn.Module) -> dict[str, Any]:
    """What ``nn.Module`` itself keeps of a module left out, and what a library's class has for all."""
    found: dict[str, Any] = {}
    for kind in reversed(type(part).__mro__):
        if issubclass(kind, nn.Module) and not _is_library(kind):
            found |= {key: value for key, value in vars(kind).items() if not key.startswith("__")}
    found |= vars(part)
    usual = {*vars(nn.Module()), "built_with"}
    return {key: value for key, value in found.items() if key not in usual}


def _is_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


def _is_plain(value: Any) -> bool:
    """Whether it is spelled as a literal: numbers, texts and types of numbers, and containers of these."""
    if type(value) is dict:
        return all(type(key) in (bool, int, str) and _is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str, torch.dtype)


def differing(wanted: Found, made: Found) -> str:
    """The first name under which the two hold something else."""
    for name in [*wanted, *made]:
        if name not in wanted or name not in made or not _alike(wanted[name], made[name]):
            return name
    return ""


def _alike(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and one == other
    if form_literal(one) != form_literal(other) or one.requires_grad != other.requires_grad:
        return False
    return one.is_meta or torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _state(module: nn.Module) -> Found:
    found: Found = dict(module.named_parameters(remove_duplicate=False))
    found |= dict(module.named_buffers(remove_duplicate=False))
    found |= {f"mode of {name or 'Model'}": part.training for name, part in module.named_modules()}
    return found


def _beside(module: nn.Module, own: Collection[str]) -> Found:
    """What a module holds in plain attributes: numbers as their forms, and tensors."""
    found: Found = {name: form_literal(value) for name, value in settings(module, own).items()}
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if key.startswith("_"):
                continue
            tensors = [leaf for leaf in values_in(value) if isinstance(leaf, torch.Tensor)]
            found |= {f"{name}.{key}[{place}]": tensor for place, tensor in enumerate(tensors)}
    return found


def _built(program: Program, plan: Program, seed: int) -> nn.Module:
    args, kwargs = program.init_arguments()
    torch.manual_seed(seed)
    try:
        with plan.blaming("the constructor of a plan"), torch.no_grad():
            return plan.module.__dict__["ModelNew"](*args, **kwargs)
    except TaskError as error:
        raise Unspelled(f"a plan cannot be built: {error}", HINT) from error


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draws by the generators of PyTorch, Python and NumPy begin alike, and go on as before behind it."""
    numpy = sys.modules.get("numpy")
    before = random.getstate(), numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(seed)
            if numpy:
                numpy.random.seed(seed)
            yield
    finally:
        random.setstate(before[0])
        if numpy:
            numpy.random.set_state(before[1])
