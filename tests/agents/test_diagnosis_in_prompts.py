"""The diagnosis of the base where it is read: in the prompts that plan on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.agents.team import LlmTeam
from egg.analysis.diagnose import diagnose
from egg.analysis.evaluated import profile_of
from egg.core.evaluation import Accepted, Evaluation, Interval, Measured, Provenance
from egg.core.resources import KernelResources
from egg.core.stage import Stage
from egg.hardware.gpus import resolve
from egg.llm.scripted import ScriptedClient
from tests.agents.briefs import brief, kernel
from tests.analysis.kernels import SOFTMAX
from tests.samples import measured

H200 = resolve("H200")
STAGES = (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY)


def judged(*kernels: KernelResources, times: dict[str, float] | None = None) -> Evaluation:
    """Measured, the compiler's resources read on the way; with ``times`` one library call is among them."""
    found = measured()
    assert isinstance(found.verdict, Accepted)
    assert isinstance(found.verdict.performance, Measured)
    performance = replace(found.verdict.performance, milliseconds=Interval(0.4, 0.39, 0.41), kernels=kernels)
    ran = Provenance({k.name: 1 for k in kernels}, {"topk": 1} if times is not None else {}, 1.0, times or {})
    return replace(found, verdict=replace(found.verdict, performance=performance, provenance=ran))


def prompt(stage: Stage, *kernels: KernelResources, times: dict[str, float] | None = None) -> str:
    """What the designer or the tuner is asked in a stage."""
    evaluation = judged(*kernels, times=times)
    profile = profile_of(evaluation, H200)
    given = replace(
        brief(stage, base=kernel(evaluation)),
        diagnosis=diagnose(profile, H200, floor_milliseconds=0.028) if profile else None,
    )
    client = ScriptedClient(lambda _: "nothing")
    team = LlmTeam(client, prompt_tokens=3000, reply_tokens=1000)
    team.tuner.tune(given) if stage.tunes else team.designer.design(given)
    return client.requests[0].messages[-1].text


@pytest.mark.parametrize("stage", STAGES)
def test_whoever_plans_reads_what_holds_the_base_back(stage):
    text = prompt(stage, replace(SOFTMAX, grid=(8, 1, 1)))
    section = text[text.index("## What holds it back") : text.index("\n# ", text.index("## What holds"))]
    assert "**`softmax_rows`, 100% of the time, 0.4 ms measured: small_grid** (fewer programs than" in section
    assert "- grid 8 programs: The GPU has 132 SMs." in section
    assert "- Wrong if the work cannot be split further" in section
    assert "not recorded here" not in text
    assert "| softmax_rows | 8 x 1 x 1 |" in text


def held_back(text: str) -> str:
    return text[text.index("## What holds it back") : text.index("\n# ", text.index("## What holds"))]


def test_a_library_call_is_ranked_by_its_time_beside_own_kernels():
    small = replace(SOFTMAX, grid=(8, 1, 1))
    section = held_back(prompt(Stage.STRUCTURE, small, times={"aten.topk": 0.3, "softmax_rows": 0.08}))
    library = section.index("**`aten.topk` (library call), 75% of the time, 0.3 ms measured**")
    assert library < section.index("**`softmax_rows`, 20% of the time, 0.08 ms measured: small_grid**")
    assert section.index("**The whole program: small_grid**") < library
    assert "- library_share 0.75: Library calls take this share of the time" in section
    assert "modelled" not in section


def test_what_was_not_timed_is_called_modelled_and_untimed_library_calls_are_named():
    section = held_back(prompt(Stage.STRUCTURE, replace(SOFTMAX, grid=(8, 1, 1)), times={}))
    assert "The library calls (topk) were not timed: they may take more" in section
    assert "Only the whole was timed: the shares of its kernels are modelled." in section
    assert "of the time by the model, not measured: small_grid**" in section


@pytest.mark.parametrize("stage", STAGES)
def test_without_resources_nothing_is_said(stage):
    text = prompt(stage)
    assert "What holds it back" not in text
    assert "- registers, spills and shared memory were not recorded here" in text


@pytest.mark.parametrize("kernels", [(), (SOFTMAX,)], ids=["without", "with"])
def test_the_base_is_plain_markdown(kernels):
    """A table and a list are told apart from the text around them by exactly one empty line."""
    text = prompt(Stage.TILING, *kernels)
    assert "\n\n\n" not in text[text.index("Measured on") :]
    lines = text.splitlines()
    for index, line in enumerate(lines[1:], 1):
        if line.startswith("| kernel |"):
            assert lines[index - 1] == ""
