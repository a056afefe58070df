"""What a plan may call: names of PyTorch that the static gate allows, as functions and as methods."""

from __future__ import annotations

from egg.evaluator.static.namespaces import judge
from egg.evaluator.static.vocabulary import (
    DATA_MOVEMENT,
    DENIED_ATTRIBUTES,
    RANDOM,
    TENSOR_COMPUTE,
    words,
)

FUNCTIONS = (DATA_MOVEMENT | TENSOR_COMPUTE | RANDOM) - {
    "is_nonzero", "allclose", "equal", "numel", "get_device", "is_complex", "is_conj", "is_floating_point",
    "is_neg", "is_same_size", "is_signed", "can_cast", "promote_types", "result_type", "nonzero", "argwhere",
    "unique", "unique_consecutive", "masked_select", "repeat_interleave",
}  # fmt: skip
"""Functions of ``torch`` that give tensors, of a shape that follows from their arguments' shapes."""

_METHODS = frozenset(
    words("""
    view expand expand_as repeat contiguous to copy_ fill_ zero_ new_empty new_empty_strided new_full new_ones
    new_zeros unfold masked_fill_ masked_scatter_ index_add_ index_copy_ index_copy index_fill_ index_put_
    scatter_ scatter_add_ scatter_reduce_ index_reduce_ add_ sub_ mul_ div_ pow_ clamp_ addcmul_ addcdiv_
    addmm_ baddbmm_ lerp_ triu_ tril_ eq_ ne_ lt_ le_ gt_ ge_ logical_and_ logical_or_ logical_xor_
    logical_not_ bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_not_ normal_ uniform_ bernoulli_ random_
    exponential_ remainder_ floor_divide_ true_divide_ copysign_ fmod_ atan2_ squeeze_ unsqueeze_ transpose_
    t_ cumsum_ cumprod_ put_ sgn_ nan_to_num_ addr_ addbmm_ baddbmm_ sort view_as_real view_as_complex
    float half double bfloat16 int long bool
    """)
)
METHODS = (FUNCTIONS | _METHODS) - DENIED_ATTRIBUTES.keys()
"""Methods of a tensor."""

VIEWS = frozenset(
    words("""
    as_strided atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to chunk contiguous detach
    diagonal dsplit expand expand_as flatten hsplit imag moveaxis movedim narrow permute ravel real reshape
    resolve_conj resolve_neg select split split_with_sizes squeeze squeeze_ unsqueeze_ transpose_ t_ swapaxes
    swapdims t tensor_split to transpose unbind unflatten unfold unsqueeze view view_as_complex view_as_real
    vsplit positive float half double bfloat16 int long bool as_tensor asarray adjoint conj conj_physical real
    meshgrid clone_ dropout alpha_dropout feature_alpha_dropout feature_dropout
    """)
)
"""Of these, what may give memory of what it was given."""


def is_function(path: str) -> bool:
    """Whether a plan may call ``path``: a function of ``torch`` or of a namespace of tensor functions."""
    module, _, name = path.rpartition(".")
    if module == "torch":
        return name in FUNCTIONS
    if module in ("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"):
        return name[:1].islower() and "one_hot" not in name and judge(path) is None
    return False


CONSTANTS = frozenset(words("inf nan pi e newaxis"))
DTYPES = frozenset(
    words("""
    bfloat16 bool complex64 complex128 double float float16 float32 float64 float8_e4m3fn float8_e4m3fnuz
    float8_e5m2 float8_e5m2fnuz half int int8 int16 int32 int64 long short uint8 uint16 uint32 uint64
    channels_last channels_last_3d contiguous_format preserve_format
    """)
)
VALUES = CONSTANTS | DTYPES
"""Names of ``torch`` that are plain values."""
