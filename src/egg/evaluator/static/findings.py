"""What the static gate found: one finding per offence, with its line, and the refusal they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from egg.core.evaluation import Gate, Refusal

NAMED_IN_EVIDENCE = 4

HINTS: dict[str, str] = {
    "static.syntax": "the kernel file must parse as Python 3.11",
    "static.import": (
        "a kernel file may import torch, torch.nn, triton, triton.language and a few pure "
        "standard modules (math, typing, functools, itertools, operator, collections, "
        "dataclasses, enum)"
    ),
    "static.namespace": (
        "use tensor functions, torch.nn, torch.cuda device queries and CUDA graphs, and Triton's "
        "jit, autotune, heuristics and language; nothing else of these packages is needed by a "
        "kernel"
    ),
    "static.dynamic": (
        "write names and attributes out, so that what runs can be read: no eval, no computed "
        "attribute names, no modules passed around as values; nothing may depend on who runs the file: call "
        "getattr, type and the like on the spot, and leave __name__ to a logger"
    ),
    "static.try": (
        "let errors surface: compute must not fall back to something else; choose configurations "
        "with triton.autotune (it skips those that do not fit) or by an explicit test of the "
        "shape"
    ),
    "static.subclass": (
        "derive from torch.nn.Module (or torch.autograd.Function, Enum, a dataclass); results "
        "must be plain tensors"
    ),
    "static.stream": (
        "launch everything on the current stream; warm a CUDA graph up on the current stream and "
        "capture it with torch.cuda.graph; triton.autotune does the timing"
    ),
    "static.backend": (
        "precision is set inside the kernel (input_precision=...) and by the declared policy, "
        "never by global switches, seeds or autocast"
    ),
    "static.cache": (
        "keep what depends on weights on self, keyed by weight._version; nothing may outlive the module "
        "or be shared between instances; "
        "functools.cache may memoise a function of plain numbers: annotate its parameters int, float, "
        "bool or str"
    ),
    "static.io": "a kernel needs no files, no console and no environment",
    "static.process": "a kernel needs no processes, threads or exits",
    "static.patch": (
        "assign only to attributes of self; never to those of modules, classes, functions or results"
    ),
    "static.private": "use public names; the one private attribute allowed is _version of a parameter",
    "static.no_kernel": "define at least one kernel with @triton.jit and launch it from ModelNew.forward",
    "static.no_model": "define class ModelNew(nn.Module) with the constructor and the parameters of Model",
    "static.library": (
        "under library_calls=forbid every operation runs in the candidate's own kernels; nn "
        "modules may hold parameters but not be called"
    ),
}


@dataclass(frozen=True, order=True)
class Finding:
    """One offence: where, under which code, and what it is in words."""

    line: int
    """0 where the offence is an absence."""
    code: str
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" if self.line else self.what


@dataclass(frozen=True)
class Findings:
    """Every offence in the file in reading order, absences last."""

    items: tuple[Finding, ...]

    @classmethod
    def of(cls, found: Iterator[Finding]) -> Findings:
        return cls(tuple(sorted(set(found), key=lambda f: (f.line == 0, f.line, f.code, f.what))))

    def __bool__(self) -> bool:
        return bool(self.items)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.items)

    @property
    def codes(self) -> tuple[str, ...]:
        """The distinct reason codes, in the order they first occur."""
        return tuple(dict.fromkeys(f.code for f in self.items))

    def refusal(self) -> Refusal | None:
        """The first offence gives the reason and the hint; the first few are named as evidence."""
        if not self.items:
            return None
        named = "; ".join(str(f) for f in self.items[:NAMED_IN_EVIDENCE])
        more = len(self.items) - NAMED_IN_EVIDENCE
        evidence = f"{named}; and {more} more" if more > 0 else named
        first = self.items[0]
        return Refusal(Gate.STATIC, first.code, evidence, HINTS[first.code])
