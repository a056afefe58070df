"""How much of a kernel's machine code lies in loops."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.evaluator.offline.loops import looped_instructions
from egg.evaluator.offline.resources import sass_mix


def sass(text: str) -> str:
    """As the disassembler prints it: every instruction with its address, labels by themselves."""
    lines, address = [".text.kernel:"], 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        if line.strip().endswith(":"):
            lines.append(line.strip())
            continue
        lines.append(f"        /*{address:04x}*/              {line.strip()} ;   /* 0x{address:016x} */")
        address += 16
    return "\n".join(lines)


END = """
    EXIT
    .L_x_99:
    BRA `(.L_x_99)
    NOP
    NOP
"""


@pytest.mark.parametrize(
    ("text", "looped"),
    [
        ("MOV R1, R2\n" + END, 0),
        ("MOV R1, R2\n.L_x_1:\nFADD R0, R1, R2\nNOP\n@P0 BRA `(.L_x_1)\nSTG.E [R2], R0\n" + END, 2),
        ("MOV R1, R2\n.L_x_1:\nFADD R0, R1, R2\nBRA.U UP0, `(.L_x_1)\n" + END, 2),
        ("MOV R1, R2\n.L_x_1:\n@!UPT UIADD3 UR4, UR4, 1\nFADD R0, R1, R2\n@!P0 BRA `(.L_x_1)\n" + END, 3),
        ("@P0 BRA `(.L_x_1)\nMOV R1, R2\n.L_x_1:\nMOV R3, R4\n" + END, 0),
        (".L_x_1:\nFADD R0, R1, R2\n@P0 EXIT\nBRA `(.L_x_1)\n" + END, 3),
        ("", 0),
        ("neither labels nor instructions", 0),
        ("MOV R1, R2\n@P0 BRA `(.L_x_77)\n" + END, 0),
    ],
    ids=["straight", "once", "uniform", "predicated", "forward", "left inside", "empty", "prose", "no label"],
)
def test_what_lies_in_a_loop(text: str, looped: int) -> None:
    assert looped_instructions(sass(text)) == looped


def test_nested_loops_count_once() -> None:
    text = """
        MOV R1, R2
        .L_x_1:
        LDG.E R4, [R2]
        .L_x_2:
        FFMA R0, R1, R2, R3
        @P0 BRA `(.L_x_2)
        STG.E [R2], R0
        @P1 BRA `(.L_x_1)
        MOV R5, R6
        .L_x_3:
        FADD R0, R0, R0
        @P1 BRA `(.L_x_3)
    """
    assert looped_instructions(sass(text + END)) == 5 + 2, "what stands between two loops is in neither"


def test_a_detour_behind_the_end_is_no_loop() -> None:
    """Where a copy is late, it is waited for out of the way, and gone on where the wait was left."""
    text = """
        @!P0 BRA `(.L_x_8)
        .L_x_15:
        FADD R0, R1, R2
        FADD R0, R1, R2
        EXIT
        .L_x_8:
        SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3
        @!P0 BRA `(.L_x_8)
        BRA `(.L_x_15)
    """
    assert looped_instructions(sass(text + END)) == 2, "only the waiting itself"


def test_a_detour_from_inside_a_loop_belongs_to_it() -> None:
    text = """
        MOV R1, R2
        .L_x_1:
        @!P0 BRA `(.L_x_8)
        .L_x_2:
        FADD R0, R1, R2
        @P1 BRA `(.L_x_1)
        EXIT
        .L_x_8:
        MOV R3, R4
        BRA `(.L_x_2)
    """
    assert looped_instructions(sass(text + END)) == 3 + 2


def test_a_way_out_may_be_spelled_as_a_call() -> None:
    text = """
        .L_x_2:
        FADD R0, R1, R2
        @P0 CALL.REL.NOINC `(.L_x_1)
        BRA `(.L_x_2)
        .L_x_1:
        MOV R3, R4
    """
    assert looped_instructions(sass(text + END)) == 3


def test_a_called_function_is_not_followed() -> None:
    text = """
        CALL.REL.NOINC `($helper)
        EXIT
        MUFU.RCP R0, R1
        RET.REL.NODEC R2 `(kernel)
    """
    assert looped_instructions(sass(text + END)) == 0


@dataclass(frozen=True)
class Loop:
    """So many plain instructions, and loops within."""

    plain: int
    inner: tuple[Loop, ...] = ()

    @property
    def size(self) -> int:
        return self.plain + 1 + sum(loop.size for loop in self.inner)

    def written(self, name: str) -> str:
        within = "\n".join(loop.written(f"{name}_{i}") for i, loop in enumerate(self.inner))
        plain = "\n".join(["FADD R0, R1, R2"] * self.plain)
        return f".L_{name}:\n{plain}\n{within}\n@P0 BRA `(.L_{name})"


LOOPS = st.recursive(
    st.builds(Loop, st.integers(1, 4)),
    lambda inner: st.builds(Loop, st.integers(1, 4), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), LOOPS), max_size=4))
def test_any_nest_of_loops(parts: list[tuple[int, Loop]]) -> None:
    text = "\n".join(
        "\n".join([*["MOV R1, R2"] * before, loop.written(f"x{i}")]) for i, (before, loop) in enumerate(parts)
    )
    assert looped_instructions(sass(text + END)) == sum(loop.size for _, loop in parts)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=10))
def test_any_branches_end_in_a_count(branches: list[tuple[int, bool]]) -> None:
    """Every place is labelled; the answer is never more than there is, and does not hang."""
    lines = [f".L_{i}:\n{'@P0 ' if maybe else ''}BRA `(.L_{to})" for i, (to, maybe) in enumerate(branches)]
    assert 0 <= looped_instructions(sass("\n".join(lines))) <= len(branches)


@pytest.mark.parametrize(
    ("opcodes", "bits"),
    [
        (["LDG.E.128", "STG.E.64"], 0),
        (["LDGSTS.E.BYPASS.LTC128B.128"], 128),
        (["LDGSTS.E.BYPASS.LTC128B.128", "LDGSTS.E.64", "LDGSTS.E.128"], 64),
        (["LDGSTS.E.LTC128B", "UTMALDG.2D"], 32),
        (["UTMALDG.2D"], 128),
        (["UBLKCP.S.G"], 128),
        (["LDG.E.U8", "UTMASTG.2D", "LDGDEPBAR"], 0),
    ],
)
def test_the_narrowest_asynchronous_copy(opcodes: list[str], bits: int) -> None:
    assert sass_mix(opcodes).narrowest_copy_bits == bits
