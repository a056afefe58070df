"""What a forward returned: plain tensors in plain containers, described and copied to the oracle;
whose memory they lie in.

A result that computes when it is read would do so behind the stopwatch. So a tensor's type must
be ``torch.Tensor`` itself, by identity, without attributes of its own, and a container's a built-in one.
The copy is made by a function that was bound before there was a candidate.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from egg.evaluator.restrict.names import RestrictedError
from egg.evaluator.task.program import map_tensors, outputs_of
from egg.evaluator.tensors import hosts
from egg.evaluator.transport.freshen import span
from egg.evaluator.transport.protocol import OutputForm
from egg.evaluator.worker.held import state_of

_copy = torch.Tensor.copy_
_Tensor = torch.Tensor
CONTAINERS = (list, tuple, dict, OrderedDict)
KEYS = (str, int, float, bool, type(None), tuple)
PLAIN = "Tensor"
LEARNING = "Tensor that requires a gradient of its own, where the reference's is a result"
UNRESOLVED = ", to be conjugated or negated by each reader (.resolve_conj() carries it out)"
HOST = "the host's memory"
"""In place of a device: where a tensor would lie if there were the GPU that is pretended."""


def leaves_of(result: Any) -> list[tuple[str, Any]]:
    """The named leaves of a result whose containers are plain."""
    for part in _containers(result):
        kind = type(part)
        named = issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__iter__ is tuple.__iter__
        if kind not in CONTAINERS and not named:
            raise RestrictedError(f"forward returns a {kind.__qualname__}", "correctness.type")
        if isinstance(part, dict) and any(type(key) not in KEYS for key in part):
            raise RestrictedError("forward returns a dictionary with keys of its own", "correctness.type")
    return outputs_of(result)


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | dict):
        yield value
        if type(value) in CONTAINERS or isinstance(value, tuple):
            for item in value.values() if isinstance(value, dict) else value:
                yield from _containers(item)


def outlasting(leaves: list[tuple[str, Any]], written: Mapping[str, torch.Tensor]) -> list[tuple[str, Any]]:
    """Outputs to be held; copies of what lies in ``written`` inputs, whose values the next call replaces."""
    return [
        (path, leaf.clone())
        if isinstance(leaf, torch.Tensor) and any(overlap(leaf, one) for one in written.values())
        else (path, leaf)
        for path, leaf in leaves
    ]


def copy_out(result: Any, destinations: list[torch.Tensor | None]) -> None:
    """Into memory of the oracle's; nothing of the result has a name when the next call begins."""
    for destination, (_, leaf) in zip(destinations, leaves_of(result), strict=True):
        if isinstance(destination, _Tensor) and isinstance(leaf, _Tensor):
            lay(destination, leaf)


def lay(destination: torch.Tensor, leaf: torch.Tensor) -> None:
    """Copy one output, if it is a plain tensor; the oracle finds the poison there otherwise."""
    if kind_of(leaf) == PLAIN:
        _copy(as_bytes(destination), as_bytes(leaf))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Truth values as bytes, anything else as it is: a copy of PyTorch's would make 1 of a 2."""
    truth = tensor.dtype is torch.bool and tensor.layout == torch.strided
    return tensor.view(torch.uint8) if truth else tensor


def kind_of(leaf: torch.Tensor) -> str:
    """``Tensor`` for a plain one, else what is wrong with it."""
    if type(leaf) is not _Tensor:
        return f"{type(leaf).__module__}.{type(leaf).__qualname__}"
    held = sorted(vars(leaf))
    if held:
        return f"Tensor with attributes {', '.join(held)}"
    if leaf.is_leaf and leaf.requires_grad:
        return LEARNING
    return "Tensor with a gradient" if leaf.is_leaf and leaf.grad is not None else PLAIN


def describe(path: str, leaf: Any) -> OutputForm:
    if not isinstance(leaf, _Tensor):
        whole = isinstance(leaf, int)
        return OutputForm(path, "number", number=_as_float(leaf), whole=f"{int(leaf):x}" if whole else None)
    return OutputForm(
        path,
        kind_of(leaf),
        shape=tuple(leaf.shape),
        dtype=str(leaf.dtype),
        device=HOST if hosts.on_host(leaf) else leaf.device.type,
        layout=layout_of(leaf),
        stride=tuple(leaf.stride()) if leaf.layout == torch.strided else (),
        storage=storage_of(leaf),
    )


def _as_float(number: Any) -> float:
    """A number that floats do not reach is infinite; of an integer the digits go along."""
    if isinstance(number, complex):
        return abs(number)
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def layout_of(leaf: torch.Tensor) -> str:
    """With what PyTorch only notes of it: a conjugation or negation that each reader has to carry out."""
    return f"{leaf.layout}{UNRESOLVED}" if leaf.is_conj() or leaf.is_neg() else str(leaf.layout)


def resolved(layout: str) -> str:
    """The layout of the same tensor with that carried out."""
    return layout.removesuffix(UNRESOLVED)


def storage_of(leaf: torch.Tensor) -> int:
    """The address of the memory that a tensor looks at; 0 where there is none."""
    if leaf.layout != torch.strided or not leaf.numel():
        return 0
    return leaf.untyped_storage().data_ptr()


def aliases(
    leaves: list[tuple[str, Any]], arguments: Any, module: torch.nn.Module | None
) -> list[tuple[str, str]]:
    """Pairs of an output and what it shares elements with: another output, an input, a parameter, itself."""
    held: list[tuple[str, torch.Tensor]] = []
    map_tensors(arguments, lambda tensor: (held.append(("an input", tensor)), tensor)[1])
    if module is not None:
        held += [("a parameter", tensor) for tensor in state_of(module, persistent=False).values()]
    found: list[tuple[str, str]] = []
    for path, leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or not storage_of(leaf):
            continue
        if span(leaf) < leaf.numel():
            found.append((path, "itself"))
        found += [(path, name) for name, other in held if overlap(leaf, other)][:1]
        held.append((f"output {path}", leaf))
    return found


def handed_back(leaves: list[tuple[str, Any]], arguments: Any) -> set[int]:
    """Which outputs share elements with an input: they change with it."""
    inputs: list[torch.Tensor] = []
    map_tensors(arguments, lambda tensor: (inputs.append(tensor), tensor)[1])
    return {
        index
        for index, (_, leaf) in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and any(overlap(leaf, given) for given in inputs)
    }


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have an element of memory in common: parts of one buffer need not."""
    address = storage_of(one)
    if not address or address != storage_of(other) or one.dtype != other.dtype:
        return bool(address) and address == storage_of(other)
    begins, ends = zip(
        *((t.storage_offset(), t.storage_offset() + span(t)) for t in (one, other)), strict=True
    )
    if max(begins) >= min(ends):
        return False
    size = max(ends) - min(begins)
    taken = torch.zeros(size, dtype=torch.bool, device=one.device)
    places = [taken.as_strided(t.shape, t.stride(), t.storage_offset() - min(begins)) for t in (one, other)]
    places[0].fill_(True)
    return bool(places[1].any())


def shared_storages(held: list[list[tuple[str, Any]]]) -> list[tuple[int, int]]:
    """Pairs of calls whose outputs, all of them still held, lie in the same memory."""
    owner: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for call, leaves in enumerate(held):
        for address in {storage_of(leaf) for _, leaf in leaves if isinstance(leaf, torch.Tensor)} - {0}:
            if address in owner:
                found.append((owner[address], call))
            owner[address] = call
    return found
