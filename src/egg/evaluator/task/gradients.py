"""Forward and backward under grad mode, the same on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.evaluator.task.gradient_ways import PLAIN, Incoming, Overwritten, Way
from egg.evaluator.task.program import map_tensors, outputs_of


@dataclass(frozen=True)
class Differentiated:
    """What became of the gradients of one call."""

    requires: tuple[bool, ...]
    """Of every floating output: whether it can be differentiated. Where gradients are differentiated once
    more: of every gradient too, those that can be first; nothing where none can be."""
    gradients: dict[str, torch.Tensor | None]
    """By parameter name, and ``input 0``, ``input 1``, ... for the floating tensors of the inputs."""
    error: str = ""
    """What calling or ``backward`` raised; then there are no gradients."""
    intact: bool = True
    """Whether the gradients of the outputs are what they were: others may read them as well."""
    outputs: tuple[tuple[str, Any], ...] = ()
    """What the call returned, by name, apart from its graph."""


def differentiated(
    module: nn.Module,
    inputs: list[Any],
    seed: int,
    call: Callable[..., Any] | None = None,
    way: Way = PLAIN,
    ordinary: Callable[[Exception], bool] = lambda error: True,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Differentiated:
    """Call ``module`` with what ``way`` says requiring a gradient, and go back from all of its outputs.

    ``call`` stands for ``module`` where more is to be done around its call, and ``around`` is entered for the
    call and for ``backward`` alone. What ``backward`` raises is an answer where it is ``ordinary``; an access
    out of bounds, which a GPU may not notice, is none. The gradients of the outputs are drawn after ``seed``,
    rounded so that every dtype holds them exactly: runs in different precision go back from the same.
    """
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        own = tensor.detach()
        own = own.clone() if way.overwritten is Overwritten.INPUTS else own
        leaves.append(own.requires_grad_(way.wants(f"input {len(leaves)}")))
        return leaves[-1]

    arguments = map_tensors(inputs, leaf)
    others = map_tensors(inputs, _turned) if way.between else None
    module.zero_grad(set_to_none=True)
    with _frozen(module, way), torch.enable_grad():
        with around():
            returned = outputs_of((call or module)(*arguments))
        outputs = [t for _, t in returned if isinstance(t, torch.Tensor) and t.is_floating_point()]
        kept = tuple((path, _apart(leaf)) for path, leaf in returned)
        requires = tuple(bool(t.requires_grad) for t in outputs)
        read = [t for at, t in enumerate(outputs) if way.output in (None, at)]
        wanted = [t for t in read if t.requires_grad]
        if not wanted:
            return Differentiated(requires, {}, outputs=kept)
        incoming = [_laid(_drawn(t, seed + at), way.incoming) for at, t in enumerate(wanted)]
        copies = [t.clone() for t in incoming]
        try:
            if others is not None:
                (call or module)(*others)
                torch.autograd.backward(wanted, incoming, retain_graph=True)
                _forget(module, leaves)
            _overwrite({Overwritten.INPUTS: leaves, Overwritten.OUTPUTS: wanted}.get(way.overwritten, []))
            if way.second:
                firsts = _first(module, leaves, (wanted, incoming), around)
                if not _twice(firsts, seed):
                    return Differentiated((), {}, outputs=kept)
                requires += tuple(sorted((t.requires_grad for t in firsts), reverse=True))
            else:
                with around():
                    torch.autograd.backward(wanted, incoming)
        except Exception as error:
            if not ordinary(error):
                raise
            return Differentiated(requires, {}, f"{type(error).__name__}: {error}", outputs=kept)
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    found |= {f"input {at}": tensor.grad for at, tensor in enumerate(leaves)}
    module.zero_grad(set_to_none=True)
    return Differentiated(requires, found, intact=all(map(torch.equal, copies, incoming)), outputs=kept)


@torch.no_grad()
def _overwrite(tensors: list[torch.Tensor]) -> None:
    """Other values, of other sign and size, in the same memory; versions show it."""
    for tensor in tensors:
        tensor.mul_(-1.5).add_(0.5)


def _first(
    module: nn.Module,
    leaves: list[torch.Tensor],
    back: tuple[list[torch.Tensor], list[torch.Tensor]],
    around: Callable[[], AbstractContextManager[Any]],
) -> list[torch.Tensor]:
    """The gradients of everything that has one, with a graph of their own."""
    asked = [t for t in (*leaves, *module.parameters()) if t.requires_grad]
    with around():
        found = torch.autograd.grad(back[0], asked, back[1], create_graph=True, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def _twice(firsts: list[torch.Tensor], seed: int) -> bool:
    """Go back from gradients that can be differentiated; whether there are any."""
    again = [t for t in firsts if t.requires_grad]
    if again:
        torch.autograd.backward(again, [_drawn(t, seed - 1 - at) for at, t in enumerate(again)])
    return bool(again)


def _apart(leaf: Any) -> Any:
    """A copy: what comes after the call must not change what it returned."""
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in another order, which the program takes as well, or as they are."""
    if not tensor.is_floating_point() or not tensor.dim():
        return tensor
    return tensor.detach().flip(tensor.dim() - 1).requires_grad_()


def _forget(module: nn.Module, leaves: list[torch.Tensor]) -> None:
    module.zero_grad(set_to_none=True)
    for tensor in leaves:
        tensor.grad = None


@contextmanager
def _frozen(module: nn.Module, way: Way) -> Iterator[None]:
    """Meanwhile only those parameters require a gradient that are to."""
    held = [p for name, p in module.named_parameters() if p.requires_grad and not way.wants(name)]
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


def _laid(drawn: torch.Tensor, incoming: Incoming) -> torch.Tensor:
    """A gradient in another form; where it is expanded, its first element stands for all of them."""
    if incoming in (Incoming.EXPANDED, Incoming.CONSTANT) and drawn.numel():
        expanded = drawn.flatten()[:1].reshape((1,) * drawn.dim()).clone().expand(drawn.shape)
        return expanded if incoming is Incoming.EXPANDED else expanded.contiguous()
    if incoming is Incoming.STRIDED:
        gaps = torch.full((*drawn.shape, 2), float("nan"), dtype=drawn.dtype, device=drawn.device)
        gaps[..., 0] = drawn
        return gaps[..., 0]
    return drawn


def _drawn(output: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator(output.device).manual_seed(seed)
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.float32, device=output.device)
    return drawn.bfloat16().to(output.dtype)
