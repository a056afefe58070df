"""A forward on meta tensors: shapes without data, so that any size costs no memory and little time.

What the programs that look at a task share: building its module without drawing a single random
number, watching a forward with a limit on its time, and answering for a recurrent layer as one
call of a library, because on meta tensors it would be taken apart into thousands of steps.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.evaluator.task.program import Program
from egg.evaluator.tensors.modes import LightMode, compiler_loaded

META = torch.device("meta")
PROBE_SECONDS = 3.0
FUSED_ATTENTION = frozenset(
    f"aten::_scaled_dot_product_{kind}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)


def on_meta(program: Program) -> nn.Module:
    """The module without data. One whose constructor looks at data is built on the CPU first: with large
    tensors (tables of embeddings) that have none, and with all of it where that does not work."""
    with suppress(TaskError), META:
        return program.build(0, META, Precision.MATCH)
    with _NoDraws(), _no_rejection():
        with suppress(TaskError), _SmallData():
            return program.build(0, META, Precision.MATCH)
        return program.build(0, META, Precision.MATCH)


class OutOfTime(TaskError):
    """A forward on meta tensors took too long to be worth measuring."""


def distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of memory behind ``tensors``: what several share, and what one repeats, counts once."""
    behind: dict[int, dict[Any, int]] = {}
    sizes: dict[int, int] = {}
    for tensor in tensors:
        if tensor.layout != torch.strided:
            behind[id(tensor)] = {None: tensor.numel() * tensor.element_size()}
            sizes[id(tensor)] = behind[id(tensor)][None]
            continue
        storage = tensor.untyped_storage()
        place = (tensor.storage_offset(), tensor.shape, tensor.stride())
        held = math.prod(n for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s != 0)
        behind.setdefault(storage._cdata, {})[place] = held * tensor.element_size()
        sizes[storage._cdata] = storage.nbytes()
    return sum(min(sizes[key], sum(places.values())) for key, places in behind.items())


def product_flops(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> float | None:
    """Operations of a product, a convolution or attention; ``None`` for what is none of them.

    By PyTorch's own formulas, save for fused attention: of some releases they refuse fewer heads of keys than
    of queries, which the operator itself takes.
    """
    if func._schema.name in FUSED_ATTENTION:
        query, key = args[:2]
        return 2.0 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + out[0].shape[-1])
    formula = flop_registry.get(func._overloadpacket)
    return None if formula is None else float(formula(*args, **kwargs, out_val=out))


class Meter(LightMode):
    """Counts operations and the elements each operator makes (views make none), for so many seconds.

    They are seconds of this thread, from the first operator on, without those in which one of
    them loads PyTorch's compiler.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.flops = 0.0
        self.elements = 0
        self._seconds = seconds
        self._started: float | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self._started is None:
            self._started = time.thread_time()
        if time.thread_time() - self._started > self._seconds:
            raise OutOfTime("a forward on meta tensors takes too long")
        began, loaded = time.thread_time(), compiler_loaded()
        out = func(*args, **(kwargs or {}))
        if compiler_loaded() and not loaded:
            self._started += time.thread_time() - began
        self.flops += product_flops(func, args, kwargs or {}, out) or 0.0
        returns = func._schema.returns
        fresh = itertools.chain.from_iterable(
            tree_leaves(item)
            for item, returned in zip(out if isinstance(out, tuple) else (out,), returns, strict=False)
            if returned.alias_info is None
        )
        self.elements += sum(t.numel() for t in fresh if isinstance(t, torch.Tensor))
        return out


@dataclass(frozen=True)
class Recurrence:
    """One call of a recurrent layer, as the library is asked for it."""

    LAYERS: ClassVar[frozenset[str]] = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})

    name: str
    sequence: torch.Tensor
    states: tuple[torch.Tensor, ...]
    """Of all layers and directions before the first step."""
    weights: tuple[torch.Tensor, ...]
    parts: int
    """Layers times directions, each with weights of its own."""
    width: int
    """Features of the output: those of a state, twice where it runs both ways."""
    steps: int

    @classmethod
    def of(cls, func: Any, args: tuple[Any, ...]) -> Recurrence | None:
        """The call that ``func(*args)`` is; ``None`` where it is something else, or one step of a cell.

        There are two forms of nine arguments. A padded batch comes as sequence, states, weights,
        biased or not, layers, dropout, training, both ways, batch first; a packed one has the sizes
        of its steps in second place and no batch to come first.
        """
        name = getattr(func, "__name__", "")
        if name not in cls.LAYERS or len(args) != 9:
            return None
        packed = isinstance(args[4], bool)
        hidden, weights = args[2:4] if packed else args[1:3]
        states = tuple(hidden) if isinstance(hidden, list | tuple) else (hidden,)
        directions = 2 if args[8 if packed else 7] else 1
        sequence = args[0]
        return cls(
            name,
            sequence,
            states,
            tuple(weights),
            parts=directions * args[5 if packed else 4],
            width=directions * states[0].shape[-1],
            steps=args[1].numel() if packed else sequence.shape[1 if args[8] and sequence.dim() == 3 else 0],
        )

    @property
    def positions(self) -> int:
        """Steps of all sequences of the batch."""
        return self.sequence.numel() // self.sequence.shape[-1]

    @property
    def flops(self) -> float:
        """Every weight matrix is applied once at every position."""
        return 2.0 * self.positions * sum(w.numel() for w in self.weights if w.dim() == 2)

    def outputs(self) -> tuple[torch.Tensor, ...]:
        made = self.sequence.new_empty((*self.sequence.shape[:-1], self.width))
        return (made, *(torch.empty_like(state) for state in self.states))


class WholeRecurrence(TorchFunctionMode):
    """Answers for a whole recurrent layer by its shapes, instead of running every time step of it."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        layer = Recurrence.of(func, args)
        if layer is None:
            return func(*args, **(kwargs or {}))
        outputs = layer.outputs()
        self._meter.flops += layer.flops
        self._meter.elements += outputs[0].numel() * (len(layer.weights) // 4)
        return outputs


class _NoDraws(TorchFunctionMode):
    """Zeros instead of random numbers: drawing them is most of a constructor's time."""

    DRAWS = frozenset({"normal_", "uniform_"})
    MAPS = frozenset({"erfinv_", "clamp_"})

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        if name in self.DRAWS:
            return args[0].zero_()
        return args[0] if name in self.MAPS else func(*args, **(kwargs or {}))


class _SmallData(TorchFunctionMode):
    """Tensors of many elements have shapes only: what a constructor looks at (resolutions, schedules) is
    small, and what takes time and memory (tables, weights) is large."""

    FACTORIES = frozenset(
        {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint}
    )
    LARGE = 2**18

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in self.FACTORIES and named.get("device") is None and named.get("generator") is None:
            shape = func(*args, **{**named, "device": META})
            if shape.numel() > self.LARGE:
                return shape
        return func(*args, **named)


@contextmanager
def _no_rejection() -> Iterator[None]:
    """Initialisers that draw until what they drew lies within bounds would go on for ever."""
    init = nn.init
    drawing = {name: fn for name, fn in vars(init).items() if name.startswith("_no_grad_") and callable(fn)}
    try:
        for name in drawing:
            setattr(init, name, lambda tensor, *_, **__: tensor)
        yield
    finally:
        for name, fn in drawing.items():
            setattr(init, name, fn)
