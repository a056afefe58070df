"""What a forward returned: described for the oracle, and copied into its memory; whose memory it lies in."""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.freshen import span
from egg.evaluator.task.program import map_tensors, outputs_of


def copy_out(result: Any, destinations: list[torch.Tensor | None]) -> None:
    """Into memory of the oracle's; nothing of the result has a name when the next call begins."""
    for destination, (_, leaf) in zip(destinations, outputs_of(result), strict=True):
        if isinstance(destination, torch.Tensor) and isinstance(leaf, torch.Tensor):
            destination.copy_(leaf)


def describe(path: str, leaf: Any) -> dict[str, Any]:
    if not isinstance(leaf, torch.Tensor):
        return {
            "path": path,
            "type": "number",
            "number": abs(leaf) if isinstance(leaf, complex) else float(leaf),
        }
    return {
        "path": path,
        "shape": list(leaf.shape),
        "dtype": str(leaf.dtype),
        "device": leaf.device.type,
        "type": type(leaf).__qualname__,
        "layout": str(leaf.layout),
        "stride": list(leaf.stride()) if leaf.layout == torch.strided else [],
        "storage": storage_of(leaf),
    }


def storage_of(leaf: torch.Tensor) -> int:
    """The address of the memory that a tensor looks at; 0 where there is none."""
    if leaf.layout != torch.strided or not leaf.numel():
        return 0
    return leaf.untyped_storage().data_ptr()


def aliases(leaves: list[tuple[str, Any]], arguments: Any, module: torch.nn.Module | None) -> list[list[str]]:
    """Pairs of an output and what it shares elements with: another output, an input, a parameter, itself."""
    held: list[tuple[str, torch.Tensor]] = []
    map_tensors(arguments, lambda tensor: (held.append(("an input", tensor)), tensor)[1])
    if module is not None:
        held += [("a parameter", tensor) for tensor in (*module.parameters(), *module.buffers())]
    found: list[list[str]] = []
    for path, leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or not storage_of(leaf):
            continue
        if span(leaf) < leaf.numel():
            found.append([path, "itself"])
        found += [[path, name] for name, other in held if overlap(leaf, other)][:1]
        held.append((f"output {path}", leaf))
    return found


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


def shared_storages(held: list[list[tuple[str, Any]]]) -> list[list[int]]:
    """Pairs of calls whose outputs, all of them still held, lie in the same memory."""
    owner: dict[int, int] = {}
    found: list[list[int]] = []
    for call, leaves in enumerate(held):
        for address in {storage_of(leaf) for _, leaf in leaves if isinstance(leaf, torch.Tensor)} - {0}:
            if address in owner:
                found.append([owner[address], call])
            owner[address] = call
    return found
