"""Elements that a mask chooses (``x[mask]``), on tensors without data.

How many there are only data tells, so no tensor without data can stand for them. What programs mostly do with
them needs no such tensor: they compute element by element and put the results back where the same mask
chooses (``x[mask] -= 1``, ``y[mask] = x[mask] * 2``), or add them up. That is the same computation on all
elements, and a choice at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from egg.core.errors import TaskError

EACH = frozenset(
    str.split("""
    add sub rsub mul div true_divide subtract multiply divide floor_divide remainder fmod pow neg negative abs
    absolute sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan tanh sigmoid
    relu gelu silu softplus leaky_relu elu logsigmoid erf floor ceil round trunc clamp clamp_min clamp_max
    maximum minimum where gt ge lt le eq ne isnan isinf isfinite logical_and logical_or logical_xor
    logical_not bitwise_and bitwise_or bitwise_xor bitwise_not atan2 lerp addcmul addcdiv nan_to_num to type
    type_as float half bfloat16 double int long bool clone contiguous detach mse_loss l1_loss smooth_l1_loss
    huber_loss binary_cross_entropy binary_cross_entropy_with_logits
    """)
)
"""Functions that make each element of their result of one element of every operand."""
OPERATORS = frozenset(
    str.split("""
    add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow neg abs gt ge lt le eq ne and or xor
    invert iadd isub imul itruediv ipow iand ior
    """)
)
"""The same for what Python calls ``__add__``; those that begin with ``i`` change what they are given."""
IN_PLACE = frozenset(["iadd", "isub", "imul", "itruediv", "ipow", "iand", "ior"])
TOTALS = frozenset(["sum", "mean"])


class Chosen:
    """What stands for ``x[mask]``: a copy of all elements of ``x``, of which some count."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, whole: torch.Tensor, mask: torch.Tensor, lead: int) -> None:
        self.whole, self.mask, self.lead = whole, mask, lead
        self.written = mask._version

    def same(self, mask: torch.Tensor, lead: int) -> bool:
        """Whether it was chosen by this very mask, which still is what it was."""
        return self.mask is mask and self.written == mask._version and self.lead == lead

    def counts(self) -> torch.Tensor:
        """The mask in a form that broadcasts to all elements."""
        return _spread(self.mask, self.lead, self.whole.dim())

    def total(self, name: str) -> torch.Tensor:
        """The sum or the mean of the elements that count. A mean of 16 bits is rounded once, behind the
        division: its sum may be beyond what they hold."""
        counts, kind = self.counts(), self.whole.dtype
        taken = torch.where(counts, self.whole, 0)
        if name == "sum":
            return taken.sum()
        wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
        return (taken.sum(dtype=wide) / counts.expand(self.whole.shape).sum()).to(kind)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _applied(func, getattr(func, "__name__", ""), args, dict(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "device"):
            return getattr(self.whole, name)
        single = name.removesuffix("_")
        if name not in TOTALS and single not in EACH:
            raise AttributeError(f"elements that a mask chooses have no {name} without data")
        return self._method(name, name != single)

    def _method(self, name: str, in_place: bool) -> Callable[..., Any]:
        function = getattr(torch.Tensor, name.removesuffix("_") if in_place else name)
        plain = name.removesuffix("_") if in_place else name

        def call(*args: Any, **named: Any) -> Any:
            made = _applied(function, plain, (self, *args), named)
            if not in_place:
                return made
            self.whole = made.whole.to(self.whole.dtype)
            return self

        return call


def _operator(name: str) -> Callable[..., Any]:
    in_place = name in IN_PLACE
    dunder = f"__{name.removeprefix('i') if in_place else name}__"

    def call(self: Chosen, *args: Any) -> Any:
        made = _applied(getattr(torch.Tensor, dunder), dunder, (self, *args), {})
        if not in_place:
            return made
        self.whole = made.whole.to(self.whole.dtype)
        return self

    return call


for _name in OPERATORS:
    setattr(Chosen, f"__{_name}__", _operator(_name))


def answered(func: Any, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a call with a mask among its indices, or with chosen elements, comes to; ``NotImplemented`` for
    all others."""
    if name == "__getitem__" and (found := _by_mask(args[0], args[1])) is not None:
        return Chosen(args[0].clone(), *found)
    if name == "masked_select" and len(args) == 2 and args[0].is_meta and args[0].shape == args[1].shape:
        return Chosen(args[0].clone(), args[1], 0)
    if not any(isinstance(value, Chosen) for value in (*args, *named.values())):
        return NotImplemented
    if name == "__setitem__":
        return _put_back(*args)
    return _applied(func, name, args, named)


def _by_mask(x: Any, index: Any) -> tuple[torch.Tensor, int] | None:
    """The mask among indices that otherwise take everything, and the dimensions before it."""
    given = index if isinstance(index, tuple) else (index,)
    places = [place for place, value in enumerate(given) if isinstance(value, torch.Tensor)]
    others = [value for value in given if not isinstance(value, torch.Tensor)]
    everything = all(isinstance(value, slice) and value == slice(None) for value in others)
    if not isinstance(x, torch.Tensor) or not x.is_meta or len(places) != 1 or not everything:
        return None
    mask = given[places[0]]
    fits = mask.dim() > 0 and x.shape[places[0] : places[0] + mask.dim()] == mask.shape
    return (mask, places[0]) if mask.dtype == torch.bool and fits else None


def _put_back(x: torch.Tensor, index: Any, chosen: Any) -> None:
    """``x[mask] = chosen``, where the same mask chose them."""
    found = _by_mask(x, index)
    if found is None or not isinstance(chosen, Chosen) or not chosen.same(*found):
        raise _unknown("puts them where another index says")
    x.copy_(torch.where(_spread(*found, x.dim()), chosen.whole.to(x.dtype), x))


def _applied(func: Any, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """A function of chosen elements, on all of them."""
    chosen = [value for value in (*args, *named.values()) if isinstance(value, Chosen)]
    first, single = chosen[0], name.strip("_")
    if any(not first.same(other.mask, other.lead) for other in chosen):
        raise _unknown("joins those of one mask with those of another")
    if single in TOTALS and len(args) == 1 and not named:
        return first.total(single)
    operator = name.startswith("__") and single in OPERATORS - IN_PLACE
    if not operator and name not in EACH:
        raise _unknown(f"gives them to {name or func}")
    behind = first.whole.dim() - first.lead - first.mask.dim()
    if any(isinstance(v, torch.Tensor) and v.dim() > behind for v in (*args, *named.values())):
        raise _unknown("joins them with as many others")
    reduction = named.get("reduction", "mean") if name.endswith(("_loss", "entropy", "logits")) else None
    extra = {} if reduction is None else {"reduction": "none"}
    wholes = [_whole(value) for value in args]
    made = func(*wholes, **{key: _whole(value) for key, value in named.items()} | extra)
    result = Chosen(made, first.mask, first.lead)
    return result if reduction in (None, "none") else result.total(reduction)


def _whole(value: Any) -> Any:
    return value.whole if isinstance(value, Chosen) else value


def _spread(mask: torch.Tensor, lead: int, rank: int) -> torch.Tensor:
    return mask.reshape((*mask.shape, *(1,) * (rank - lead - mask.dim())))


def _unknown(what: str) -> TaskError:
    return TaskError(
        f"forward takes elements by a mask and {what}: how many there are is known only when it runs",
        "torch.where and masked_fill do the same on all elements",
    )
