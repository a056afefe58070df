"""Every name a condition may use, in one place: what is known of program, kernel, code, GPU and terms.

The kernel's names are those of :data:`egg.analysis.features.FEATURES`; the rest is defined here.
A name means one thing, so no two groups share one: :func:`_joined` refuses a clash when this
module is imported. A fact that is not known has its *neutral* value, which claims nothing: no
operator is present, nothing is large, nothing can be saved. So a condition that looks for a
reason does not find one in ignorance; one that looks for *absence* asks ``program_known``,
``has_base`` or one of the ``knows_`` names first.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from egg.analysis.features import FEATURES, Feature, integer, number, truth, word
from egg.core.bottleneck import Limiter, Value
from egg.core.facts import Family
from egg.core.policy import Precision
from egg.core.profile import Rung

_PRESENT = {
    Family.PRODUCT: "a matrix product",
    Family.CONVOLUTION: "a convolution",
    Family.ATTENTION: "attention",
    Family.RECURRENCE: "a recurrent layer",
    Family.NORMALIZATION: "a normalization",
    Family.SOFTMAX: "a softmax",
    Family.POOLING: "pooling",
    Family.REDUCTION: "a reduction",
    Family.SCAN: "a scan",
    Family.LOSS: "a loss",
    Family.GATHER: "embedding, indexing or scattering",
    Family.POINTWISE: "pointwise work",
    Family.MOVEMENT: "copies, concatenation, padding or a change of layout",
    Family.RANDOM: "random numbers",
    Family.OTHER: "an operator of no known family",
}


PROGRAM: Mapping[str, Feature] = MappingProxyType(
    {
        "program_known": truth("the program could be followed, so the facts below are its own"),
        # work and what fusion could save
        "flops": number("FLOP", "of the program's products, convolutions, attention and recurrences"),
        "program_other_flops": number("FLOP", "of everything else in the program"),
        "least_bytes": number(
            "B", "inputs, parameters and outputs once each; of tables that are only indexed, the rows picked"
        ),
        "eager_bytes": number("B", "that eager moves"),
        "eager_launches": integer("", "kernels that eager launches, about"),
        "operations": integer("", "operators that eager executes"),
        "fusion_gain": number("x", "eager's least time over that of one kernel for everything", 1.0),
        "pointwise_gain": number("x", "eager's least time over that with pointwise work fused", 1.0),
        "floor_ms": number("ms", "the least the task could take on this GPU; 0 where not known"),
        "memory_bound": truth("bytes, not operations, set the floor"),
        # which operators
        **{f"has_{family.value}": truth(f"the program has {what}") for family, what in _PRESENT.items()},
        **{
            f"{family.value}_share": number("share", f"of eager's least time: {what}")
            for family, what in _PRESENT.items()
        },
        "products": integer("", "matrix products"),
        "convolutions": integer("", "convolutions"),
        "reductions": integer("", "reductions"),
        # tensors
        "dtype": word("narrowest floating dtype", "float32"),
        "smallest_dim": integer("", "smallest dimension of the largest tensor"),
        "largest_dim": integer("", "largest dimension of the largest tensor"),
        "rank": integer("", "dimensions of the largest input"),
        "batch": integer("", "first dimension of the first input"),
        "rows": integer("", "of the largest input, flattened to two dimensions by its last"),
        "columns": integer("", "last dimension of the largest input"),
        "parameters_bytes": number("B", "of the parameters and buffers"),
        "inputs_bytes": number("B", "of the inputs"),
        "outputs_bytes": number("B", "of the outputs"),
        "transposed_inputs": truth("an input is not contiguous"),
        # kinds of convolution
        "strided_convolution": truth("a convolution has a stride above one"),
        "transposed_convolution": truth("a convolution is transposed"),
        "grouped_convolution": truth("a convolution has more than one group"),
        "depthwise_convolution": truth("a convolution has as many groups as input channels"),
        "pointwise_convolution": truth("a convolution has a window of one element"),
        "convolution_dims": integer("", "dimensions that a convolution slides over; 0 without one"),
        # kinds of the rest
        "training_norm": truth("a normalization takes its statistics from the batch"),
        "group_norm": truth("a normalization of groups of channels within each sample: group or instance"),
        "norm_size": integer("", "numbers that share a mean and a variance, at most; 0 without a norm"),
        "matrix_vector": truth("a product has at most 8 rows or columns, and sums over 64 or more"),
        "small_product": truth("a product has M, N or K under 64"),
        "deep_product": truth("a product has K at least 4 times the larger of M and N"),
        "batched_product": truth("a product has a batch of matrices"),
        "strided_k": truth("an operand of a product is not contiguous along the summed dimension"),
        "triangular": truth("a triangle is taken of a large matrix"),
        "diagonal": truth("a diagonal is taken of, or made into, a matrix"),
        "reduction_size": integer("", "numbers that go into one result of a reduction or softmax, at most"),
        "linear_reduction": truth("what a product or convolution makes is summed or averaged right away"),
        "unit_reduction": truth("a reduction goes over a dimension of size one"),
        "chained_products": truth("a product takes another's result with nothing between"),
        "fed_product": truth("an operand of a product is made by a norm, a copy or pointwise work"),
        "written_attention": truth("a softmax between two products, and only pointwise work besides"),
        "argmin_argmax": truth("the place of an extreme is asked for"),
        "ordering": truth("values are sorted, or the largest or smallest few of them taken"),
        "collecting_scatter": truth("elements are added up, or reduced, at places that an index names"),
        "coded_weights": truth("weights of products are held as integers or 8-bit floats, and decoded"),
        "middle_reduction": truth("a reduction goes over a dimension that is not the last"),
    }
)
"""Of the task, whatever kernel computes it."""

CODE: Mapping[str, Feature] = MappingProxyType(
    {
        "has_base": truth("there is a kernel file to build on"),
        "source_kernels": integer("", "Triton kernels that the file launches"),
        "uses_dot": truth("a kernel multiplies with tl.dot"),
        "uses_descriptors": truth("a kernel loads or stores through tensor descriptors"),
        "uses_atomics": truth("a kernel uses atomics"),
        "uses_autotune": truth("a kernel is autotuned"),
        "uses_loops": truth("a kernel loops"),
        "uses_masks": truth("a load or store is masked"),
        "uses_eviction_hints": truth("a load or store says how long L2 is to keep it"),
        "uses_persistent_loop": truth("a program strides over tiles by the number of programs"),
        "uses_grouping": truth("programs are regrouped so that neighbours share operands in L2"),
        "uses_split_k": truth("several programs share the sum of one tile"),
        "uses_graph": truth("a CUDA graph is captured and replayed"),
        "library_calls": integer("", "torch operators that compute, left in forward"),
        "tunables": integer("", "values exposed to be swept"),
        "input_precision": word("of tl.dot as written; none without one", "none"),
        "block_sizes_largest": integer("", "largest block size in the file"),
    }
)
"""Of the source of the kernel file that is built on."""

HARDWARE: Mapping[str, Feature] = MappingProxyType(
    {
        "vendor": word("nvidia or amd", "nvidia"),
        "arch": word("the compiler's name of the architecture: sm_90, gfx942", "unknown"),
        "compute_capability": number("", "9.0 for sm_90; 0 for AMD"),
        "sms": integer("", "streaming multiprocessors or compute units"),
        "shared_per_block": integer("B", "of shared memory that one program may ask for"),
        "l2_bytes": integer("B", "of L2"),
        "bandwidth": number("B/s", "of the memory"),
        "has_tma": truth("bulk copies of whole tiles in hardware (sm_90 and later)"),
        "has_warp_groups": truth("matrix instructions of a whole warp group (sm_90, sm_100)"),
        "has_fp8": truth("tensor cores take 8-bit floats"),
    }
)
"""Of the GPU that is written for."""

POLICY: Mapping[str, Feature] = MappingProxyType(
    {
        "precision": word("the declared arithmetic", Precision.MATCH.value),
        "library_allowed": truth("library calls are allowed"),
    }
)
"""Of the terms both sides agreed to."""


REFUSED: Mapping[str, Feature] = MappingProxyType(
    {
        "error_known": truth("the judge measured the error of a wrong output"),
        "error_relative": number("", "rms of that error over the rms of the output"),
        "error_excess": number("x", "that error over the allowed one, in the worse norm"),
        "error_own_size": truth("it was seen at the task's own size, while another size was run"),
    }
)
"""Of the refusal to repair; neutral where nothing was refused. The names of ``CODE`` are then those of the
file that failed."""


def _joined(*groups: Mapping[str, Feature]) -> Mapping[str, Feature]:
    joined: dict[str, Feature] = {}
    for group in groups:
        clash = joined.keys() & group.keys()
        if clash:
            raise ValueError(f"names with two meanings: {', '.join(sorted(clash))}")
        joined.update(group)
    return MappingProxyType(joined)


VOCABULARY: Mapping[str, Feature] = _joined(FEATURES, PROGRAM, CODE, HARDWARE, POLICY, REFUSED)
"""All of them."""

_LIMITERS = tuple(limiter.value for limiter in Limiter)

WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "rung": tuple(rung.value for rung in Rung),
        "limiter": _LIMITERS,
        "kernel_limiter": _LIMITERS,
        "occupancy_limited_by": ("registers", "shared", "warps", "slots", "none"),
        "dtype": ("float32", "float16", "bfloat16", "float64", "other"),
        "input_precision": ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "default", "none"),
        "vendor": ("nvidia", "amd"),
        "precision": tuple(precision.value for precision in Precision),
    }
)
"""What each word can be; one that is not listed can be anything. A comparison with another is a mistake."""


def complete(known: Mapping[str, Value | None]) -> Mapping[str, Value]:
    """Every name with a value of its kind: the known one, or the neutral one where it is missing or no
    number. A name outside the vocabulary is a mistake of the code that gathered the values."""
    unknown = known.keys() - VOCABULARY.keys()
    if unknown:
        raise ValueError(f"not in the vocabulary: {', '.join(sorted(unknown))}")
    return MappingProxyType({name: feature.typed(known.get(name)) for name, feature in VOCABULARY.items()})
