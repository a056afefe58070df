"""What one operator of PyTorch costs on a GPU: its family, operations, bytes and launches.

Matrix products, convolutions, attention and recurrences are counted exactly, a multiplication and
an addition being two. Everything else is bound by memory, and its operations are a convention:

=================  =====================================================================
pointwise          1 per element made
random             1 per element made
reduction, scan    1 per element read
normalization      8 per element: mean 1, centred squares 3, centre and scale 2, affine 2;
                   2 with known statistics, where only scale and shift are left
softmax            5 per element: maximum, difference, exponential, sum, quotient
pooling            1 per element of each window
loss               3 per element compared: difference, function of it, sum
gather, movement   0
other              1 per element made
=================  =====================================================================

An operator reads each tensor once and writes its results once, in one launch. :data:`EXTRA` lists
those of eager PyTorch on CUDA that do more. It says what their kernels ask of memory; what a cache
answers, and what a library decides by size (split sums, layout changes around a convolution), is
not in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from egg.core.facts import Family
from egg.evaluator.task.meta import Recurrence, product_flops

ROW_ON_CHIP = 48 * 1024
"""Bytes of a row that a kernel keeps in shared memory while it goes over it again."""
NORMALIZING = 8.0
"""Operations per element, statistics included."""


@dataclass(frozen=True)
class Call:
    """One operator at work: what it was given and what came out."""

    name: str
    """Without the trailing underscore of an in-place one."""
    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any

    def argument(self, name: str, default: Any = None) -> Any:
        """By the schema's name, wherever it was given."""
        for index, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                given = self.args[index] if index < len(self.args) else self.kwargs.get(name)
                return default if given is None else given
        return default

    @property
    def given(self) -> list[torch.Tensor]:
        return tensors_in((self.args, self.kwargs))

    @property
    def made(self) -> list[torch.Tensor]:
        return tensors_in(self.out)


@dataclass(frozen=True)
class Extra:
    """Beyond one launch that reads every input and writes every output once."""

    launches: int = 0
    bytes: int = 0


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


# -- families --------------------------------------------------------------------------------------

_NAMES = {
    Family.PRODUCT: "mm addmm bmm baddbmm addbmm mv addmv dot vdot addr _scaled_mm _int_mm _addmm_activation",
    Family.CONVOLUTION: "convolution _convolution cudnn_convolution convolution_overrideable "
    "_slow_conv2d_forward",
    Family.ATTENTION: "_flash_attention_forward _efficient_attention_forward flex_attention",
    Family.NORMALIZATION: "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "_batch_norm_with_update _batch_norm_no_update cudnn_batch_norm native_layer_norm native_group_norm "
    "_fused_rms_norm _weight_norm_interface renorm",
    Family.SOFTMAX: "_softmax _log_softmax _safe_softmax",
    Family.REDUCTION: "sum nansum mean prod amax amin aminmax max min argmax argmin all any norm "
    "linalg_vector_norm var std var_mean std_mean logsumexp count_nonzero trace",
    Family.SCAN: "cumsum cumprod logcumsumexp _cummax_helper _cummin_helper cummax cummin",
    Family.LOSS: "mse_loss smooth_l1_loss huber_loss binary_cross_entropy nll_loss_forward "
    "nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward soft_margin_loss _ctc_loss",
    Family.GATHER: "index index_select gather embedding take scatter scatter_add scatter_reduce index_add "
    "index_put _index_put_impl _unsafe_index index_copy index_fill index_reduce put masked_scatter "
    "_embedding_bag _embedding_bag_forward_only grid_sampler_2d grid_sampler_3d",
    Family.MOVEMENT: "clone copy cat stack _to_copy constant_pad_nd flip roll repeat im2col col2im "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle zeros zeros_like new_zeros ones "
    "ones_like new_ones full full_like new_full fill zero arange eye linspace scalar_tensor diag_embed "
    "slice_scatter select_scatter diagonal_copy block_diag tril_indices triu_indices",
    Family.RANDOM: "bernoulli rand rand_like randn randn_like randint randint_like randperm normal uniform "
    "exponential log_normal cauchy geometric random multinomial poisson native_dropout rrelu_with_noise",
    Family.POINTWISE: "tril triu glu hardswish rsub _prelu_kernel log_sigmoid_forward bucketize",
}
_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {name: family for family, names in _NAMES.items() for name in names.split()}
)
_PREFIXES = (
    (("_scaled_dot_product", "scaled_dot_product"), Family.ATTENTION),
    (("avg_pool", "max_pool", "_adaptive_", "adaptive_", "fractional_max_pool", "upsample_"), Family.POOLING),
    (("_upsample_",), Family.POOLING),
    (("reflection_pad", "replication_pad"), Family.MOVEMENT),
)


def family_of(name: str, func: Any) -> Family:
    """By name, without the trailing underscore of an in-place one; else by PyTorch's own tag for it."""
    if name in _FAMILIES:
        return _FAMILIES[name]
    for prefixes, family in _PREFIXES:
        if name.startswith(prefixes):
            return family
    return Family.POINTWISE if torch.Tag.pointwise in func.tags else Family.OTHER


# -- operations ------------------------------------------------------------------------------------


def flops_of(call: Call, family: Family) -> float:
    counted = product_flops(call.func, call.args, call.kwargs, call.out)
    if counted is not None:
        return counted
    if family is Family.PRODUCT:
        return _other_product(call)
    made, given = call.made, call.given
    elements = made[0].numel() if made else 0
    read = max((t.numel() for t in given), default=0)
    match family:
        case Family.POINTWISE | Family.RANDOM | Family.OTHER:
            return float(elements)
        case Family.REDUCTION | Family.SCAN:
            return float(read)
        case Family.NORMALIZATION:
            return (NORMALIZING if needs_statistics(call) else 2.0) * elements
        case Family.SOFTMAX:
            return 5.0 * elements
        case Family.POOLING:
            return float(max(read, elements * math.prod(window_of(call))))
        case Family.LOSS:
            return 3.0 * (_targets(call).numel() if _picks(call) else read)
        case _:
            return 0.0


def attention_flops(query: torch.Tensor, key: torch.Tensor, out: torch.Tensor, *, causal: bool) -> float:
    """Scores and their product with the values, for the pairs of query and key that come to count."""
    rows, columns = query.shape[-2], key.shape[-2]
    pairs = rows * columns
    if causal:
        short = min(rows, columns)
        pairs = short * (short + 1) // 2 + (rows - short) * columns
    return 2.0 * math.prod(out.shape[:-2]) * pairs * (query.shape[-1] + out.shape[-1])


def _other_product(call: Call) -> float:
    """Products with a vector, which PyTorch's own table leaves out: every element is used once."""
    if call.name == "addr":
        return 2.0 * call.made[0].numel()
    if call.name == "addbmm":
        batches, rows, inner = call.argument("batch1").shape
        return 2.0 * batches * rows * inner * call.argument("batch2").shape[-1]
    if call.name in ("_int_mm", "_addmm_activation"):
        left, right = (
            call.argument(n) for n in (("self", "mat2") if call.name == "_int_mm" else ("mat1", "mat2"))
        )
        return 2.0 * left.numel() * right.shape[-1]
    return 2.0 * max(t.numel() for t in call.given)


def window_of(call: Call) -> tuple[int, ...]:
    """Of a pooling operator; 1 where it has none and takes each element once."""
    size = call.argument("kernel_size")
    if size is None:
        return (1,)
    dims = int(next((c for c in call.name if c.isdigit()), "1"))
    return tuple(size) * dims if len(size) == 1 else tuple(size)


def needs_statistics(call: Call) -> bool:
    """Whether a normalization looks at its data before it scales it."""
    if call.name in ("_native_batch_norm_legit_no_training", "_batch_norm_no_update"):
        return False
    return bool(call.argument("training", True))


def _picks(call: Call) -> bool:
    """Whether a loss reads one element per target, rather than all."""
    return call.name.startswith("nll_loss")


def _targets(call: Call) -> torch.Tensor:
    return call.argument("target")


# -- bytes and launches ----------------------------------------------------------------------------


def read_bytes(call: Call, tensor: torch.Tensor, whole: int) -> int:
    """What is read of an input whose memory is ``whole`` bytes: indexing reads what it picks and no more."""
    family = family_of(call.name, call.func)
    if family is Family.GATHER and tensor is call.given[0]:
        return 0 if call.func._schema.is_mutable else min(whole, size_of(call.made[0]))
    if family is Family.LOSS and _picks(call) and tensor is call.given[0]:
        return min(whole, _targets(call).numel() * tensor.element_size())
    return whole


def written_bytes(call: Call, tensor: torch.Tensor, whole: int) -> int:
    """What is written of an output whose memory is ``whole`` bytes; scattering in place has its own rule."""
    family = family_of(call.name, call.func)
    if family is Family.GATHER and call.func._schema.is_mutable:
        return 0
    statistics = family is Family.NORMALIZATION and tensor is not call.made[0]
    return 0 if statistics and not needs_statistics(call) else whole


def extra_of(call: Call) -> Extra:
    rule = EXTRA.get(call.name)
    return rule(call) if rule is not None else Extra()


def again(tensor: torch.Tensor, row: int) -> int:
    """Bytes of a second look at rows of ``row`` bytes, if they do not stay on the chip."""
    return size_of(tensor) if row > ROW_ON_CHIP else 0


def _batch_norm(call: Call) -> Extra:
    """Statistics, then the same input again."""
    return Extra(1, size_of(call.given[0])) if needs_statistics(call) else Extra()


def _group_norm(call: Call) -> Extra:
    """Moments, coefficients per channel, then the same input again."""
    return Extra(2, size_of(call.given[0]))


def _layer_norm(call: Call) -> Extra:
    """A row that does not stay on the chip is read again."""
    row = math.prod(call.argument("normalized_shape")) * call.given[0].element_size()
    return Extra(0, again(call.given[0], row))


def _softmax(call: Call) -> Extra:
    """Once where a contiguous row stays on the chip; else maximum, sum and quotient each read it."""
    source, dim = call.given[0], call.argument("dim", -1)
    if source.dim() == 0:
        return Extra()
    row = source.shape[dim] * source.element_size()
    kept = source.stride(dim) == 1 and row <= ROW_ON_CHIP
    return Extra(0, 0 if kept else 2 * size_of(source))


def _logsumexp(call: Call) -> Extra:
    """Maximum; guard against infinities (3); difference, exponential, sum; logarithm, addition."""
    return Extra(8, 5 * size_of(call.given[0]))


def _convolution(call: Call) -> Extra:
    """cuDNN convolves; a bias is added to the result afterwards, except in PyTorch's own depthwise kernel."""
    weight, out = call.argument("weight"), call.made[0]
    depthwise = call.argument("groups", 1) == call.given[0].shape[1] > 1 and weight.dim() <= 4
    if call.argument("bias") is None or (depthwise and not call.argument("transposed", False)):
        return Extra()
    return Extra(1, 2 * size_of(out))


def _added_product(call: Call) -> Extra:
    """A bias vector rides along; any other addend is copied into the result first."""
    addend, out = call.argument("self"), call.made[0]
    if (addend.dim() == 1 and call.name == "addmm") or call.argument("beta", 1) == 0:
        return Extra()
    return Extra(1, 2 * size_of(out))


def _loss(call: Call) -> Extra:
    """One loss per element, written; then their mean or sum."""
    each = call.given[0].numel() * call.given[0].element_size()
    return Extra(1, 2 * each) if call.argument("reduction", 1) != 0 else Extra()


def _pad(call: Call) -> Extra:
    """The whole is filled, then the inner part is copied in."""
    return Extra(1, size_of(call.given[0]))


def _scatter(call: Call) -> Extra:
    """As many elements are written as are given (and read, to add to); out of place, all is copied first."""
    target = call.given[0]
    values = call.argument("src", call.argument("source", call.argument("values")))
    count = values.numel() if isinstance(values, torch.Tensor) else call.given[-1].numel()
    adds = "add" in call.name or "reduce" in call.name or call.argument("accumulate", False)
    moved = min(count, target.numel()) * target.element_size() * (2 if adds else 1)
    return Extra(0 if call.func._schema.is_mutable else 1, moved)


def _sorting(call: Call) -> Extra:
    """Four passes of a radix sort over keys and places."""
    return Extra(3, 3 * sum(2 * size_of(t) for t in call.made))


EXTRA: Mapping[str, Callable[[Call], Extra]] = MappingProxyType(
    {
        "native_batch_norm": _batch_norm,
        "_native_batch_norm_legit": _batch_norm,
        "_batch_norm_with_update": _batch_norm,
        "native_group_norm": _group_norm,
        "native_layer_norm": _layer_norm,
        "_fused_rms_norm": _layer_norm,
        "_softmax": _softmax,
        "_log_softmax": _softmax,
        "_safe_softmax": _softmax,
        "logsumexp": _logsumexp,
        "convolution": _convolution,
        "addmm": _added_product,
        "baddbmm": _added_product,
        "mse_loss": _loss,
        "smooth_l1_loss": _loss,
        "huber_loss": _loss,
        "binary_cross_entropy": _loss,
        "soft_margin_loss": _loss,
        "constant_pad_nd": _pad,
        "scatter": _scatter,
        "scatter_add": _scatter,
        "scatter_reduce": _scatter,
        "index_add": _scatter,
        "index_put": _scatter,
        "_index_put_impl": _scatter,
        "index_copy": _scatter,
        "sort": _sorting,
    }
)


def recurrence_bytes(layer: Recurrence) -> int:
    """A product for all steps of a layer writes what each step then adds to; the steps write the outputs.

    The recurrent weights, read at every step, are counted once: they stay in the cache.
    """
    positions, item = layer.positions, layer.sequence.element_size()
    each = len(layer.weights) // layer.parts
    moved = 0
    for part in range(layer.parts):
        gates, features = layer.weights[part * each].shape
        moved += positions * item * (features + 2 * gates + layer.states[0].shape[-1])
    held = sum(size_of(w) for w in layer.weights)
    return moved + held + 2 * sum(size_of(s) for s in layer.states)


def recurrence_launches(layer: Recurrence) -> int:
    """For every layer and direction the product of all inputs, then at each step a product and the gates."""
    return layer.parts * (1 + 2 * layer.steps)
