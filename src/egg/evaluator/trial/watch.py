"""What every checked call is held to: whose work it was, and where it was done.

The provenance gate looks at a candidate's first calls; a candidate that behaves only there would pass it.
So each later call that is checked brings the same record (library operators, launches, values read by the
host) and is held to the same rules, in whatever gate and process it is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace

from egg.core.policy import LibraryCalls, Policy
from egg.evaluator.operators.ops import CAST, TRUNCATION
from egg.evaluator.operators.parts import hold
from egg.evaluator.operators.spent import Work
from egg.evaluator.transport.protocol import Record
from egg.evaluator.trial.refused import Refused

FIG_LEAF = "a kernel beside the whole PyTorch program is no rewrite: take over at least one of its operations"
FORBIDDEN = "under --library-calls forbid every operation must be in the file's own kernels"
NEARLY_ALL = 0.9
"""Of the reference's work in every respect: then nothing of it was taken over."""
TAKEN_OVER = 0.25
"""Of the reference's operations: then the others may be nearly all of its work."""
SIMPLE = 2.0
LAST_STEP = 1.0
"""Operations per element of the answer: a reference of so few may be matched by an honest last step, which
takes one (offsets of blocks are added to sums within them)."""
MOST_FLOATS, MOST_OTHERS = 64, 256
"""Values that the host may read in a call: flags and scales, or the lengths of a ragged batch."""

FAMILIES = {
    name: family
    for family, members in {
        "matmul": "mm bmm addmm baddbmm addbmm matmul linear dot inner vdot mv addmv _int_mm _scaled_mm",
        "convolution": "convolution convolution_overrideable mkldnn_convolution cudnn_convolution "
        "cudnn_convolution_transpose _slow_conv2d_forward thnn_conv2d conv_depthwise3d _conv_depthwise2d",
        "attention": "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_attention_math scaled_dot_product_attention",
        "rectifier": "relu relu6 clamp clamp_min clamp_max threshold maximum minimum fmax fmin hardtanh clip",
        "leaky": "leaky_relu prelu _prelu_kernel rrelu rrelu_with_noise",
        "exponential unit": "elu celu selu",
        "softmax": "_softmax softmax _safe_softmax _log_softmax log_softmax",
    }.items()
    for name in members.split()
}
"""Operations that are the same thing to a fig leaf."""
CASTING = frozenset(
    str.split("""
    ne eq gt ge lt le logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_not
    bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ trunc fix
    floor ceil round frac remainder fmod floor_divide isnan isfinite isinf real imag conj conj_physical
    _conj_physical view_as_real_copy pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
    signbit im2col unfold_copy diag_embed upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    """)
)
"""Operations that a copy to another order or dtype can stand for."""

GATHERING = frozenset(
    str.split("""
    index_select index _unsafe_index gather take take_along_dim embedding masked_select index_copy
    slice_scatter select_scatter diagonal_scatter index_put _index_put_impl scatter put
    masked_scatter tril triu
    """)
)
"""Operations that move elements by index or mask: where a task does no more, a library's copy may too."""
TRUNCATING = frozenset(
    str.split("""
    trunc fix floor ceil round frac remainder fmod floor_divide ne eq gt ge lt le isnan isfinite isinf sign
    sgn signbit heaviside logical_not logical_and logical_or logical_xor bitwise_and bitwise_right_shift
    __and__ __rshift__
    """)
)
"""Operations for which a cast to integers of fewer values can stand, with few others."""
CASTS = frozenset((CAST, TRUNCATION))


CONSTANTS = "written_over"
"""A number that is written over a part of what a call had made."""


@dataclass(frozen=True)
class Effected:
    """What the reference's operations do, by their values (:mod:`~egg.evaluator.operators.effects`)."""

    masks: bool = False
    coarsens: bool = False
    floats: frozenset[str] = frozenset()
    """Types of floats that occur."""
    picks: frozenset[str] = frozenset()
    """Names of operations that pick elements, as far as that was asked."""


@dataclass(slots=True)
class Watch:
    """The rules for one evaluation, and what its calls have shown so far."""

    policy: Policy
    wanted: Mapping[str, int] = field(default_factory=dict)
    """The reference's compute operations."""
    rearranged: Mapping[str, int] = field(default_factory=dict)
    """The reference's operations that move data to other places."""
    work: Work = field(default_factory=Work)
    """The reference's."""
    elements: int = 0
    """Of the answer."""
    steady: bool = False
    """Whether a warm call launches own kernels, or replays a CUDA graph that holds them."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """What the reference's operations do inside."""
    truncates: bool = False
    """Whether the reference casts floats to integers or truth values."""
    drops: bool = False
    """Whether some operation of the reference drops fractions or high bits, by its values."""
    effects: Effected = field(default_factory=lambda: Effected())
    calls: int = 0
    library: Counter[str] = field(default_factory=Counter)

    def see(self, record: Record) -> None:
        """Hold one call to the rules; raises :class:`Refused`."""
        self.calls += 1
        self.library |= Counter(record.ops) + Counter(record.moves)
        check_host(record)
        check_forbidden(self.policy, self._counted(record), moves=self._moves_only(), copies=True)
        if self.steady and not record.launches:
            raise Refused(
                "provenance.no_kernel", f"checked call {self.calls} launched no own kernel, earlier ones did",
                "the work must be done by the file's own kernels on every call",
            )  # fmt: skip
        self._check_fig_leaf(record)

    def _moves_only(self) -> bool:
        """Whether moving data is the reference's work, or part of it."""
        return bool(self.rearranged) or set(by_name(self.wanted)) <= GATHERING | self.effects.picks

    def _counted(self, record: Record) -> Record:
        """The record with those copies alone that can stand for the reference's work."""
        wanted = set(by_name(self.wanted))
        if wanted <= CASTING:
            return record
        counted = {}
        if wanted <= CASTING | GATHERING | self.effects.picks:
            counted = {name: count for name, count in record.copies.items() if name not in CASTS}
        if (self.truncates or wanted & TRUNCATING) and TRUNCATION in record.copies:
            counted[TRUNCATION] = record.copies[TRUNCATION]
        elif self.drops and record.lossy:
            counted[TRUNCATION] = record.lossy
        if self.effects.coarsens:
            foreign = record.narrowed.keys() - self.effects.floats
            counted |= {f"cast_to_{name.removeprefix('torch.')}": record.narrowed[name] for name in foreign}
        if self.effects.masks and record.overwritten:
            counted[CONSTANTS] = record.overwritten
        return replace(record, copies=counted)

    def _check_fig_leaf(self, record: Record) -> None:
        wanted, done = by_family(self.wanted), by_family(record.ops)
        if wanted and not wanted - done:
            raise Refused(
                "provenance.fig_leaf",
                f"every operation of the reference still runs in PyTorch: {listed(self.wanted)}",
                FIG_LEAF,
            )
        before, whole = (Work(*astuple(spent)) for spent in (record.before, record.work))
        simple = not self.work.products and self.work.others <= SIMPLE * self.elements
        behind = whole.products + whole.others - before.products - before.others
        last = behind <= LAST_STEP * self.elements and whole.moved <= before.moved
        spent = before if simple and last else whole
        if wanted.total() <= 1 and not self.work.products:
            # a sum as a product with ones
            spent = replace(spent, products=0.0, others=spent.others + spent.products)
        hidden = self._is_hidden(wanted, done, record)
        if not hidden:
            spent = replace(spent, fused=0.0)
        if self.work and spent.covers(self.work, NEARLY_ALL) and (hidden or not _partly(wanted, done)):
            ran = listed(Counter(record.ops) + Counter(record.moves))
            raise Refused(
                "provenance.fig_leaf", f"PyTorch does as much work as the whole reference: {ran}", FIG_LEAF
            )

    def _is_hidden(self, wanted: Counter[str], done: Counter[str], record: Record) -> bool:
        """Whether operators that stand for several hold all that PyTorch does not run by name."""
        left = wanted - _spelled_out(wanted, done)
        more = record.work.fused > self.work.fused
        return more and hold(Counter(record.parts) - Counter(self.parts), left)


def _partly(wanted: Counter[str], done: Counter[str]) -> bool:
    """Whether PyTorch runs operations of the reference alone, and a good part of them not.

    Two FFTs are nearly all the work of a program around which everything else was fused. Another way to the
    answer needs operations that the reference does not have, or more of them.
    """
    return not done - wanted and (wanted - done).total() >= TAKEN_OVER * wanted.total()


def _spelled_out(wanted: Counter[str], done: Counter[str]) -> Counter[str]:
    """Attention as two products and a softmax, where the reference is written so."""
    fused = (done - wanted)["attention"]
    return done - Counter(attention=fused) + Counter(matmul=2 * fused, softmax=fused)


def check_host(record: Record) -> None:
    floats, others = record.reads.get("floats", 0), record.reads.get("others", 0)
    if floats > MOST_FLOATS or others > MOST_OTHERS:
        raise Refused(
            "provenance.host", f"the host read {floats + others} values of tensors in one call",
            "compute in kernels: .tolist(), .item(), printing, a tensor given as a size, and copies into the "
            "host's memory (.cpu(), copy_ into a CPU tensor or an array) bring values to Python, "
            f"which may see {MOST_FLOATS} floating-point and {MOST_OTHERS} other values per call",
        )  # fmt: skip


def check_forbidden(policy: Policy, record: Record, *, moves: bool, copies: bool = False) -> None:
    """Where libraries are forbidden none may compute, nor move or copy data where that is the task's work."""
    ran = Counter(record.ops)
    ran += Counter(record.moves) if moves else Counter()
    ran += Counter(record.copies) if copies else Counter()
    if policy.library_calls is LibraryCalls.FORBID and ran:
        raise Refused(
            "provenance.library", f"PyTorch operations outside own kernels: {listed(ran)}", FORBIDDEN
        )


def by_name(ops: Mapping[str, int]) -> list[str]:
    """In place it is the same operation; a special method keeps its name."""
    return [name if name.endswith("__") else name.rstrip("_") for name in ops]


def by_family(ops: Mapping[str, int]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for name, count in ops.items():
        counted[FAMILIES.get(name, name.rstrip("_"))] += count  # in place it is the same operation
    return counted


def listed(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(ops.items()))
