"""Does a plan's constructor make what the task's makes? Both are run, under several seeds, and compared.

A plan's constructor is cut from the task's text (:mod:`egg.evaluator.plan.skeleton`), and what is cut off may
have been needed. What runs here is the task's text and the frame's, nothing of an author.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.plan.assemble import constructor_text, form_literal
from egg.evaluator.plan.record import path
from egg.evaluator.plan.spelling import Unspelled, values_in
from egg.evaluator.task.program import Program
from egg.evaluator.task.seeds import BUILD_SEED

SEEDS = (BUILD_SEED, 1_000_003, 7, 2**31 - 1, 99, 123_456)
"""Of a module that is built quickly; two of one with many numbers."""
QUICK = 2**20
CPU = torch.device("cpu")
WITHOUT_CALLS = "\n\ndef get_inputs():\n    return []\n\n\ndef get_init_inputs():\n    return []\n"
HINT = "let the task's constructor need nothing but classes, functions and constants of its file"
DRAWN = "let the constructor draw parameters and buffers only, or take the number as an argument"
Found = dict[str, Any]


def check(task: Task) -> None:
    """Raises :class:`Unspelled` where a plan would be built otherwise than the task, or where what the task
    keeps beside its parameters and buffers depends on the seed."""
    text = constructor_text(task.source)
    with Program.load(task) as program, Program.load(Task(task.name, text + WITHOUT_CALLS)) as plan:
        kept: list[Found] = []
        for number, seed in enumerate(SEEDS):
            with _seeded(seed):
                theirs = program.build(seed, CPU, Precision.MATCH)
            with _seeded(seed):
                ours = _built(program, plan, seed)
            for wanted, made in ((_state(theirs), _state(ours)), (_beside(theirs), _beside(ours))):
                if wrong := differing(wanted, made):
                    raise Unspelled(f"the constructor of a plan makes another {wrong} than the task's", HINT)
            kept.append(_beside(theirs))
            if wrong := differing(kept[0], kept[-1]):
                raise Unspelled(f"{wrong} depends on the seed, and is no parameter or buffer", DRAWN)
            if number and sum(t.numel() for t in theirs.state_dict().values()) > QUICK:
                break


def settings(module: nn.Module) -> dict[str, Any]:
    """Plain public attributes of a module and its parts, by the expressions that stand for them."""
    found = {}
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            parts = [*(name.split(".") if name else []), key]
            public = all(p.isidentifier() or p.isdecimal() for p in parts) and not key.startswith("_")
            if public and key not in ("training", "built_with") and _is_plain(value):
                found[path(".".join(parts))] = value
    return found


def _is_plain(value: Any) -> bool:
    return all(leaf is None or type(leaf) in (bool, int, float, str) for leaf in values_in(value)) and (
        type(value) in (bool, int, float, str, list, tuple, type(None))
    )


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


def _beside(module: nn.Module) -> Found:
    """What a module holds in plain attributes: numbers as their forms, and tensors."""
    found: Found = {name: form_literal(value) for name, value in settings(module).items()}
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
