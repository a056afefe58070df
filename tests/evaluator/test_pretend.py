"""A worker without a GPU answers a candidate's questions as the target would."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable

import pytest
import torch

from egg.evaluator.restrict.names import CANDIDATE_FILE
from egg.evaluator.tensors import hosts
from egg.evaluator.worker.outputs import HOST, describe
from egg.evaluator.worker.pretend import ClaimCuda

ASKS = """
import torch
from egg.evaluator.offline.target import resolve_target
from egg.evaluator.worker.pretend import answer_for

answer_for(resolve_target("sm_90"))
print(torch.cuda.is_available(), torch.cuda.is_current_stream_capturing())
"""
PRINTS = """
import torch
from egg.evaluator.offline.target import resolve_target
from egg.evaluator.worker.pretend import answer_for

QUERIES = ("is_available", "get_device_properties", "synchronize", "is_current_stream_capturing")

def shown():
    found = [getattr(torch.cuda, name) for name in QUERIES]
    return [(repr(f).split(" at ")[0], f.__name__, f.__module__, type(f)) for f in found]

before = shown()
answer_for(resolve_target("sm_90"))
print(before == shown())
with torch.cuda.device(torch.device("cuda", 0)):
    try:
        torch.cuda.is_available(1)
    except TypeError:
        print("raises")
"""


def test_a_file_that_replays_a_recording_makes_its_launches() -> None:
    """It asks first whether a recording is under way; without a driver PyTorch itself raises there."""
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_a_query_is_printed_and_called_as_pytorchs() -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "raises"], done.stderr


# -- where tensors would lie ---------------------------------------------------------------------------------

HOST_CODE = """
import torch
from torch import nn

def module_in_a_list():
    held = [nn.LayerNorm(4)]
    return held[0].weight

def module_that_is_moved():
    return nn.LayerNorm(4).to("cuda").weight

def view_of_a_parameter_before_it_moved():
    layer = nn.Linear(4, 4)
    view = layer.weight.t()
    layer.cuda()
    return view

def made_without_a_device():
    return torch.linspace(0, 1, 4)

def made_with_one(x):
    return torch.linspace(0, 1, 4, device=x.device)

def made_by_number():
    return torch.zeros(4, device=0)

def answer_on_the_host(x):
    return (x * 2).cpu()

def parameter_of_an_input(x):
    return nn.Parameter(x.clone())

def mixed(x):
    return x * torch.linspace(0, 1, 4)

def mixed_with_a_number(x):
    return x * torch.tensor(2.0)

def indexed_from_the_host(x):
    return x[torch.tensor([1, 0])]

def host_indexed_from_the_device(x):
    return torch.arange(4)[x.long()]

def written_from_the_host(x):
    return x.clone().copy_(torch.ones(4))

def second_device(x):
    return torch.zeros(4, device="cuda:1")

def second_device_by_number(x):
    return x.cuda(1)

def copied_without_waiting(x):
    there = torch.zeros(4)
    there.copy_(x, non_blocking=True)
    return there.clone()

def copied_and_waited(x):
    there = torch.zeros(4)
    there.copy_(x, non_blocking=True)
    x.sum().item()
    return there.clone()
"""


@pytest.fixture(scope="module")
def pretended() -> Callable[..., torch.Tensor]:
    """Calls functions of a file as the worker does, with an input that lies on the GPU."""
    candidate = types.ModuleType("any_name")
    candidate.__file__ = CANDIDATE_FILE
    exec(HOST_CODE, candidate.__dict__)

    def call(name: str) -> torch.Tensor:
        function = getattr(candidate, name)
        given = [torch.tensor([1.0, 2.0, 3.0, 0.0])][: function.__code__.co_argcount]
        with ClaimCuda():
            return function(*given)

    return call


@pytest.mark.parametrize(
    "name",
    [
        "module_in_a_list",
        "view_of_a_parameter_before_it_moved",
        "made_without_a_device",
        "answer_on_the_host",
    ],
)
def test_what_is_made_without_a_device_is_on_the_host(pretended, name: str) -> None:
    assert hosts.on_host(pretended(name))
    assert describe("0", pretended(name).detach()).device == HOST


@pytest.mark.parametrize(
    "name",
    [
        "module_that_is_moved", "made_with_one", "made_by_number", "parameter_of_an_input",
        "mixed_with_a_number", "indexed_from_the_host", "written_from_the_host",
    ],
)  # fmt: skip
def test_what_is_moved_or_made_of_inputs_is_on_the_device(pretended, name: str) -> None:
    assert not hosts.on_host(pretended(name))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mixed", "same device"), ("host_indexed_from_the_device", "same device"),
        ("second_device", "invalid device ordinal"), ("second_device_by_number", "invalid device ordinal"),
    ],
)  # fmt: skip
def test_what_raises_on_a_gpu_raises(pretended, name: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        pretended(name)


def test_a_copy_that_nothing_waited_for_holds_anything(pretended) -> None:
    assert pretended("copied_without_waiting").isnan().all()
    hosts.arrive()
    assert pretended("copied_and_waited").tolist() == [1.0, 2.0, 3.0, 0.0]


def test_memory_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_NOTED", {})
    monkeypatch.setattr(hosts, "_SWEEP", 8)
    kept = torch.zeros(3)
    hosts.leave_on_host(kept)
    for _ in range(100):
        hosts.leave_on_host(torch.zeros(2))
    assert len(hosts._NOTED) <= 8
    assert hosts.on_host(kept[1:])
