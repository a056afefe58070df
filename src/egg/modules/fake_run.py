"""A graph run once on fake tensors: what its text does not show.

Inputs that are changed in place, outputs that share memory, random numbers, and the bytes that a call moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.utils._python_dispatch import TorchDispatchMode


class Unsuitable(Exception):
    """A graph that is not answered by a kernel: why, in half a sentence."""


class NoMemory(Unsuitable):
    """A graph that cannot be looked at now; with more memory it could."""


class _Traffic(fx.Interpreter):
    """Runs the graph and adds up the bytes that each node reads and writes; a view moves none."""

    total = 0

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op not in ("call_function", "call_method"):
            return result
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        read, made = list(_tensors((args, kwargs))), list(_tensors(result))
        if not {_storage(t) for t in made} & {_storage(t) for t in read}:
            self.total += sum(_bytes(t) for t in (*read, *made))
        return result


class _Random(TorchDispatchMode):
    """Refuses operators that draw random numbers; attention does so with a dropout above zero alone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and _dropout(func, args, kwargs or {}) != 0.0:
            raise Unsuitable(f"it draws random numbers ({func})")
        return func(*args, **(kwargs or {}))


class _Drawing(TorchDispatchMode):
    """Notices operators that draw random numbers."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and _dropout(func, args, kwargs or {}) != 0.0:
            self.seen = True
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Effect:
    """A call that does more than return new tensors."""

    place: int
    """Among the calls of the graph."""
    oldest: int
    """The call that made the oldest tensor that it writes into; -1 for an argument of the graph."""
    random: bool


class _Effects(fx.Interpreter):
    """Runs the graph and notes the calls that write into tensors or draw random numbers."""

    def __init__(self, module: fx.GraphModule, given: Sequence[torch.Tensor], drawing: _Drawing) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.extra_traceback = False
        self.found: list[Effect] = []
        self._made = {_storage(tensor): -1 for tensor in given}
        self._drawing = drawing
        self._place = -1

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_function", "call_method"):
            return super().run_node(n)
        self._place += 1
        self._drawing.seen = False
        operands = list(_tensors(self.fetch_args_kwargs_from_env(n)))
        before = [tensor._version for tensor in operands]
        result = super().run_node(n)
        written = [t for t, version in zip(operands, before, strict=True) if t._version != version]
        if written or self._drawing.seen:
            oldest = min((self._made[_storage(t)] for t in written), default=self._place)
            self.found.append(Effect(self._place, oldest, self._drawing.seen))
        for tensor in _tensors(result):
            self._made.setdefault(_storage(tensor), self._place)
        return result


def effects_of(module: fx.GraphModule) -> tuple[Effect, ...]:
    """The calls of a graph that write into tensors or draw random numbers, in order."""
    device = next((value.device for value in example_values(module)), torch.device("cpu"))
    drawing = _Drawing()
    with torch.inference_mode(False), torch.no_grad(), fake_mode(module):
        given = _fresh(module, device)
        running = _Effects(module, given, drawing)
        try:
            with drawing:
                running.run(*given)
        except (RuntimeError, NotImplementedError) as error:
            raise Unsuitable(f"it does not run on fake tensors: {str(error).splitlines()[0]}") from error
    return tuple(running.found)


def _fresh(module: fx.GraphModule, device: torch.device) -> list[torch.Tensor]:
    return [
        torch.empty_strided(v.size(), v.stride(), dtype=v.dtype, device=device)
        for v in example_values(module)
    ]


def _dropout(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """The probability that an operator drops an element; ``None`` for one that has no such argument."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else argument.default_value
            return float(kwargs.get("dropout_p", given))
    return None


def run_fake(module: fx.GraphModule, device: torch.device) -> int:
    """Run on fresh fake tensors and look at what became of inputs and outputs; the traffic of a call."""
    mode = fake_mode(module)
    with torch.inference_mode(False), torch.no_grad(), mode:
        given = _fresh(module, device)
        before = [tensor._version for tensor in given]
        running = _Traffic(module)
        running.extra_traceback = False
        try:
            with _Random():
                made = list(_tensors(running.run(*given)))
        except (RuntimeError, NotImplementedError) as error:
            raise Unsuitable(f"it does not run on fake tensors: {str(error).splitlines()[0]}") from error
    if [tensor._version for tensor in given] != before:
        raise Unsuitable("it changes an input in place")
    if {_storage(tensor) for tensor in given} & {_storage(tensor) for tensor in made}:
        raise Unsuitable("an output of it shares memory with an input")
    if len({_storage(tensor) for tensor in made}) < len(made):
        raise Unsuitable("outputs of it share memory")
    return running.total


def fake_mode(module: fx.GraphModule) -> Any:
    mode = detect_fake_mode([node.meta.get("example_value") for node in module.graph.nodes])
    if mode is None:
        raise Unsuitable("it has no fake tensors")
    return mode


def example_values(module: fx.GraphModule) -> list[torch.Tensor]:
    return [node.meta["example_value"] for node in module.graph.nodes if node.op == "placeholder"]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _bytes(tensor: torch.Tensor) -> int:
    count = tensor.element_size()
    for size in tensor.shape:
        count *= _hint(size)
    return count


def _hint(size: Any) -> int:
    if isinstance(size, torch.SymInt):
        node: Any = size.node
        return int(node.hint) if node.has_hint() else 1
    return int(size)
