"""What kind of program this is, in the words that skills ask in.

A workload says of every operation what it reads and makes; an expert who chooses a technique asks
coarser things: is there a product that is deep and narrow, a convolution with a stride, a reduction
over a dimension that is not the last? These are answered once, when the facts are gathered, and
kept with them, so that a run's log answers them for ever without PyTorch.

One small operation among large ones decides nothing: a classifier behind fifty convolutions does
not make a network a problem of small products. So of products and convolutions only those are asked
that have a share of the work or of the traffic of their kind (:data:`egg.evaluator.task.chains.MATTERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from egg.core.bottleneck import Value
from egg.core.facts import Family, Operation, TensorForm, Workload
from egg.evaluator.task.chains import MATTERS, chains_of, plain, weighty

FEW = 8
"""Rows or columns up to which a product is one of a matrix with a few vectors."""
SMALL = 64
"""Below this, a dimension of a product leaves most of a usual tile empty."""
DEEP = 4
"""A product is deep whose inner dimension is so many times its larger outer one."""
FLOATING = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
ORDERING = ("sort", "topk", "kthvalue", "median", "nanmedian", "mode")
COLLECTING = ("scatter_add", "scatter_reduce", "index_add", "index_reduce")
"""Operations that combine all elements with one destination; of the next, those that accumulate do."""
PUTTING = ("index_put", "_index_put_impl")
CODES = ("uint8", "int8", "float8_e4m3fn", "float8_e5m2", "int16", "int32")
"""Types in which the weights of a product are held as codes, several in a word or one in a byte."""
STATISTICS = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm")


def traits_of(work: Workload) -> dict[str, Value]:
    """Every trait by its name; the names are part of the vocabulary of skills."""
    names = [plain(op.name) for op in work.operations]
    return {
        "operations": len(work.operations),
        "products": _count(work, Family.PRODUCT),
        "convolutions": _count(work, Family.CONVOLUTION),
        "reductions": _count(work, Family.REDUCTION),
        "triangular": any(map(_cuts_much(work), work.operations)),
        "diagonal": any(name in ("diag", "diag_embed", "diagonal_copy") for name in names),
        "argmin_argmax": any(name in ("argmin", "argmax") for name in names),
        "ordering": any(name in ORDERING for name in names),
        "collecting_scatter": any(map(_collects, work.operations)),
        "coded_weights": _holds_codes(work),
        "middle_reduction": any(map(_over_the_middle, work.operations)),
        "training_norm": any(map(_takes_statistics, work.operations)),
        "group_norm": any(map(_within_samples, work.operations)),
        "norm_size": max(map(_normalized_together, work.operations), default=0),
        "reduction_size": max(map(_reduced_together, work.operations), default=0),
        "unit_reduction": any(map(_over_nothing, work.operations)),
        **_of_tensors(work),
        **_of_products(work),
        **_of_convolutions(work),
        **chains_of(work),
    }


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
    products = [p for op in weighty(work, Family.PRODUCT) if (p := _product(op)) is not None]
    return {
        "matrix_vector": any(min(p.m, p.n) <= FEW and p.k >= SMALL for p in products),
        "small_product": any(min(p.m, p.n, p.k) < SMALL for p in products),
        "deep_product": any(p.k >= DEEP * max(p.m, p.n) for p in products),
        "batched_product": any(p.batches > 1 for p in products),
        "strided_k": any(map(_inner_is_strided, weighty(work, Family.PRODUCT))),
    }


def _inner_is_strided(op: Operation) -> bool:
    """Whether the summed dimension is not the contiguous one in an operand: columns of the right one."""
    matrices = [form for form in op.inputs[-2:] if len(form.shape) >= 2]
    if len(matrices) < 2 or 1 in (*matrices[0].shape[-2:], *matrices[1].shape[-2:]):
        return False
    left, right = (form.strides or (form.shape[-1], 1) for form in matrices)
    return left[-1] != 1 or right[-2] != 1


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
    found = [op for op in weighty(work, Family.CONVOLUTION) if len(op.inputs) >= 2]
    return {
        "strided_convolution": any(max(op.settings.get("stride", (1,)), default=1) > 1 for op in found),
        "transposed_convolution": any(_number(op, "transposed") for op in found),
        "grouped_convolution": any(_number(op, "groups", 1) > 1 for op in found),
        "depthwise_convolution": any(map(_is_depthwise, found)),
        "pointwise_convolution": any(set(op.inputs[1].shape[2:]) <= {1} for op in found),
        "convolution_dims": max((len(op.inputs[1].shape) - 2 for op in found), default=0),
    }


def _is_depthwise(op: Operation) -> bool:
    """One group per channel of the input."""
    groups, source = _number(op, "groups", 1), op.inputs[0].shape
    channels = source[-(len(op.inputs[1].shape) - 1)] if len(source) >= len(op.inputs[1].shape) - 1 else 0
    return groups > 1 and groups == channels


# -- operations ------------------------------------------------------------------------------------


def _number(op: Operation, name: str, default: int = 0) -> int:
    return next(iter(op.settings.get(name, ())), default)


def _collects(op: Operation) -> bool:
    """Whether it combines elements at places that an index names."""
    name = plain(op.name)
    return name in COLLECTING or (name in PUTTING and bool(_number(op, "accumulate")))


def _holds_codes(work: Workload) -> bool:
    """Whether products have weights that are held as codes: most bytes of parameters and buffers are such.
    Vectors of integers (positions, counters) are none."""
    held = tuple(work.parameters.values())
    codes = sum(form.bytes for form in held if form.dtype in CODES and len(form.shape) > 1)
    multiplies = any(op.family is Family.PRODUCT for op in work.operations)
    return multiplies and codes > 0 and 2 * codes >= sum(form.bytes for form in held)


def _over_the_middle(op: Operation) -> bool:
    """Whether it goes over a dimension and leaves the last one standing."""
    dims = op.settings.get("dim", ())
    if op.family not in (Family.REDUCTION, Family.SOFTMAX, Family.SCAN) or not (dims and op.inputs):
        return False
    rank = len(op.inputs[0].shape)
    return rank > 1 and rank - 1 not in {dim % rank for dim in dims}


def _over_nothing(op: Operation) -> bool:
    """Whether it reduces a dimension of size one, and so changes nothing but the shape."""
    if op.family is not Family.REDUCTION or not (op.inputs and op.outputs) or not op.settings.get("dim"):
        return False
    shape = op.inputs[0].shape
    return bool(shape) and all(shape[dim % len(shape)] == 1 for dim in op.settings["dim"])


def _cuts_much(work: Workload) -> Callable[[Operation], bool]:
    """Whether an operation takes the triangle of something large; a small mask of ones is no such thing."""
    largest = max((form.elements for op in work.operations for form in op.outputs), default=0)

    def cuts(op: Operation) -> bool:
        made = op.outputs[0].elements if op.outputs else 0
        return plain(op.name) in ("tril", "triu") and made >= MATTERS * largest

    return cuts


def _within_samples(op: Operation) -> bool:
    """Group norm, or instance norm, which arrives as a batch norm of batch 1."""
    name = plain(op.name)
    return name == "native_group_norm" or (
        name in STATISTICS and bool(op.inputs) and op.inputs[0].shape[:1] == (1,)
    )


def _normalized_together(op: Operation) -> int:
    """How many numbers share a mean and a variance; 0 of what is no normalization."""
    if op.family is not Family.NORMALIZATION or len(op.outputs) < 2 or not op.inputs:
        return 0
    return op.inputs[0].elements // max(1, op.outputs[1].elements)


def _reduced_together(op: Operation) -> int:
    """How many numbers go into one result of a reduction, or into one sum of a softmax."""
    if op.family is Family.SOFTMAX and op.inputs and op.inputs[0].shape and op.settings.get("dim"):
        return op.inputs[0].shape[op.settings["dim"][0]]
    if op.family is not Family.REDUCTION or not (op.inputs and op.outputs):
        return 0
    return op.inputs[0].elements // max(1, op.outputs[0].elements)


def _takes_statistics(op: Operation) -> bool:
    """Whether a batch norm takes its moments from the batch: an instance norm arrives as one of batch 1."""
    training = plain(op.name) in STATISTICS and bool(_number(op, "training", 1))
    return training and bool(op.inputs) and op.inputs[0].shape[:1] != (1,)
