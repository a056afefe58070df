"""What a capture takes for granted about a module: its parts, their options, hooks and modes.

A capture writes down one program. Whoever replaces a layer, registers a hook, sets ``module.eps`` or calls
``train()`` afterwards has another one. :class:`Watch` remembers what was there and finds the first
difference in a few microseconds. Contents of lists, dictionaries and configuration objects among the
attributes are not looked into: they count by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from egg.modules.structure import PLAIN

_KEPT = frozenset({"_parameters", "_buffers", "_modules"})
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_RECOMPUTING = frozenset({"WeightNorm", "SpectralNorm"})
"""Hooks that set an attribute anew before every forward reads it."""
_MISSING = object()


class Watch:
    """The state of a module, except the values of its tensors."""

    def __init__(self, module: nn.Module) -> None:
        self._parts = dict(module.named_modules())
        self._sizes = [(kept, len(kept), f"{name or 'the module'}") for name, kept in _kept(self._parts)]
        self._values = [
            (vars(part), key, value, f"{name}.{key}" if name else key)
            for name, part in self._parts.items()
            for key, value in vars(part).items()
            if key not in _KEPT and not key.startswith("_") and key not in _recomputed(part)
        ]
        self._values += [
            (part._modules, key, child, f"{name}.{key}" if name else key)
            for name, part in self._parts.items()
            for key, child in part._modules.items()
        ]
        self._absent = [
            (held, key, f"{name}.{key}" if name else key)
            for name, part in self._parts.items()
            for held in (part._parameters, part._buffers)
            for key, value in held.items()
            if value is None
        ]
        self._forwards = [(vars(p), vars(p).get("forward", _MISSING), n) for n, p in self._parts.items()]

    def changed(self) -> str:
        """The first thing that is not as it was, in half a sentence; empty where all is."""
        for held, key, value, name in self._values:
            now = held.get(key, _MISSING)
            if now is not value and not _equal(now, value):
                return f"{name} was replaced" if isinstance(value, nn.Module) else f"{name} was changed"
        for kept, size, name in self._sizes:
            if len(kept) != size:
                return f"parts or hooks of {name} were added or removed"
        for held, key, name in self._absent:
            if held.get(key) is not None:
                return f"{name} was set"
        for held, forward, name in self._forwards:
            if held.get("forward", _MISSING) is not forward:
                return f"forward of {name or 'the module'} was replaced"
        return ""


def _kept(parts: dict[str, nn.Module]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, part in parts.items():
        for key in (*_KEPT, *_HOOKS):
            yield name, vars(part)[key]


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, (*PLAIN, tuple)) and bool(one == other)


def _recomputed(part: nn.Module) -> frozenset[str]:
    hooks = part._forward_pre_hooks.values()
    return frozenset(str(getattr(h, "name", "")) for h in hooks if type(h).__name__ in _RECOMPUTING)


class Snapshot:
    """All that a forward may rebind in a module, so that a trial run leaves it as it was."""

    def __init__(self, module: nn.Module) -> None:
        self._held = [
            (name, part, dict(vars(part)), {key: dict(vars(part)[key]) for key in _KEPT})
            for name, part in module.named_modules()
        ]

    def rebound(self) -> list[str]:
        """Attributes that are other objects now, except those that hooks compute before every forward."""
        found: list[str] = []
        for name, part, values, kept in self._held:
            prefix = f"{name}." if name else ""
            now = vars(part)
            plain = (now.keys() | values.keys()) - _KEPT - _recomputed(part)
            for key in sorted(k for k in plain if not k.startswith("_")):
                before, after = values.get(key, _MISSING), now.get(key, _MISSING)
                if before is not after and not _equal(before, after):
                    found.append(f"{prefix}{key}")
            for key, held in kept.items():
                held_now = now[key]
                found += [f"{prefix}{n}" for n in held if held_now.get(n) is not held[n]]
        return found

    def restore(self) -> None:
        for _, part, values, kept in self._held:
            own = vars(part)
            for key in own.keys() - values.keys():
                del own[key]
            own.update({key: value for key, value in values.items() if key not in _KEPT})
            for key, held in kept.items():
                own[key].clear()
                own[key].update(held)


class KeptValues:
    """The values of a module's buffers, and the random state, put back at the end."""

    def __init__(self, module: nn.Module) -> None:
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._random = torch.random.fork_rng(range(torch.cuda.device_count()) if cuda else ())

    def __enter__(self) -> KeptValues:
        self._random.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._random.__exit__(*problem)
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
