from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from egg.cli.render import PIPE_WIDTH, clean, console, evaluation_view, findings_view
from egg.core.evaluation import Gate, GateRecord
from egg.doctor import Finding, Status
from tests import samples


def shown(view, *, terminal: bool = False) -> str:
    buffer = io.StringIO()
    screen = Console(file=buffer, force_terminal=True, width=100) if terminal else console(buffer)
    screen.print(view)
    return buffer.getvalue()


def test_a_measured_acceptance_shows_gains_with_their_intervals():
    text = shown(evaluation_view(samples.measured()))
    assert text.startswith(" ACCEPTED ")
    assert "1.80x faster than eager" in text
    for wanted in (
        "NVIDIA H200",
        "eager",
        "compile",
        "1.782 to 1.818",
        "0.0399 to 0.0405",
        "noise floor",
        "0.61%",
        "0.028 ms (70% of the roofline)",
        "12 checks",
        "99.8%",
        "warning: the task is degenerate",
        "level full, precision match, library calls allow",
        "own user, landlock",
    ):
        assert wanted in text, wanted


def test_a_gain_inside_the_noise_is_not_called_one():
    text = shown(evaluation_view(samples.measured(speedup=1.004, faster=False)))
    assert "not faster than eager" in text
    assert "x faster" not in text


def test_an_unknown_gpu_has_no_floor():
    text = shown(evaluation_view(samples.measured(floor=None)))
    assert "unknown: GPU not in the table" in text


def test_without_a_gpu_no_time_is_shown_but_the_predicted_floor():
    text = shown(evaluation_view(samples.compiled()))
    assert "no time was measured" in text
    assert "0.028 ms (predicted, not measured)" in text
    assert "speedup" not in text
    assert "440 B" in text
    assert "192 instr." in text
    assert "aten.mm x2" in text
    assert "rows 16384 -> 4" in text


def test_a_rejection_leads_with_gate_evidence_and_hint():
    text = shown(evaluation_view(samples.rejected()))
    head = text.splitlines()[:6]
    assert head[0].startswith(" REJECTED ")
    assert "at gate correctness" in head[0]
    joined = "\n".join(head)
    assert "correctness.error" in joined
    assert "412 times what is allowed" in joined
    assert "check the mask of the last block" in joined


def test_evidence_cannot_drive_the_terminal_nor_be_markup():
    hostile = "[bold red]ACCEPTED[/] \x1b[2J\x1b]0;title\x07 \x9b31m [link=http://x]y[/link]"
    for terminal in (False, True):
        text = shown(evaluation_view(samples.rejected(evidence=hostile)), terminal=terminal)
        assert "[bold red]ACCEPTED[/]" in text
        assert "\x1b[2J" not in text
        assert "\x1b]0;" not in text
        assert "\x07" not in text
        assert "\x9b" not in text


@pytest.mark.parametrize("make", [samples.measured, samples.compiled, samples.rejected])
def test_into_a_pipe_it_is_plain_and_fits(make):
    text = shown(evaluation_view(make()))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= PIPE_WIDTH


@pytest.mark.parametrize("make", [samples.measured, samples.compiled, samples.rejected])
def test_on_a_terminal_it_is_coloured(make):
    assert "\x1b[" in shown(evaluation_view(make()), terminal=True)


def test_findings_show_the_mend_beside_the_fault():
    findings = (
        Finding("torch", Status.FAIL, "2.4 is too old", "pip install -U 'torch>=2.9'"),
        Finding("disk", Status.OK, "9 GiB free"),
    )
    text = shown(findings_view(findings))
    assert "-> pip install -U 'torch>=2.9'" in text
    assert text.count("->") == 1


def test_clean_keeps_what_people_read():
    assert clean("naïve ×3\n\tend") == "naïve ×3\n\tend"
    assert clean("a\x00\x1b\r") == "a" + "\N{REPLACEMENT CHARACTER}" * 3


def test_a_refusal_found_at_another_gate_names_both_in_header_and_table():
    found_at_state = replace(
        samples.rejected(),
        gates=(GateRecord(Gate.CORRECTNESS, True, 0.5), GateRecord(Gate.STATE, False, 0.8)),
    )
    text = shown(evaluation_view(found_at_state))
    assert "at gate correctness (found at state)" in text.splitlines()[0]
    [row] = [line for line in text.splitlines() if line.startswith("state ")]
    assert "refused" in row
    assert "breaks the rule of gate correctness" in row


def test_a_refusal_of_its_own_gate_names_it_once():
    text = shown(evaluation_view(samples.rejected()))
    assert "found at" not in text
    assert "breaks the rule" not in text


def test_parts_of_one_gate_are_one_row():
    parts = (
        GateRecord(Gate.BUILD, True, 1.25, {"compiled": 1}),
        GateRecord(Gate.BUILD, True, 2.0, {"parameters": "by name"}),
        GateRecord(Gate.PROVENANCE, True, 0.5),
    )
    text = shown(evaluation_view(replace(samples.compiled(), gates=parts)))
    [row] = [line for line in text.splitlines() if line.startswith("build ")]
    assert "3.25" in row
    assert "compiled 1; parameters by name" in row
