"""What an entry is about: a graph, its inputs, the GPU, the versions and the policy. Its hash is the key.

Two halves make the key. The first is the hash of the graph and its inputs, the second that of everything that
decides whether a verdict on it still holds here. Entries for the same graph under other terms therefore lie
side by side, and a lookup that misses can name the term that differs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version

from egg.core.codec import to_json
from egg.core.policy import LibraryCalls, Precision

DIGITS = 16
"""Hex digits of each half of a key."""


@dataclass(frozen=True)
class Policy:
    """The terms that a kernel is judged under."""

    precision: Precision = Precision.MATCH
    library_calls: LibraryCalls = LibraryCalls.ALLOW


@dataclass(frozen=True)
class Claim:
    """A graph under the terms of one machine."""

    graph: str
    """One line for each node, placeholders first, with names that depend on the positions alone."""
    inputs: tuple[str, ...]
    """One line for each placeholder: role, dtype, shape with its symbols, strides."""
    gpu: str
    """Its name; empty on a machine without one."""
    torch: str
    triton: str
    egg: str
    policy: Policy = field(default_factory=Policy)

    @property
    def key(self) -> str:
        return f"{self.graph_key}-{self.terms_key}"

    @cached_property
    def graph_key(self) -> str:
        return _digest([self.graph, *self.inputs])

    @cached_property
    def terms_key(self) -> str:
        return _digest([self.gpu, self.torch, self.triton, self.egg, to_json(self.policy)])

    def differs(self, other: Claim) -> str:
        """The terms of ``other`` that are not those of this claim, in words."""
        found = [
            f"{name} {getattr(other, name) or 'none'} (here {getattr(self, name) or 'none'})"
            for name in ("torch", "triton", "egg")
            if getattr(other, name) != getattr(self, name)
        ]
        if other.gpu != self.gpu:
            found.append(f"{other.gpu or 'no GPU'} (here {self.gpu or 'none'})")
        if other.policy != self.policy:
            found.append("another policy")
        return ", ".join(found)


@cache
def package_version(package: str) -> str:
    """The version of an installed package, as a claim names it; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:DIGITS]
