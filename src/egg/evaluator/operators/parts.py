"""Operators of PyTorch that stand for several others, and what is done inside them.

A reference is often written out (a product, then a sum; scores, softmax, product) where a library has one
operator for all of it. By its name that operator counts for its product alone, and the sum, scale, mask or
softmax inside it would seem to be left to own kernels. So these parts are counted as well: how many there
are of the kinds that a kernel may take over by carrying values, and how much work they are beyond what
:mod:`.spent` counts. Both sides are counted alike, and what a library does more of than the reference is its
own. The numbers are those of the longest usual way to write an operator out.
"""

from __future__ import annotations

import math
from collections import Counter

import torch

from egg.core.facts import Family
from egg.evaluator.task.costs import Call, family_of, needs_statistics

SUM, MASK, SOFTMAX, NORM, DISTANCE = "sum", "mask", "softmax", "norm", "distance"
"""Kinds of parts: a sum, difference or product with something; a mask, which may be added or filled in; and
operators of which the reference may have all the steps."""
STEPS = {
    kind: frozenset(names.split())
    for kind, names in {
        MASK: "tril triu eq ne gt ge lt le bitwise_not bitwise_and logical_not logical_and logical_or",
        SOFTMAX: "softmax exp exp2 sum amax max logsumexp log",
        NORM: "mean var var_mean std std_mean sum pow square sqrt rsqrt reciprocal linalg_vector_norm",
        DISTANCE: "sum pow square abs sqrt matmul rectifier linalg_vector_norm",
    }.items()
}
"""Their operations besides sums, differences and products, as :data:`..trial.watch.FAMILIES` names them."""

LINEAR = frozenset(
    str.split("""
    add sub rsub mul div neg lerp addcmul addcdiv true_divide batch_norm native_batch_norm cudnn_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_no_update
    """)
)
"""Operations that a kernel which scales or shifts may stand for."""
CLIPPING = frozenset(
    ["rectifier", "leaky", "exponential unit", "abs", "where", "masked_fill", "hardshrink", "softshrink",
     "dropout", "native_dropout", "bernoulli", "sign", "sgn"]
)  # fmt: skip
"""Those that a kernel which clips may stand for."""

ADDING = frozenset(["addmm", "baddbmm", "addbmm", "addmv", "addr", "_addmm_activation"])
INSIDE = {
    **dict.fromkeys(("sigmoid", "log_sigmoid_forward", "softplus"), 3),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "logsumexp"), 2),
    **dict.fromkeys(("hardsigmoid", "lerp"), 2),
    **dict.fromkeys(("silu", "mish", "glu", "mse_loss", "addcmul", "addcdiv", "linalg_vector_norm"), 1),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), 1),
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist", "_pdist_forward", "hardswish", "tanh"), 3),
}
DISTANCES = frozenset(["_cdist_forward", "_euclidean_dist", "_pdist_forward"])
"""Sums, differences and products with something that other operators do inside, besides what their own name
counts for."""
GELU, TANH_GELU = 4, 7
CENTRED, RMS = 4, 2
"""Of a normalization: centring twice, the quotient and the small constant. Weights come on top."""
PER_SCORE, PER_TERM = 5.0, 3.0
"""Operations of a softmax; of a distance: difference, its square or absolute value, sum."""


def parts_of(call: Call) -> Counter[str]:
    """What an operator does inside, by kind. ``call.name`` is without the underscore of an in-place one."""
    name = call.name
    family = family_of(name, call.func)
    if family is Family.ATTENTION:
        return Counter({SUM: INSIDE["_softmax"] + _scaled(call), MASK: int(_masked(call)), SOFTMAX: 1})
    if family is Family.NORMALIZATION:
        return Counter({SUM: (RMS if "rms" in name else CENTRED) + _weights(call), NORM: 1})
    if family is Family.SOFTMAX:
        return Counter({SUM: INSIDE[name], SOFTMAX: 1})
    if name in DISTANCES:
        return Counter({SUM: INSIDE[name], DISTANCE: 1})
    if name == "gelu":
        return Counter({SUM: TANH_GELU if call.argument("approximate", "none") == "tanh" else GELU})
    return Counter({SUM: INSIDE.get(name, 0) + _sums(call, family)})


def fused_work(call: Call) -> float:
    """Operations other than products that an operator does beyond those it counts for."""
    name, family = call.name, family_of(call.name, call.func)
    if not call.made:
        return 0.0
    made = call.made[0].numel()
    if family is Family.ATTENTION:
        return (PER_SCORE + _scaled(call) + _masked(call)) * _scores(call)
    if family is Family.NORMALIZATION:
        return float(made * _written_out_norm(call))
    if name in DISTANCES:
        return PER_TERM * made * call.given[0].shape[-1]
    return float(made * _sums(call, family))


def hold(inside: Counter[str], left: Counter[str]) -> bool:
    """Whether all operations that are ``left`` of a reference, by family, may be parts ``inside`` others."""
    steps = frozenset().union(*(STEPS[kind] for kind in inside if kind in STEPS))
    rest = Counter({name: count for name, count in left.items() if name not in steps})
    clips = sum(count for name, count in rest.items() if name in CLIPPING)
    sums = sum(count for name, count in rest.items() if name in LINEAR)
    simple = clips + sums == rest.total()
    return simple and clips <= inside[MASK] and clips + sums <= inside[MASK] + inside[SUM]


def _sums(call: Call, family: Family) -> int:
    """The sum behind a product or a convolution, and the scale in front of it."""
    if call.name in ADDING:
        return int(call.argument("beta", 1) != 0) + int(call.argument("alpha", 1) != 1)
    return int((family is Family.CONVOLUTION or call.name == "linear") and call.argument("bias") is not None)


def _scores(call: Call) -> int:
    query, key = call.argument("query"), call.argument("key")
    if not isinstance(query, torch.Tensor) or not isinstance(key, torch.Tensor) or key.dim() < 2:
        return 0
    return math.prod(query.shape[:-1]) * key.shape[-2]


def _scaled(call: Call) -> bool:
    return call.argument("scale") != 1.0


def _masked(call: Call) -> bool:
    given = any(call.argument(name) is not None for name in ("attn_mask", "attn_bias"))
    return given or bool(call.argument("is_causal", False))


def _weights(call: Call) -> int:
    return sum(call.argument(name) is not None for name in ("weight", "bias"))


def _written_out_norm(call: Call) -> int:
    """Per element: :mod:`.spent` counts mean and variance together for three and has the weights of channels
    for nothing; mean, variance (three), centring and quotient are six, and each weight is one."""
    if call.name in ("_fused_rms_norm", "_weight_norm_interface", "renorm"):
        return 0
    if call.name == "native_layer_norm" and needs_statistics(call):
        return 1
    return _weights(call) + int(needs_statistics(call))
