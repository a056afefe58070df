"""The structure contract: what stage 1 decided, read from the kernel that won it, and kept from then on.

The structure of a kernel file is which kernels the host code uses, what makes the algorithm
of each (a matrix product, a reduction, a scan, ...), how often each is launched in one
forward pass, and which operations are left to libraries. The first two are read from the
source, helpers included, so that most breaches are found before anything is run; the other
two come from the judge.

Tuning may add or remove a reduction (a row that one program sums may be summed by several)
or an atomic; a matrix product, a scan, a sort or random numbers that come or go are another
algorithm.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from egg.core.evaluation import Accepted, Evaluation
from egg.core.step import Contract, Kernel, KernelRole
from egg.engine.likeness import UNPARSABLE
from egg.evaluator.static.scopes import Assigned, Defined, Program, TangledError

BLOCKS = {
    name: block
    for block, names in {
        "dot": "dot dot_scaled warpgroup_mma mma_v2 tcgen05_mma",
        "reduce": "reduce sum max min argmax argmin xor_sum reduce_or softmax histogram",
        "scan": "cumsum cumprod associative_scan",
        "atomic": "atomic_add atomic_max atomic_min atomic_and atomic_or atomic_xor atomic_xchg atomic_cas",
        "sort": "sort topk bitonic_merge",
        "random": "rand randn randint rand4x randn4x randint4x philox philox_impl",
    }.items()
    for name in names.split()
}
"""What a function of Triton's language, or a method of its tensors, is to an algorithm."""

ALGORITHM = ("dot", "scan", "sort", "random")
"""Building blocks that may neither come nor go."""
_IN_WORDS = {"dot": "a matrix product (dot)", "random": "random numbers"}

ELSEWHERE = "defined outside the file"
"""Purpose of a kernel that ran but that the source does not show."""


@dataclass(frozen=True)
class Entry:
    """A kernel that the host code uses, as the source shows it."""

    name: str
    building_blocks: tuple[str, ...]
    purpose: str


def make_contract(kernel: Kernel) -> Contract:
    """The structure of an accepted kernel."""
    verdict = kernel.evaluation.verdict
    if not isinstance(verdict, Accepted):
        raise ValueError("a contract is made from an accepted kernel")
    launched = verdict.provenance.kernels
    shown = {e.name: e for e in entries(kernel.candidate.source) or ()}
    roles = [
        KernelRole(e.name, launched.get(e.name, 0), e.building_blocks, e.purpose) for e in shown.values()
    ]
    roles += [KernelRole(name, times, (), ELSEWHERE) for name, times in launched.items() if name not in shown]
    return Contract(tuple(roles), dict(verdict.provenance.library_ops))


def static_breaches(contract: Contract, source: str) -> tuple[str, ...]:
    """What the source alone shows to differ from the contract; nothing for a file that is no Python."""
    found = entries(source)
    return () if found is None else tuple(_static(contract, _match(contract, found)))


def breaches(contract: Contract, source: str, evaluation: Evaluation) -> tuple[str, ...]:
    """What differs from the contract, once the judge knows which kernels ran."""
    found = entries(source)
    match = _match(contract, found or ())
    static = () if found is None else tuple(_static(contract, match))
    if not isinstance(evaluation.verdict, Accepted) or not evaluation.checked:
        return static
    ran = evaluation.verdict.provenance
    return (
        *static,
        *_launch_differences(contract, match, ran.kernels),
        *_library_differences(contract, ran.library_ops),
    )


# -- comparing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Match:
    """The kernels of a contract and those of a source, paired by name."""

    pairs: tuple[tuple[KernelRole, Entry], ...]
    renamed: Mapping[str, str]
    added: tuple[str, ...]
    removed: tuple[str, ...]


def _match(contract: Contract, found: tuple[Entry, ...]) -> _Match:
    """Pair by name; a single leftover on each side with the same building blocks is a rename.

    A kernel that was never launched may go: nothing that runs is lost with it.
    """
    now = {entry.name: entry for entry in found}
    pairs = tuple((role, now[role.name]) for role in contract.kernels if role.name in now)
    gone = [r for r in contract.kernels if r.name not in now and r.purpose != ELSEWHERE]
    fixed = {role.name for role in contract.kernels}
    come = [entry for entry in found if entry.name not in fixed]
    same = len(gone) == len(come) == 1 and set(gone[0].building_blocks) == set(come[0].building_blocks)
    if same and not any(True for pair in pairs for _ in _other_algorithm(*pair)):
        return _Match(pairs, {gone[0].name: come[0].name}, (), ())
    return _Match(pairs, {}, tuple(e.name for e in come), tuple(r.name for r in gone if r.launches))


def _static(contract: Contract, match: _Match) -> Iterator[str]:
    for old, new in match.renamed.items():
        yield f"kernel `{old}` was renamed to `{new}`: {_structure(contract)}"
    for name in match.added:
        yield f"kernel `{name}` was added: {_structure(contract)}"
    for name in match.removed:
        yield f"kernel `{name}` was removed: {_structure(contract)}"
    for role, entry in match.pairs:
        yield from _other_algorithm(role, entry)


def _other_algorithm(role: KernelRole, entry: Entry) -> Iterator[str]:
    if role.purpose == ELSEWHERE:
        return
    for block in ALGORITHM:
        what = _IN_WORDS.get(block, f"a {block}")
        if block in entry.building_blocks and block not in role.building_blocks:
            yield f"kernel `{role.name}` now uses {what}, which the structure does not have there"
        if block in role.building_blocks and block not in entry.building_blocks:
            yield f"kernel `{role.name}` no longer uses {what}, which its algorithm is made of"


def _launch_differences(contract: Contract, match: _Match, ran: Mapping[str, int]) -> Iterator[str]:
    """Counts that differ; a kernel that came or went is named once."""
    expected = {match.renamed.get(role.name, role.name): role.launches for role in contract.kernels}
    for name, before in expected.items():
        now = ran.get(name, 0)
        if now != before and name not in match.removed:
            counts = f"{_times(now)} instead of {_times(before)}"
            yield f"kernel `{name}` was launched {counts}: {_structure(contract)}"
    for name, now in ran.items():
        if name not in expected and name not in match.added:
            yield f"kernel `{name}`, launched {_times(now)}, is new: {_structure(contract)}"


def _library_differences(contract: Contract, ops: Mapping[str, int]) -> Iterator[str]:
    for name in sorted({*contract.library_ops, *ops}):
        before, now = contract.library_ops.get(name, 0), ops.get(name, 0)
        if before == 0:
            left = ", ".join(f"`{op}`" for op in sorted(contract.library_ops)) or "nothing"
            yield f"library operation `{name}` was added: the structure leaves {left} to libraries"
        elif now == 0:
            yield f"library operation `{name}` was removed: the structure has it x{before}"
        elif now != before:
            yield f"library operation `{name}` runs {_times(now)} instead of {_times(before)}"


def _structure(contract: Contract) -> str:
    kernels = ", ".join(f"{role.name} x{role.launches}" for role in contract.kernels if role.launches)
    return f"the structure is fixed to {kernels}"


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


# -- reading -------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def entries(source: str) -> tuple[Entry, ...] | None:
    """The kernels that host code uses, in the order of their definition; ``None`` if it cannot be read.

    A kernel counts as used wherever host code names it: launched as ``name[grid](...)``, given
    another name first, or passed to a function that launches it. What only other kernels call is
    a helper, and its building blocks are theirs.
    """
    try:
        reader = _Reader(Program(ast.parse(source)))
        return reader.entries()
    except (*UNPARSABLE, TangledError):
        return None


class _Reader:
    """Finds kernels and what they are made of, names resolved by scope."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kernels = {*self._decorated(), *self._jitted_by_call()}

    def entries(self) -> tuple[Entry, ...]:
        used = {kernel for name in self._host_names() for kernel in self._meant(name)}
        found: dict[str, Entry] = {}
        for kernel in sorted(used, key=lambda k: k.lineno):
            blocks = self._building_blocks(kernel)
            if same := found.get(kernel.name):
                blocks |= set(same.building_blocks)
            ordered = tuple(b for b in dict.fromkeys(BLOCKS.values()) if b in blocks)
            purpose = (ast.get_docstring(kernel) or "").strip().partition("\n")[0].strip()
            found[kernel.name] = Entry(kernel.name, ordered, purpose)
        return tuple(found.values())

    def _decorated(self) -> Iterator[ast.FunctionDef]:
        for node in self._program.nodes():
            if isinstance(node, ast.FunctionDef):
                plain = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
                if any(self._is_jit(decorator) for decorator in plain):
                    yield node

    def _jitted_by_call(self) -> Iterator[ast.FunctionDef]:
        """``kernel = triton.jit(function)``."""
        for node in self._program.nodes():
            if isinstance(node, ast.Call) and node.args and self._is_jit(node.func):
                for definition in self._program.definitions(node.args[0]):
                    if isinstance(definition, ast.FunctionDef):
                        yield definition

    def _is_jit(self, function: ast.expr) -> bool:
        paths = self._program.paths(function)
        return any(path.startswith("triton") and path.endswith(".jit") for path in paths)

    def _host_names(self) -> Iterator[ast.Name]:
        """Every use of a name outside kernels; giving something a second name is no use yet."""
        for node in self._program.nodes():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                in_kernel = any(up in self._kernels for up in self._program.ancestors(node))
                if not (in_kernel or self._is_alias(node) or self._is_launch_argument(node)):
                    yield node

    def _is_alias(self, name: ast.Name) -> bool:
        up = self._program.parent_of.get(name)
        plain = isinstance(up, ast.Assign) and all(isinstance(t, ast.Name) for t in up.targets)
        return plain and self._program.scope_of[name].kind != "class"

    def _is_launch_argument(self, name: ast.Name) -> bool:
        """Whether it is handed to a kernel (``kernel[grid](x, ACTIVATION=gelu)``): then it is a helper."""
        up = self._program.parent_of.get(name)
        call = self._program.parent_of.get(up) if isinstance(up, ast.keyword) else up
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript)

    def _meant(self, name: ast.Name, _seen: frozenset[str] = frozenset()) -> Iterator[ast.FunctionDef]:
        """The kernels a name may stand for, second names followed."""
        for binding, _ in self._program.lookup(name.id, self._program.scope_of[name])[0]:
            match binding:
                case Defined(node=ast.FunctionDef() as kernel) if kernel in self._kernels:
                    yield kernel
                case Assigned(value=ast.Name() as other) if name.id not in _seen:
                    yield from self._meant(other, _seen | {name.id})

    def _building_blocks(self, kernel: ast.FunctionDef) -> set[str]:
        """Of the kernel and of every function it reaches; a combine function passed to a reduction too."""
        blocks: set[str] = set()
        reached, waiting = {kernel}, [kernel]
        while waiting:
            body = waiting.pop().body
            for node in (n for statement in body for n in ast.walk(statement)):
                if isinstance(node, ast.Call) and (block := self._block(node.func)):
                    blocks.add(block)
                if isinstance(node, ast.Name):
                    new = set(self._meant(node)) - reached
                    reached |= new
                    waiting += new
        return blocks

    def _block(self, function: ast.expr) -> str | None:
        """A function of Triton's by its path; a method of a tensor by its name."""
        paths = self._program.paths(function)
        for path in sorted(paths):
            if path.startswith("triton") and (block := BLOCKS.get(path.rpartition(".")[2])):
                return block
        if isinstance(function, ast.Attribute) and not paths:
            return BLOCKS.get(function.attr)
        return None
