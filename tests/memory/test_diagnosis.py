"""A diagnosis in words: what a planner reads, and what it is spared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.core.bottleneck import MEANINGS, Bottleneck, Diagnosed, Evidence, Limiter, Suspect
from egg.core.profile import Rung
from egg.memory.diagnosis import KERNELS_SHOWN, render_diagnosis

SPILLS = Bottleneck(
    "gemm",
    Limiter.SPILLS,
    2.5,
    4.04,
    0.8,
    (
        Evidence("spill_bytes", 440, "B", "So much per thread did not fit into registers."),
        Evidence("local_in_code", 0.12345, "", "This share of the machine code moves spilled registers."),
    ),
    "the spills lie outside the inner loop",
    (Suspect(Limiter.LATENCY, 1.4), Suspect(Limiter.TENSOR_IDLE, 1.2)),
)
WHOLE = replace(SPILLS, kernel="", gain=1.92, headroom=5.0, share=1.0)


def diagnosed(*kernels: Bottleneck, whole: Bottleneck = WHOLE, rung: Rung = Rung.TIMES) -> Diagnosed:
    return Diagnosed(rung, whole, kernels, {})


def test_a_kernel_in_full():
    assert render_diagnosis(diagnosed(SPILLS)).splitlines() == [
        "Read from the measured time, the compiler's word and a model of the GPU; no hardware counters.",
        "Only the whole was timed: the shares of its kernels are modelled.",
        "",
        f"**`gemm`, 80% of the time by the model, not measured: spills** ({MEANINGS[Limiter.SPILLS]})",
        "",
        "- Without it about 2.50 times as fast, estimated.",
        "- Now 4.04 times the least that its work can take.",
        "- spill_bytes 440 B: So much per thread did not fit into registers.",
        "- local_in_code 0.1235: This share of the machine code moves spilled registers.",
        "- Wrong if the spills lie outside the inner loop.",
        "- Other suspects: latency (1.40x), tensor_idle (1.20x).",
    ]


@pytest.mark.parametrize("rung", Rung)
def test_what_is_predicted_says_so(rung):
    first = render_diagnosis(diagnosed(SPILLS, rung=rung)).splitlines()[0]
    assert ("predicted" in first) is not rung.measured


def test_the_whole_is_told_where_its_longest_kernel_does_not_tell_it():
    launches = replace(WHOLE, limiter=Limiter.LAUNCH)
    assert "The whole program" not in render_diagnosis(diagnosed(SPILLS))
    text = render_diagnosis(diagnosed(SPILLS, whole=launches))
    assert text.index("**The whole program: launch**") < text.index("**`gemm`")
    assert "- Now 5 times the least that the task can take." in text


def test_a_program_of_many_small_kernels_is_told_as_a_whole():
    crumbs = [replace(SPILLS, kernel=f"k{i}", share=0.02) for i in range(50)]
    text = render_diagnosis(diagnosed(*crumbs))
    assert text.count("**The whole program: spills**") == 1
    assert "`k0`" not in text


def test_no_more_kernels_than_can_be_acted_on():
    many = [replace(SPILLS, kernel=f"k{i}", share=0.1) for i in range(10)]
    assert render_diagnosis(diagnosed(*many)).count("not measured: spills") == KERNELS_SHOWN


def test_a_kernel_of_which_nothing_is_known_is_left_out():
    library = replace(SPILLS, kernel="aten.mm", limiter=Limiter.LATENCY, gain=1.0, headroom=None, share=0.5)
    assert "aten.mm" not in render_diagnosis(diagnosed(library, replace(SPILLS, share=0.5)))
    timed = replace(library, own=False, milliseconds=0.2)
    text = render_diagnosis(diagnosed(replace(SPILLS, share=0.4, milliseconds=0.16), timed))
    assert text.index("**`aten.mm` (library call), 50% of the time, 0.2 ms measured**") < text.index("`gemm`")
    assert "Its code is the library's" in text
    assert "modelled" not in text
