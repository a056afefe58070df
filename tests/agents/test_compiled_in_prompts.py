"""What torch.compile generated, in the prompts of a model's team."""

from __future__ import annotations

from dataclasses import replace

from egg.agents.generated import generated
from egg.agents.prompting import Prompter
from egg.core.parts import COMPILED
from egg.core.recording import Recording
from tests.agents.briefs import brief
from tests.recordings import CAST, EPILOGUE, NOTHING, PRODUCT, RECORDING

HEADING = "What torch.compile makes of it"


def system(recording: Recording | None, *, room: int = 6000, without: frozenset[str] = frozenset()) -> str:
    given = replace(brief(), compiled=recording)
    return Prompter(room, without=without).prompt("designer.md", given, example="").messages[0].text


def test_the_system_message_shows_kernels_library_calls_choices_and_times() -> None:
    text = system(RECORDING)
    assert "2 kernel launches, 1 library call; their times on NVIDIA H200 add up to 0.132 ms" in text
    assert f"| {CAST} | aten._to_copy | XBLOCK 1024, 4 warps, num_stages 1 | 0.08 ms |" in text
    assert f"| {PRODUCT} | aten._to_copy, aten.t, aten.mm | (library call) | 0.05 ms |" in text
    assert text.index(CAST) < text.index(PRODUCT) < text.index(EPILOGUE)
    assert f"def {CAST}(" in text
    assert f"def {EPILOGUE}(" in text


def test_texts_of_kernels_keep_to_the_room_the_heaviest_first() -> None:
    assert [name for name, _ in generated(RECORDING, 5000).texts] == [CAST, EPILOGUE]  # type: ignore[union-attr]
    assert [name for name, _ in generated(RECORDING, 200).texts] == [CAST]  # type: ignore[union-attr]
    assert generated(RECORDING, 10).texts == ()  # type: ignore[union-attr]


def test_times_that_were_not_measured_are_not_shown() -> None:
    text = system(replace(RECORDING, timeline=()))
    assert "2 kernel launches, 1 library call." in text
    assert f"| {CAST} | aten._to_copy | XBLOCK 1024, 4 warps, num_stages 1 |  |" in text


def test_nothing_is_said_where_nothing_was_recorded_or_an_experiment_leaves_it_out() -> None:
    for text in (system(None), system(NOTHING), system(RECORDING, without=frozenset({COMPILED}))):
        assert HEADING not in text
    assert HEADING in system(RECORDING)
