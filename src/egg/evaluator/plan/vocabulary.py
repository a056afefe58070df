"""What a plan may call: names of PyTorch that the static gate allows, as functions and as methods."""

from __future__ import annotations

from inspect import signature
from types import FunctionType

from torch.nn import functional

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

FRESH = frozenset(
    words("""
    arange clone cat column_stack complex concat concatenate constant_pad_nd dstack empty empty_like
    empty_permuted empty_strided eye full full_like hstack linspace logspace ones ones_like row_stack stack
    tensor vstack zeros zeros_like scalar_tensor repeat new_empty new_empty_strided new_full new_ones
    new_zeros rand randn randint randperm rand_like randn_like randint_like bernoulli normal multinomial
    poisson index_copy masked_fill masked_scatter index_add index_fill index_put index_reduce index_select
    gather scatter scatter_add scatter_reduce where tril triu take take_along_dim diag_embed one_hot
    abs acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin any argmax argmin argsort asin
    asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor bmm bucketize cdist ceil celu clamp clamp_max clamp_min copysign cos cosh
    count_nonzero cross cummax cummin cumprod cumsum deg2rad digamma dist div divide dot elu eq erf erfc
    erfinv exp exp2 expm1 float_power floor floor_divide fmax fmin fmod frac ge gelu glu gt hardshrink
    hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan isneginf isposinf ldexp le
    leaky_relu lerp lgamma log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and
    logical_not logical_or logical_xor logit logsigmoid logsumexp lt matmul max maximum mean min minimum mish
    mm msort mul multiply mv nan_to_num ne neg negative nextafter norm outer polar pow prelu prod rad2deg
    reciprocal relu relu6 remainder roll round rrelu rsqrt rsub searchsorted selu sgn sigmoid sign signbit
    silu sin sinc sinh softmax softmin softplus softshrink softsign sort sqrt square std std_mean sub
    subtract sum tan tanh tanhshrink threshold topk true_divide trunc var var_mean xlogy linear bilinear
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d layer_norm group_norm rms_norm
    batch_norm instance_norm embedding scaled_dot_product_attention avg_pool1d avg_pool2d avg_pool3d
    max_pool1d max_pool2d max_pool3d rfft irfft
    """)
)
"""Of these, what surely gives memory of its own. Anything else may give memory of what it was given: a view,
or what it was given itself (a product of one factor, a dropout that is off)."""

WRITTEN = {
    "torch.nn.functional.batch_norm": (1, 2, 5), "torch.nn.functional.instance_norm": (1, 2, 5),
    "torch.batch_norm": (3, 4, 5), "torch.instance_norm": (3, 4, 5), "torch.native_batch_norm": (3, 4, 5),
}  # fmt: skip
"""Places of running statistics, and of the argument that says whether they are moved."""
WRITTEN_BY_NAME = ("running_mean", "running_var")
MOVES = ("training", "use_input_stats")
RENORMED = frozenset(("embedding", "embedding_bag"))
"""Functions that scale rows of a table in place where ``max_norm``, the fourth argument, is given."""


def _places(argument: str) -> dict[str, int]:
    found = {}
    for name, function in vars(functional).items():
        if isinstance(function, FunctionType) and not name.startswith("_"):
            names = list(signature(function).parameters)
            if argument in names:
                found[f"torch.nn.functional.{name}"] = names.index(argument)
    return found


IN_PLACE = _places("inplace")
"""The position of the argument that makes a function work in place."""
OPTIONS = frozenset(
    words("""
    num_warps num_stages num_ctas maxnreg enable_fp_fusion launch_cooperative_grid waves_per_eu
    matrix_instr_nonkdim kpack
    """)
)
"""Options of a launch. Others change for what a kernel is compiled, or what waits for what."""


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
    float8_e5m2 float8_e5m2fnuz float8_e8m0fnu half int int8 int16 int32 int64 long short uint8 uint16
    uint32 uint64 channels_last channels_last_3d contiguous_format preserve_format
    """)
)
VALUES = CONSTANTS | DTYPES
"""Names of ``torch`` that are plain values."""
