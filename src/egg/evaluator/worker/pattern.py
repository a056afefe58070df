"""A whole pattern in one file, tried out: ``Model`` and ``ModelNew`` on the file's own inputs.

Both stand in the same file and were written by the same hand, so nothing is held secret from it, as it is
from a candidate: the file is run, and answers with what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from egg.evaluator.offline import GpuTarget, capture
from egg.evaluator.offline.compile import compiled_rows
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.task.dimensions import leaves
from egg.evaluator.task.program import map_tensors, outputs_of
from egg.evaluator.transport.arena import poison
from egg.evaluator.worker.faults import Reported
from egg.evaluator.worker.launches import Launches
from egg.evaluator.worker.pretend import settle

SEED = 0
TOLERANCES = {
    torch.float64: (1e-6, 1e-8),
    torch.complex128: (1e-6, 1e-8),
    torch.float32: (2e-3, 1e-4),
    torch.complex64: (2e-3, 1e-4),
}
"""Relative and absolute, by the dtype of the output; wide enough for TF32 products in a float32 program."""
NARROW = (2e-2, 2e-2)


class PatternFault(Reported):
    """What is wrong with a pattern."""


def run(module: Any, launches: Launches, *, pretended: bool) -> dict[str, int]:
    """Run both models on the same weights and inputs; how often each kernel was launched.

    Where a GPU is ``pretended``, both models and the inputs are moved there.
    """
    launches.reset()
    reference, own = _built(module.Model, module), _built(module.ModelNew, module)
    _share_weights(reference, own)
    if pretended:
        for model in (reference, own):
            settle(model.to("cuda"))
    torch.manual_seed(SEED)
    given = list(module.get_inputs())
    device = "cuda" if pretended else "cpu"
    first, second = (map_tensors(given, lambda tensor: tensor.to(device).clone()) for _ in range(2))
    with torch.no_grad():
        torch.manual_seed(SEED)
        expected = reference(*first)
        if launches.counts():
            raise PatternFault("pattern.reference", "Model launches Triton kernels: they are held to it")
        torch.manual_seed(SEED)
        with Recorder(fill_empties=poison):
            found = own(*second)
    _compare("output", outputs_of(expected), outputs_of(found))
    _compare("input afterwards", _tensors(first), _tensors(second))
    counts = launches.counts()
    if not counts:
        raise PatternFault("pattern.no_kernel", "ModelNew launches no Triton kernel")
    return counts


def compiled(load: Callable[[], Any], target: GpuTarget) -> dict[str, int]:
    """Compile every launch of ``ModelNew`` for a GPU; registers by kernel.

    ``load`` imports the file, while the GPU seems to be there.
    """
    modules: list[Any] = []

    def build() -> nn.Module:
        modules.append(load())
        return _built(modules[-1].ModelNew, modules[-1]).to("cuda")

    def inputs() -> list[Any]:
        return [map_tensors(value, lambda tensor: tensor.to("cuda")) for value in modules[-1].get_inputs()]

    captured = capture(build, inputs, target)
    if not captured.launches:
        raise PatternFault("pattern.no_kernel", f"on {target.name} ModelNew launches no Triton kernel")
    return {row.name: row.registers for row in compiled_rows(captured)}


def _built(model: Any, module: Any) -> nn.Module:
    torch.manual_seed(SEED)
    return model(*module.get_init_inputs())


def _share_weights(reference: nn.Module, own: nn.Module) -> None:
    """Strictly where the names are the same; a model that keeps its weights otherwise was built alike."""
    state = reference.state_dict()
    try:
        own.load_state_dict(state, strict=state.keys() == own.state_dict().keys())
    except RuntimeError as error:
        raise PatternFault("pattern.weights", f"ModelNew does not take Model's weights: {error}") from None


def _tensors(inputs: list[Any]) -> list[tuple[str, Any]]:
    return [(".".join(map(str, path)), tensor) for path, tensor in leaves(inputs)]


def _compare(what: str, expected: list[tuple[str, Any]], found: list[tuple[str, Any]]) -> None:
    wanted, given = ([path for path, _ in tensors] for tensors in (expected, found))
    if wanted != given:
        difference = (
            f"{what} has {', '.join(given) or 'nothing'} where Model has {', '.join(wanted) or 'nothing'}"
        )
        raise PatternFault("pattern.outputs", difference)
    for (path, right), (_, own) in zip(expected, found, strict=True):
        _compare_leaf(f"{what} {path}", right, own)


def _compare_leaf(what: str, right: Any, own: Any) -> None:
    if not isinstance(right, torch.Tensor) or not isinstance(own, torch.Tensor):
        right, own = torch.as_tensor(right), torch.as_tensor(own)
    if right.shape != own.shape or right.dtype != own.dtype:
        difference = f"{tuple(own.shape)} {own.dtype} where Model gives {tuple(right.shape)} {right.dtype}"
        raise PatternFault("pattern.form", f"{what} is {difference}")
    loose = right.is_floating_point() or right.is_complex()
    relative, absolute = TOLERANCES.get(right.dtype, NARROW) if loose else (0.0, 0.0)
    try:
        torch.testing.assert_close(own, right, rtol=relative, atol=absolute, equal_nan=True)
    except AssertionError as error:
        raise PatternFault("pattern.wrong", f"{what} is wrong: {' '.join(str(error).split())}") from None
