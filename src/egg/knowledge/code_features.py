"""What a kernel file does, as far as its text shows: which building blocks, which habits.

The file is read as a syntax tree and never imported: it is foreign code, and a look at it must
neither run it nor need PyTorch. What the text does not show counts as absent, so a feature
here says "it is written there", not "it is so on the GPU"; for that there is the diagnosis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from egg.core.bottleneck import Value
from egg.knowledge.program_order import regroups, strides_by_programs
from egg.knowledge.source_view import Function, SourceView, call_name, keyword, read_source
from egg.knowledge.vocabulary import WORDS

_DOTS = frozenset({"dot", "dot_scaled"})
_DESCRIPTORS = frozenset(
    {"make_tensor_descriptor", "TensorDescriptor", "load_tensor_descriptor", "store_tensor_descriptor"}
)
_GRAPHS = frozenset({"CUDAGraph", "graph", "make_graphed_callables"})
_BLOCK = re.compile(r"BLOCK|TILE|(^|_)B[LMNKRC](_|$)", re.IGNORECASE)
_SPLIT = re.compile(r"split|stream_?k", re.IGNORECASE)
_LARGEST_BLOCK = 1 << 20
"""A constant beyond this is no block size, whatever its name."""


def code_features(source: str | None) -> Mapping[str, Value]:
    """The code's part of a context; without a file, nothing is claimed."""
    return {} if source is None else dict(_features(source))


@lru_cache(maxsize=64)
def _features(source: str) -> tuple[tuple[str, Value], ...]:
    view = read_source(source)
    try:
        found = _seen_in(view) if view is not None else {}
    except RecursionError:  # an expression of a thousand parts: not written by hand
        found = {}
    return (("has_base", True), *found.items())


def _seen_in(view: SourceView) -> dict[str, Value]:
    kernels = view.kernels
    return {
        "source_kernels": len(view.launched),
        "uses_dot": _calls(kernels, _DOTS.__contains__),
        "uses_descriptors": bool(view.mentioned & _DESCRIPTORS),
        "uses_atomics": _calls(kernels, lambda name: name.startswith("atomic_")),
        "uses_autotune": any("autotune" in kernel.decorators for kernel in kernels),
        "uses_loops": any(isinstance(n, ast.For | ast.While) for k in kernels for n in ast.walk(k.node)),
        "uses_masks": any(map(_is_masked, _kernel_calls(kernels))),
        "uses_eviction_hints": any(
            keyword(call, "eviction_policy") or keyword(call, "cache_modifier")
            for call in _kernel_calls(kernels)
        ),
        "uses_persistent_loop": any(strides_by_programs(kernel.node) for kernel in kernels),
        "uses_grouping": any(regroups(kernel.node) for kernel in kernels),
        "uses_split_k": any(map(_splits_the_sum, kernels)),
        "uses_graph": any(_captures(call) for call in view.calls),
        "library_calls": len(view.library_calls),
        "tunables": view.tunables,
        "input_precision": _input_precision(view),
        "block_sizes_largest": max(_block_sizes(view), default=0),
    }


def _kernel_calls(kernels: tuple[Function, ...]) -> Iterator[ast.Call]:
    return (node for kernel in kernels for node in ast.walk(kernel.node) if isinstance(node, ast.Call))


def _calls(kernels: tuple[Function, ...], wanted: Callable[[str], bool]) -> bool:
    return any(wanted(call_name(call)) for call in _kernel_calls(kernels))


def _is_masked(call: ast.Call) -> bool:
    """A mask by name, or in its place: the second of ``load``, the third of ``store``."""
    place = {"load": 1, "store": 2}.get(call_name(call))
    if place is None and not call_name(call).startswith("atomic_"):
        return False
    given = keyword(call, "mask")
    if given is None and place is not None and len(call.args) > place:
        given = call.args[place]
    return given is not None and not (isinstance(given, ast.Constant) and given.value is None)


def _splits_the_sum(kernel: Function) -> bool:
    """A product whose sum is shared: it says so in a name, or adds its tile to what others add to."""
    calls = {call_name(call) for call in _kernel_calls((kernel,))}
    if not calls & _DOTS:
        return False
    names = {n.id for n in ast.walk(kernel.node) if isinstance(n, ast.Name)} | set(kernel.parameters)
    return "atomic_add" in calls or any(_SPLIT.search(name) for name in names)


def _captures(call: ast.Call) -> bool:
    """``torch.cuda.CUDAGraph()``, ``torch.cuda.graph(...)``; a function of one's own called graph is not."""
    name = call_name(call)
    return name in _GRAPHS and (name != "graph" or isinstance(call.func, ast.Attribute))


def _input_precision(view: SourceView) -> str:
    """Of the first product that says; ``default`` where none does, ``none`` without a product."""
    dots = [
        (kernel, call)
        for kernel in view.kernels
        for call in _kernel_calls((kernel,))
        if call_name(call) in _DOTS
    ]
    for kernel, call in dots:
        given = keyword(call, "input_precision")
        if given is not None:
            value = view.value_of(given, kernel)
            return str(value) if value in WORDS["input_precision"] else "default"
        allowed = keyword(call, "allow_tf32")
        if allowed is not None:
            value = view.value_of(allowed, kernel)
            return "default" if value is None else "tf32" if value else "ieee"
    return "default" if dots else "none"


def _block_sizes(view: SourceView) -> Iterator[int]:
    """Constants under names of blocks: in the file, at launches, in configurations of a tuner."""
    for name, value in view.named_integers:
        if _BLOCK.search(name) and 0 < value <= _LARGEST_BLOCK:
            yield value
