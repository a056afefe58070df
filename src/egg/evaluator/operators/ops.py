"""Which aten operations are compute, and which merely make, move or look at tensors.

The reference's and the candidate's operations are classified by the same list, so that
what is left to libraries can be compared like with like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from egg.evaluator.operators import reads
from egg.evaluator.operators.lossy import loses, narrows, varies
from egg.evaluator.operators.parts import parts_of
from egg.evaluator.operators.reads import Reader
from egg.evaluator.operators.runs import Follower
from egg.evaluator.operators.sketches import Sketch, Sketcher
from egg.evaluator.operators.spent import Work, work_of
from egg.evaluator.task.costs import Call
from egg.evaluator.tensors import hosts
from egg.evaluator.tensors.modes import LightMode

ALLOCATIONS = frozenset(
    ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted")
)
GROWING = frozenset(("resize_", "resize_as_", "_resize_output_"))
"""Operations after which a tensor may have more memory than before, in which nothing was written."""
MAKING = """
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill_ fill zero_ arange
    scalar_tensor lift_fresh lift_fresh_copy eye linspace
"""
MOVING = """
    copy_ _to_copy to type_as clone contiguous item _local_scalar_dense record_stream pin_memory is_pinned
"""
REARRANGING = """
    cat stack hstack vstack dstack repeat repeat_interleave constant_pad_nd pad flip roll
"""
LOOKING = """
    detach detach_ alias view _unsafe_view _reshape_alias reshape as_strided slice select expand permute t
    transpose transpose_ unsqueeze squeeze unsqueeze_ squeeze_ unbind split split_with_sizes unsafe_split
    chunk unsafe_chunk tensor_split narrow diagonal unfold movedim swapaxes swapdims flatten unflatten ravel
    expand_as view_as numpy_T mT mH matrix_H adjoint view_as_real view_as_complex resize_ set_ is_same_size
    _resize_output_ sym_size sym_stride sym_numel
"""
NEUTRAL = ALLOCATIONS.union(*(names.split() for names in (MAKING, MOVING, REARRANGING, LOOKING)))
SILENT = ALLOCATIONS | frozenset(LOOKING.split()) | frozenset(["_local_scalar_dense", "item", "is_pinned"])
"""Operations that launch nothing on a GPU."""
MOVES = frozenset(REARRANGING.split())
"""Operations that move data to other places: the work of a task that moves, and plumbing elsewhere."""
COPIES = frozenset(["copy_", "_to_copy", "to", "type_as", "clone"])
"""Copies, which may put elements into another order or dtype: where a task does no more, that is its work.
Under inference mode ``to`` is not taken apart."""
CAST = "cast"
"""A copy that changes the dtype alone: of a gather it casts the indices."""
TRUNCATION = "cast_to_integers"
"""A copy of floats as integers or truth values, or of integers as truth values or as such of up to 16 bits:
that computes, it rounds toward zero, compares with it, or leaves high bits out."""
NARROW_INTEGER = 2
"""Bytes of integers that a copy of wider ones cuts off. Indices of 32 bits are free."""
OVERWRITING = frozenset(["copy_", "fill_", "zero_"])
"""Operations that write their first operand and do not read it."""
LOOKS = frozenset(LOOKING.split()) | OVERWRITING
RESOLVING = {"resolve_conj": torch.is_conj, "resolve_neg": torch.is_neg}
"""Operations that hand back their operand itself, unless it is to be conjugated or negated by its readers."""
MAKERS = frozenset(name for name in MAKING.split() if not name.endswith("_"))
BLIND = ALLOCATIONS.union(LOOKING.split(), MAKERS)
"""Operations that neither read nor write elements of what they are given, but for a maker's ``out=``."""
OF_NUMBERS = frozenset(["linspace", "arange", "full", "eye", "scalar_tensor"])
"""Makers that are given numbers. Where these are tensors, they compute from elements (``linspace``)."""
READING = frozenset(["_local_scalar_dense"])
"""Operations by which the host reads a number."""
LIFTING = frozenset(["lift_fresh", "lift_fresh_copy"])
"""Operations by which numbers of Python's become a tensor."""
MOST_LIFTED = 64
OWN_OPERATORS: set[str] = set()
"""Operators that the candidate registered, as ``namespace::name``."""
ACTIVE: list[Recorder] = []
"""Recorders at work, innermost last."""

SELECTING = "embedding _embedding_bag index index_select gather take slice select narrow diagonal tril triu"
PARTIAL = frozenset(SELECTING.split())
"""Operations after which part of a tensor may honestly never be read."""


def base_name(func: Any) -> str:
    """``addmm`` for ``aten.addmm.default``."""
    packet = getattr(func, "overloadpacket", func)
    return str(packet).rsplit(".", 1)[-1]


class Recorder(LightMode):
    """Counts compute operations while active, apart from those that move data, and values read by the host.

    Optionally fills what ``torch.empty`` returns, adds up the work of the operations, keeps sketches of what
    they produced, shows a ``flow`` what each reads and makes, and a ``reader`` what each reads and writes.
    ``launched`` counts the own kernels that ran so far: work is split by whether one followed it. An operator
    that the file registered (``torch.library.custom_op``) is no library's; what its body calls is recorded,
    because the body switches the recorder on again.
    """

    def __init__(
        self,
        *,
        fill_empties: Callable[[torch.Tensor], object] | None = None,
        sketcher: Sketcher | None = None,
        launched: Callable[[], int] | None = None,
        given: Any = (),
        flow: Follower | None = None,
        reader: Reader | None = None,
        numbers: bool = False,
    ) -> None:
        super().__init__()
        self.numbers: list[tuple[str, str]] = []
        """That operators were given, where they are noted."""
        self._numbers = numbers
        self._reader = reader
        self._flow = flow
        self.compute: Counter[str] = Counter()
        self.moves: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        """Of other than ``given`` tensors, into another order or dtype."""
        self.lossy = 0
        """Of those to integers or truth values, how many drop fractions or high bits by their values."""
        self.narrowed: Counter[str] = Counter()
        """Copies of floats to types in which they are other numbers."""
        self.overwritten = 0
        """Numbers written over a part of what the call had made, where memory that is new is filled."""
        self._new: set[int] = set()
        """Memory of this call's."""
        self.parts: Counter[str] = Counter()
        """What the compute operations did inside (:mod:`.parts`), where work is added up."""
        self.seen: set[str] = set()
        self.reads: Counter[str] = Counter()
        """Values of the device's that the host got, by kind."""
        self.sketches: list[Sketch] = []
        self.moved_sketches: list[Sketch] = []
        self._spent: dict[int, Work] = {}
        self._fill = fill_empties
        self._sketcher = sketcher
        self._launched = launched
        inputs = [t for t in tree_leaves(given) if isinstance(t, torch.Tensor)]
        self._given = {_place(t) for t in inputs}
        sketches = (sketcher.sketch(t) for t in inputs) if sketcher is not None else ()
        self._input_sketches = [sketch for sketch in sketches if sketch is not None]
        self._on_inputs: dict[int, Work] = {}

    def __enter__(self) -> Any:
        ACTIVE.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        ACTIVE.remove(self)
        return super().__exit__(*error)

    def work(self) -> tuple[Work, Work]:
        """What ran before the last own kernel or on values of the inputs, and everything."""
        last = self._launched() if self._launched is not None else 0
        before = sum((spent for stamp, spent in self._spent.items() if stamp < last), Work())
        behind = sum((spent for stamp, spent in self._on_inputs.items() if stamp >= last), Work())
        return before + behind, sum(self._spent.values(), Work())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = base_name(func)
        neutral = name in NEUTRAL and not _computes_from_tensors(name, func, args, kwargs or {})
        neutral = neutral or (name in RESOLVING and not RESOLVING[name](args[0]))
        held = _nbytes(args[0]) if self._fill is not None and name in GROWING else None
        flow = self._flow if name not in SILENT else None
        if name in OVERWRITING and self._fill is not None:
            self.overwritten += self._is_overwriting(*args[:2])
        given = flow is not None and flow.given(_read(name, func, args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if self._reader is not None and not (neutral and name in BLIND):
            reads.show(self._reader, func, name, args, kwargs or {}, overwrites=name in OVERWRITING)
        elif self._reader is not None and name in MAKERS:
            reads.show_out(self._reader, func, args, kwargs or {})
        self.seen.add(name)
        if self._numbers and name not in SILENT:
            self.numbers += _numbers_in(name, (args, kwargs))
        if held is not None and self._fill is not None:
            _fill_behind(args[0], held, self._fill)
        if func._schema.name in OWN_OPERATORS:
            return result
        if self._fill is not None and name not in LOOKS:
            self._keep(result)
        if flow is not None:
            flow.see(result, given=given, computes=not neutral)
        self._note_reads(name, args, kwargs, result)
        if name in MOVES:
            self.moves[name] += 1
            self._note(func, name, args, kwargs, result, self.moved_sketches)
        elif name in COPIES:
            self._copied(name, args, result)
        elif not neutral:
            self.compute[name] += 1
            self._note(func, name, args, kwargs, result, self.sketches)
        elif self._fill is not None and name in ALLOCATIONS and isinstance(result, torch.Tensor):
            self._fill(result)
        return result

    def _keep(self, result: Any) -> None:
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                self._new.add(tensor.untyped_storage().data_ptr())

    def _is_overwriting(self, target: Any, source: Any = None) -> bool:
        """Whether one number is about to be written to a part of this call's memory that holds several."""
        if not isinstance(target, torch.Tensor) or target.layout is not torch.strided:
            return False
        storage = target.untyped_storage()
        if storage.data_ptr() not in self._new or target.numel() * target.itemsize >= storage.nbytes():
            return False
        if target.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        one = not isinstance(source, torch.Tensor) or not varies(source)
        return one and varies(target)

    def _note_reads(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Count what leaves the device: a number, or elements that an operator writes to the host's memory.

        What becomes of them there (a list, an array or a bytearray in the same memory) no operator shows.
        """
        if name in READING:
            self.reads[kind_of(args[0])] += 1
            return
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        for made in tree_leaves(result) if given else ():
            if isinstance(made, torch.Tensor) and hosts.crosses(given, made):
                self.reads[kind_of(made)] += made.numel()

    def note_launch(self, given: Any) -> None:
        """Count what a kernel on a GPU is given of the host's memory (pinned): it may fill that unseen."""
        for tensor in tree_leaves(given):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self.reads[kind_of(tensor)] += tensor.numel()

    def _note(self, func: Any, name: str, args: Any, kwargs: Any, result: Any, into: list[Sketch]) -> None:
        if self._launched is not None:
            stamp = self._launched()
            call = Call(name.removesuffix("_"), func, args, kwargs or {}, result)
            spent = work_of(call)
            self.parts += parts_of(call)
            self._spent[stamp] = self._spent.get(stamp, Work()) + spent
            if self._input_sketches and self._of_inputs((args, kwargs)):
                self._on_inputs[stamp] = self._on_inputs.get(stamp, Work()) + spent
        if self._sketcher is not None:
            made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
            into += [sketch for t in made if (sketch := self._sketcher.sketch(t)) is not None]

    def _of_inputs(self, given: Any) -> bool:
        """Whether an operator is given the values of inputs, or multiples of them, copied or not."""
        assert self._sketcher is not None
        tensors = (t for t in tree_leaves(given) if isinstance(t, torch.Tensor))
        found = [sketch for t in tensors if (sketch := self._sketcher.sketch(t)) is not None]
        return bool(found) and all(any(one.multiple(own) for own in self._input_sketches) for one in found)

    def _copied(self, name: str, args: Any, result: torch.Tensor) -> None:
        """Count a copy that changes the order or the dtype; an input as it was given may be copied freely."""
        source = args[1] if name == "copy_" else args[0]
        if not isinstance(source, torch.Tensor):
            return
        same = source.dtype == result.dtype
        if same and _place(source) in self._given:
            return
        if (
            source.layout is not torch.strided
            or result.layout is not torch.strided
            or min(source.numel(), result.numel()) < 2
        ):
            return
        in_order = source.shape == result.shape and _steps(source) == _steps(result)
        if same and in_order:
            return
        if narrows(source, result):
            self.narrowed[str(result.dtype)] += 1
        if _truncates(source, result):
            self.copies[TRUNCATION] += 1
            self.lossy += loses(source, result)
        if not in_order or not _truncates(source, result):
            self.copies[CAST if in_order else name] += 1
        if self._sketcher is not None:
            sketch = self._sketcher.sketch(result)
            self.moved_sketches += [sketch] if sketch is not None else []


def _truncates(source: torch.Tensor, result: torch.Tensor) -> bool:
    if result.is_floating_point() or result.is_complex():
        return False
    fractions = source.is_floating_point() or source.is_complex()
    return fractions or (result.itemsize < source.itemsize and result.itemsize <= NARROW_INTEGER)


def _computes_from_tensors(name: str, func: Any, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation that makes a tensor is given others for its numbers (the ends of ``linspace``)."""
    if name not in OF_NUMBERS:
        return False
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(_read(name, func, args, kwargs)))


def _numbers_in(name: str, given: Any) -> list[tuple[str, str]]:
    """Plain numbers among operands; of a tensor that Python's numbers became, its first elements."""
    leaves = tree_leaves(given)
    plain = [str(leaf) for leaf in leaves if isinstance(leaf, int | float | complex)]
    if name in LIFTING:
        made = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        plain += [str(value) for t in made for value in t.detach().reshape(-1)[:MOST_LIFTED].tolist()]
    return [(name, number) for number in plain]


def _read(name: str, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The operands without those that are only written."""
    if name in OVERWRITING:
        return args[1:], kwargs
    written = {argument.name for argument in func._schema.arguments if argument.is_out}
    return args, {key: value for key, value in kwargs.items() if key not in written}


def kind_of(tensor: torch.Tensor) -> str:
    """Of values that the host reads."""
    return "floats" if tensor.is_floating_point() or tensor.is_complex() else "others"


def _nbytes(tensor: torch.Tensor) -> int | None:
    return tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else None


def _fill_behind(tensor: torch.Tensor, nbytes: int, fill: Callable[[torch.Tensor], object]) -> None:
    """Fill the memory that a tensor has got behind the first ``nbytes``."""
    storage, size = tensor.untyped_storage(), tensor.element_size()
    first, count = -(-nbytes // size), storage.nbytes() // size
    if count > first:
        behind: Any = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        fill(behind.set_(storage, first, (count - first,)))


def _steps(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides of the dimensions in which there is more than one element."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [(size, stride) for size, stride in pairs if size != 1]


def _place(tensor: torch.Tensor) -> Any:
    """The memory that a tensor looks at, and in which order; nothing where it has none."""
    if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(_steps(tensor))
