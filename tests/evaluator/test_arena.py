"""Shared memory: every kind of tensor, seen alike by two processes, each within its own extent."""

from __future__ import annotations

import base64
import itertools
import os
import pickle
import subprocess
import sys

import pytest
import torch

from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport.arena import ALIGNMENT, Layout, extent, poison
from egg.evaluator.transport.strict import plain
from egg.evaluator.transport.wire import Channel

CPU = torch.device("cpu")

TENSORS = {
    "plain": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "every_other": torch.arange(20.0)[::2],
    "inner_block": torch.arange(48.0).reshape(6, 8)[1:4, 2:5],
    "expanded": torch.arange(3.0).reshape(3, 1).expand(3, 5),
    "expanded_scalar": torch.tensor(2.5).expand(4, 4),
    "empty": torch.empty(0, 3),
    "zero_dim": torch.tensor(7.0),
    "bool": torch.tensor([True, False, True]),
    "int8": torch.tensor([-128, 127], dtype=torch.int8),
    "int64": torch.tensor([[2**62, -(2**62)]]),
    "bf16": torch.tensor([1.0, 2.5, -3.0e38], dtype=torch.bfloat16),
    "fp16": torch.tensor([65504.0, 1e-7], dtype=torch.float16),
    "fp64": torch.tensor([1e300, -0.0], dtype=torch.float64),
    "complex": torch.tensor([1 + 2j, -3.5j]),
    "nan_and_inf": torch.tensor([float("nan"), float("inf"), -float("inf")]),
    "channels_last": torch.arange(48.0).reshape(1, 3, 4, 4).to(memory_format=torch.channels_last),
}

OTHER_PROCESS = """
import base64, pickle, socket, sys, torch
from egg.evaluator.transport import arena as arenas
from egg.core.codec import from_json
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.wire import Channel

channel = Channel(socket.socket(fileno=int(sys.argv[1])))
message, fds = channel.receive()
arena = arenas.attach(message["handle"], fds)
views = {name: arena.view(from_json(Slot, slot)) for name, slot in message["slots"].items()}
seen = {name: view.clone() for name, view in views.items()}
for view in views.values():
    storage = torch.tensor([], dtype=view.dtype).set_(view.untyped_storage())
    storage.copy_(torch.ones_like(storage))
answer = {name: (t, views[name].stride(), views[name].untyped_storage().nbytes()) for name, t in seen.items()}
channel.send({"seen": base64.b64encode(pickle.dumps(answer)).decode()})
"""


def placed(tensors: dict[str, torch.Tensor]):
    """An arena that holds ``tensors``, and where each lies."""
    layout = Layout()
    slots = {name: layout.place(tensor) for name, tensor in tensors.items()}
    arena = arenas.create(layout.size, CPU)
    for name, tensor in tensors.items():
        view = arena.view(slots[name])
        if view.numel():
            span = extent(tensor.shape, tensor.stride(), 1)
            view.as_strided((span,), (1,)).copy_(tensor.as_strided((span,), (1,)))
    return arena, slots


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


@pytest.fixture(scope="module")
def conversation():
    """What another process saw, and our own views after it wrote ones everywhere."""
    arena, slots = placed(TENSORS)
    ours, theirs = Channel.pair()
    ours.sock.settimeout(60)
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(theirs.fileno())], pass_fds=(theirs.fileno(),)
    )
    theirs.close()
    message = {"handle": arena.handle(), "slots": {name: plain(slot) for name, slot in slots.items()}}
    ours.send(message, arena.fds())
    seen = pickle.loads(base64.b64decode(ours.receive()[0]["seen"]))
    assert process.wait(60) == 0
    yield seen, {name: arena.view(slot) for name, slot in slots.items()}
    ours.close()
    arena.close()


@pytest.mark.parametrize("name", TENSORS)
def test_another_process_sees_the_same_tensor(conversation, name):
    seen, _ = conversation
    tensor, stride, nbytes = seen[name]
    original = TENSORS[name]
    assert equal(tensor, original)
    assert stride == original.stride()
    assert nbytes == extent(original.shape, original.stride(), original.element_size())


@pytest.mark.parametrize("name", TENSORS)
def test_what_another_process_writes_arrives(conversation, name):
    _, views = conversation
    assert equal(views[name], torch.ones_like(TENSORS[name]))


@pytest.mark.parametrize("name", TENSORS)
def test_a_view_has_a_storage_of_exactly_its_extent(name):
    tensor = TENSORS[name]
    arena, slots = placed({"before": torch.zeros(5), name: tensor, "after": torch.zeros(5)})
    view = arena.view(slots[name])
    wanted = extent(tensor.shape, tensor.stride(), tensor.element_size())
    assert view.untyped_storage().nbytes() == wanted == slots[name].nbytes
    assert view.storage_offset() == 0
    assert view.stride() == tensor.stride()
    if wanted:
        assert view.data_ptr() == view.untyped_storage().data_ptr()
        assert view.data_ptr() % ALIGNMENT == 0
    arena.close()


def test_slots_do_not_overlap():
    layout = Layout()
    slots = [layout.place(tensor) for tensor in TENSORS.values()]
    for first, second in itertools.pairwise(slots):
        assert first.offset % ALIGNMENT == 0
        assert first.offset + max(first.nbytes, 1) <= second.offset
    assert slots[-1].offset + slots[-1].nbytes <= layout.size


def test_views_keep_the_memory_alive_after_the_arena_is_closed():
    arena, slots = placed({"x": torch.arange(1000.0)})
    view = arena.view(slots["x"])
    arena.close()
    del arena
    assert view.sum() == 499500


@pytest.mark.parametrize("name", [n for n in TENSORS if TENSORS[n].numel()])
def test_poison_is_no_honest_value(name):
    tensor = torch.ones_like(TENSORS[name]).contiguous()
    poison(tensor)
    if tensor.is_floating_point() or tensor.is_complex():
        assert torch.isnan(tensor).all()
    elif tensor.dtype is not torch.bool:
        assert (tensor == torch.iinfo(tensor.dtype).min).all()


@pytest.mark.parametrize("size", [0, 1, ALIGNMENT * 64])
def test_nobody_can_change_the_size_of_the_memory(size):
    """A candidate holds the descriptor; truncating it would end the oracle by SIGBUS at its next access."""
    arena = arenas.create(1 << 14, CPU)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fds()[0], size)
    arena.close()


def test_an_empty_task_still_has_an_arena():
    arena = arenas.create(0, CPU)
    assert arena.handle()["size"] >= 1
    arena.close()
