"""What kind of program this is, in the words that skills ask in.

A workload says of every operation what it reads and makes; an expert who chooses a technique asks
coarser things: is there a product that is deep and narrow, a convolution with a stride, a reduction
over a dimension that is not the last? These are answered once, when the facts are gathered, and
kept with them, so that a run's log answers them for ever without PyTorch.

One small operation among large ones decides nothing: a classifier behind fifty convolutions does
not make a network a problem of small products. So of products and convolutions only those are asked
that have a share of the work or of the traffic of their kind (:data:`MATTERS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from egg.core.bottleneck import Value
from egg.core.facts import Family, Operation, TensorForm, Workload

MATTERS = 0.05
"""Share of the work or bytes of its family from which on an operation says what kind of program it is."""
FEW = 8
"""Rows or columns up to which a product is one of a matrix with a few vectors."""
SMALL = 64
"""Below this, a dimension of a product leaves most of a usual tile empty."""
DEEP = 4
"""A product is deep whose inner dimension is so many times its larger outer one."""
FLOATING = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
STATISTICS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm")


def traits_of(work: Workload) -> dict[str, Value]:
    """Every trait by its name; the names are part of the vocabulary of skills."""
    names = [_plain(op.name) for op in work.operations]
    return {
        "operations": len(work.operations),
        "products": _count(work, Family.PRODUCT),
        "convolutions": _count(work, Family.CONVOLUTION),
        "reductions": _count(work, Family.REDUCTION),
        "triangular": any(name in ("tril", "triu") for name in names),
        "diagonal": any(name in ("diag", "diag_embed", "diagonal_copy") for name in names),
        "argmin_argmax": any(name in ("argmin", "argmax") for name in names),
        "middle_reduction": any(map(_over_the_middle, work.operations)),
        "training_norm": any(map(_takes_statistics, work.operations)),
        **_of_tensors(work),
        **_of_products(work),
        **_of_convolutions(work),
    }


def _plain(name: str) -> str:
    """``argmax`` of ``aten.argmax``; an in-place operator goes by the name of the other."""
    return name.rpartition(".")[2].removesuffix("_")


def _count(work: Workload, family: Family) -> int:
    return sum(op.family is family for op in work.operations)


# -- tensors ---------------------------------------------------------------------------------------


def _of_tensors(work: Workload) -> dict[str, Value]:
    inputs, held, made = (tuple(m.values()) for m in (work.inputs, work.parameters, work.outputs))
    all_forms = (*inputs, *held, *made)
    dims = _largest(all_forms).shape
    given = _largest(inputs)
    columns = given.shape[-1] if given.shape else 1
    return {
        "dtype": _narrowest(all_forms),
        "smallest_dim": min(dims, default=1),
        "largest_dim": max(dims, default=1),
        "rank": len(given.shape),
        "batch": inputs[0].shape[0] if inputs and inputs[0].shape else 1,
        "rows": given.elements // columns if columns else 0,
        "columns": columns,
        "inputs_bytes": sum(form.bytes for form in inputs),
        "parameters_bytes": sum(form.bytes for form in held),
        "outputs_bytes": sum(form.bytes for form in made),
        "transposed_inputs": any(form.strides is not None for form in inputs) or any(_turned(work)),
    }


def _largest(forms: Iterable[TensorForm]) -> TensorForm:
    """The first of the largest; a number where there is none."""
    return max(forms, key=lambda form: form.elements, default=TensorForm("float32", (), 4))


def _narrowest(forms: Iterable[TensorForm]) -> str:
    """Of the floating dtypes; ``other`` where there is none that is usual."""
    floating = [form.dtype for form in forms if form.dtype in FLOATING]
    return min(floating, key=lambda name: (FLOATING[name], name), default="other")


def _turned(work: Workload) -> Iterator[bool]:
    """Whether a product takes an input the other way round than it lies in memory (a weight always is)."""
    held = {form.shape for form in work.parameters.values()}
    given = {form.shape for form in work.inputs.values()} - held
    for op in work.operations:
        if op.family is Family.PRODUCT:
            for form in op.inputs:
                turned = (*form.shape[:-2], *reversed(form.shape[-2:]))
                yield form.strides is not None and len(form.shape) >= 2 and turned in given


# -- products --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """``batches`` products of [m, k] and [k, n]."""

    batches: int
    m: int
    n: int
    k: int


def _of_products(work: Workload) -> dict[str, Value]:
    products = [p for op in _weighty(work, Family.PRODUCT) if (p := _product(op)) is not None]
    return {
        "matrix_vector": any(min(p.m, p.n) <= FEW for p in products),
        "small_product": any(min(p.m, p.n, p.k) < SMALL for p in products),
        "deep_product": any(p.k >= DEEP * max(p.m, p.n) for p in products),
        "batched_product": any(p.batches > 1 for p in products),
    }


def _product(op: Operation) -> _Product | None:
    """Its dimensions, from what it makes and how much work that is; ``None`` where it makes nothing."""
    if not op.outputs or not op.outputs[0].elements:
        return None
    made = op.outputs[0]
    *batches, m, n = (1, 1, *made.shape) if len(made.shape) < 2 else made.shape
    if len(made.shape) == 1:
        m, n = made.shape[0], 1
    count = 1
    for size in batches:
        count *= size
    return _Product(count, m, n, max(1, round(op.flops / (2 * made.elements))))


# -- convolutions ----------------------------------------------------------------------------------


def _of_convolutions(work: Workload) -> dict[str, Value]:
    found = [op for op in _weighty(work, Family.CONVOLUTION) if len(op.inputs) >= 2]
    return {
        "strided_convolution": any(max(op.settings.get("stride", (1,)), default=1) > 1 for op in found),
        "transposed_convolution": any(_told(op, "transposed") for op in found),
        "grouped_convolution": any(_told(op, "groups", 1) > 1 for op in found),
        "depthwise_convolution": any(map(_is_depthwise, found)),
        "pointwise_convolution": any(set(op.inputs[1].shape[2:]) <= {1} for op in found),
        "convolution_dims": max((len(op.inputs[1].shape) - 2 for op in found), default=0),
    }


def _is_depthwise(op: Operation) -> bool:
    """One group per channel of the input."""
    groups, source = _told(op, "groups", 1), op.inputs[0].shape
    channels = source[-(len(op.inputs[1].shape) - 1)] if len(source) >= len(op.inputs[1].shape) - 1 else 0
    return groups > 1 and groups == channels


# -- operations ------------------------------------------------------------------------------------


def _weighty(work: Workload, family: Family) -> list[Operation]:
    """Those with a share of what their family does or moves that counts."""
    found = [op for op in work.operations if op.family is family]
    flops, moved = sum(op.flops for op in found), sum(op.bytes for op in found)
    return [op for op in found if op.flops >= MATTERS * flops or op.bytes >= MATTERS * moved]


def _told(op: Operation, name: str, default: int = 0) -> int:
    return next(iter(op.settings.get(name, ())), default)


def _over_the_middle(op: Operation) -> bool:
    """Whether it goes over a dimension and leaves the last one standing."""
    dims = op.settings.get("dim", ())
    if op.family not in (Family.REDUCTION, Family.SOFTMAX, Family.SCAN) or not (dims and op.inputs):
        return False
    rank = len(op.inputs[0].shape)
    return rank > 1 and rank - 1 not in {dim % rank for dim in dims}


def _takes_statistics(op: Operation) -> bool:
    """Whether a batch norm takes its moments from the batch: an instance norm is told as one of batch 1."""
    training = _plain(op.name) in STATISTICS and bool(_told(op, "training", 1))
    return training and bool(op.inputs) and op.inputs[0].shape[:1] != (1,)
