"""A kernel's compiled code for a reader with little room."""

from __future__ import annotations

import pytest

from egg.core.listing import Listing
from egg.core.resources import KernelResources
from egg.evaluator.offline.digest import digest
from egg.evaluator.offline.loops import AMDGCN, PTX, loops
from tests.evaluator.test_loops import END, sass

ROW = KernelResources("matmul", (8, 4), 90, 0, 98304, 8, 3, 4, 128)
PRODUCT = """
    MOV R1, R2
    .L_x_1:
    LDGSTS.E.BYPASS.128 [R3], [R4.64]
    SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3
    .L_x_2:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3
    @!P0 BRA `(.L_x_2)
    @!PT LDS RZ, [RZ]
    HGMMA.64x128x16.F32 R24, gdesc[UR8], R24
    HGMMA.64x128x16.F32 R24, gdesc[UR8], R24
    LDG.E.U16 R7, [R8.64]
    BAR.SYNC.DEFER_BLOCKING 0x0
    IADD3 R9, R9, 0x1, RZ
    IADD3 R9, R9, 0x1, RZ
    IADD3 R9, R9, 0x1, RZ
    IADD3 R9, R9, 0x1, RZ
    IADD3 R9, R9, 0x1, RZ
    IADD3 R9, R9, 0x1, RZ
    @P1 BRA `(.L_x_1)
    STL [R1], R5
    STG.E.128 [R2], R0
"""
IN_PTX = """
.visible .entry matmul(
    .param .u64 matmul_param_0
)
{
	.reg .pred 	%p<9>;
	.loc	1 6 10                          // candidate.py:6:10
	mov.u32 	%r42, %ctaid.x;
$L__BB0_2:                              // =>This Inner Loop Header: Depth=1
	.loc	1 11 13
	cp.async.wait_group 	2;
	ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [ %rd1 + 0 ];
	wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%r1}, %rd1, 1;
	@%p8 bra 	$L__BB0_2;
	ret;
}
"""


def listing(code: str = "", ptx: str = IN_PTX, several: int = 1) -> Listing:
    return Listing("matmul", 1, several, ROW, "SASS" if code else "", code, ptx)


def test_instructions_are_counted_by_kind_and_the_loop_that_works_is_shown() -> None:
    text = digest(listing(sass(PRODUCT + END)), "H200")
    head, _, loop = text.partition("Hottest loop")
    assert head.startswith("matmul for H200: grid 8 x 4, 1 launches, 8 warps, 3 stages, 90 registers")
    assert "- tensor cores 2: HGMMA.64x128x16.F32 2" in head
    assert "- global loads 1: LDG.E.U16 1" in head
    assert "- spills 1: STL 1" in head
    assert "shared loads" not in head, "an instruction that is never executed does not count"
    assert "15 instructions at depth 1" in loop, "the inner loop only waits"
    assert "- spills 0" in loop
    assert "STG.E.128" not in loop.partition("outside that loop")[0]
    assert "PTX of its hottest loop (4 instructions)" in loop
    assert "  11 | ld.global.v4.b32" in loop


def test_without_a_disassembler_ptx_is_read() -> None:
    text = digest(listing(), "H200")
    assert "PTX (no disassembler is here, so there is no machine code): 6 instructions" in text
    assert "- tensor cores 1: wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 1" in text
    assert "4 instructions at depth 1, from lines 11 to 11 of the file" in text


@pytest.mark.parametrize("most", [1_500, 3_000, 6_000])
def test_a_digest_keeps_to_its_length_and_counts_what_it_leaves_out(most: int) -> None:
    long = PRODUCT.replace("    IADD3 R9, R9, 0x1, RZ\n", "    IADD3 R9, R9, 0x1, RZ\n" * 400, 1)
    text = digest(listing(sass(long + END)), "H200", most)
    assert len(text) <= most + 200
    assert "more]" in text
    assert "- tensor cores 2" in text
    assert "specialisation 1 of 3" in digest(listing(sass(PRODUCT), several=3), "H200", most)


def test_loops_inside_loops_are_deeper() -> None:
    text = """
        .L_x_1:
        LDG.E R4, [R2]
        .L_x_2:
        FFMA R0, R1, R2, R3
        @P0 BRA `(.L_x_2)
        @P1 BRA `(.L_x_1)
    """
    found = loops(sass(text + END))
    assert [(loop.depth, len(loop.lines)) for loop in found] == [(1, 4), (2, 2)]
    assert [(loop.depth, len(loop.lines)) for loop in loops(IN_PTX, PTX)] == [(1, 4)]
    amd = "\ts_mov_b32 s0, 0\n.LBB0_1:\n\tv_add_f32 v0, v0, v1\n\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n"
    assert [(loop.depth, len(loop.lines)) for loop in loops(amd, AMDGCN)] == [(1, 2)]
