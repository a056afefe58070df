"""Kernels of earlier runs: kept at the end of a run, recalled by likeness, drafted into skills."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.agents.exemplars import examples_shown
from egg.agents.prompting import Prompter
from egg.api import optimizing
from egg.api.lessons import recall_kernels, remember_kernel
from egg.api.optimizing import begin
from egg.api.runs import start, state_of
from egg.cli.app import app
from egg.core.codec import from_json, to_json
from egg.core.events import RunStarted
from egg.core.facts import Facts, ProgramFacts
from egg.core.plan import Answer
from egg.core.source import Task
from egg.core.stage import Category, Stage
from egg.core.tokens import estimate_tokens
from egg.engine.log import read_log
from egg.knowledge.catalogue import load
from egg.memory.exemplars import all_kept, exemplar_of, folder_of, recalled
from egg.memory.signature import signature_of
from tests.agents.briefs import brief
from tests.engine import scripts

PROGRAM = ProgramFacts(
    0.0,
    67_117_056,
    ("x float32[8192, 1024]", "output float32[8192, 1024]"),
    ("aten.mul [8192, 1024]", "aten.add [8192, 1024]"),
)
FACTS = replace(scripts.FACTS, program=PROGRAM)
WON: dict[str, Answer] = {
    **scripts.PASSING,
    "coder.seed seed 1": scripts.draft("0.9 ms"),
    "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, "fuse the product into the load"),
    "coder.optimize structure 1": scripts.draft("0.5 ms", body="x + x"),
    "designer structure 2": scripts.NOTHING,
}


def ran(
    folder: Path,
    name: str,
    *,
    source: str = scripts.TASK.source,
    facts: Facts = FACTS,
    team: str = "scripted",
) -> Path:
    settings = replace(scripts.settings(), team=team)
    start(folder, Task(name, source), settings, facts, name=f"{name}-{folder.name}")
    assert scripts.go_on(folder, WON).state.closed is not None
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two runs of different programs, one of another kind."""
    path = tmp_path / "lessons.sqlite"
    for name, more in (("double", ""), ("twice", "# another program\n")):
        assert remember_kernel(ran(tmp_path / name, name, source=scripts.TASK.source + more), path)
    product = replace(
        PROGRAM, flops=1e12, operations=("aten.mm [4096, 4096]",), shapes=("x bfloat16[4096, 4096]",)
    )
    remember_kernel(ran(tmp_path / "mm", "mm", facts=replace(FACTS, program=product)), path)
    return path


def test_a_run_leaves_its_kernel_with_what_made_it_so(tmp_path: Path) -> None:
    run = ran(tmp_path / "run", "double")
    entries = [(entry.at, entry.event) for entry in read_log(run)]
    kept = exemplar_of(entries)
    assert kept is not None
    found = kept.exemplar
    assert "0.5 ms" in found.source
    assert (found.task, found.gpu, found.milliseconds) == ("double", "H200", 0.5)
    assert found.speedup is not None
    assert '-SAYS = "0.9 ms"' in found.diff
    assert '+SAYS = "0.5 ms"' in found.diff
    seed, fusion = found.won
    assert (seed.stage, seed.category, seed.gain) == (Stage.SEED, None, None)
    assert "double: Doubles a block." in seed.change
    assert (fusion.category, fusion.change) == (Category.OPERATOR_FUSION, "fuse the product into the load")
    assert fusion.gain == pytest.approx(1.8)
    assert from_json(type(kept), to_json(kept)) == kept
    assert exemplar_of(entries[:-1]) is None


def test_kernels_are_recalled_by_likeness_and_not_of_other_kinds(store: Path) -> None:
    found = recall_kernels(store, FACTS)
    assert {one.task for one in found} == {"double", "twice"}
    assert all(one.likeness == 1.0 for one in found)
    assert [one.task for one in recall_kernels(store, FACTS, without="double-double")] == ["twice"]
    elsewhere = replace(FACTS, gpu=replace(FACTS.gpu, name="A100", arch="sm_80"))
    assert recalled(folder_of(store), signature_of(elsewhere), elsewhere.gpu, 1)[0].likeness == 0.5
    assert recall_kernels(store, scripts.FACTS) == ()
    assert recall_kernels(store.with_name("absent.sqlite"), FACTS) == ()


def test_a_file_that_is_none_is_passed_over(store: Path) -> None:
    (folder_of(store) / "torn.json").write_text('{"schema": "egg.exemplar/1", "exemplar": {')
    (folder_of(store) / "newer.json").write_text('{"schema": "egg.exemplar/9"}')
    assert len(all_kept(folder_of(store))) == 3


def test_a_run_records_them_and_its_prompts_show_them(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    terms = replace(scripts.settings(), team="step", device="offline", lessons=str(store))
    begin(scripts.TASK, terms, tmp_path / "next", {})
    started = state_of(tmp_path / "next").started
    assert {one.task for one in started.exemplars} == {"double", "twice"}
    asked = CliRunner().invoke(app, ["next", str(tmp_path / "next"), "--json"])
    system = json.loads(asked.stdout)["messages"][0]["text"]
    assert "## Accepted kernels of programs like yours" in system
    assert "fuse the product into the load" in system
    begin(scripts.TASK, replace(terms, without=("few-shot",)), tmp_path / "bare", {})
    assert state_of(tmp_path / "bare").started.exemplars == ()
    remember_kernel(ran(tmp_path / "own", "double", team="expert"), store)
    assert [one.task for one in optimizing.examples_for(terms, FACTS, "double")] == [
        "double",
        "double",
        "twice",
    ]
    from_expert = optimizing.examples_for(replace(terms, first="expert"), FACTS, "double")
    assert [(one.task, one.team) for one in from_expert] == [("double", "scripted"), ("twice", "scripted")]
    older = {key: value for key, value in to_json(started).items() if key not in ("exemplars", "kind")}
    assert from_json(RunStarted, older).exemplars == ()


def test_what_is_shown_stays_in_its_room(store: Path) -> None:
    found = recall_kernels(store, FACTS)
    whole = examples_shown(found, 5000)
    assert len(whole) == 2
    assert "class ModelNew" in whole[0]
    assert "````diff" in whole[1]
    for room in (0, 60, 150, 400):
        shown = examples_shown(found, room)
        assert sum(map(estimate_tokens, shown)) <= room + 20
    given = replace(brief(), exemplars=found)
    with_them, without = (Prompter(4000).prompt("designer.md", b, example="{}") for b in (given, brief()))
    assert "Likeness 100%" in with_them.messages[0].text
    assert "Likeness" not in without.messages[0].text


def test_what_won_repeatedly_is_drafted_into_a_skill_that_is_valid(store: Path, tmp_path: Path) -> None:
    def promote(*words: str):
        return CliRunner().invoke(app, ["lessons", "promote", *words, "--lessons", str(store), "--json"])

    out = tmp_path / "drafts"
    done = promote(str(out))
    assert done.exit_code == 0, done.output
    (draft,) = json.loads(done.stdout)["drafts"]
    assert draft == {"name": "draft-operator-fusion-pointwise", "programs": 2, "gain": 1.8}
    skill = load((out,), built_in=False)[draft["name"]]
    assert "fuse the product into the load" in skill.body
    assert "Draft" in skill.description
    checked = CliRunner().invoke(app, ["skills", "check", str(out)])
    assert checked.exit_code == 0, checked.output
    assert "class Model(" in skill.assets[0].read_text()
    assert "class ModelNew(" in skill.assets[0].read_text()
    again = promote(str(out))
    assert again.exit_code == 2
    assert "is there already" in again.output
    assert json.loads(promote(str(tmp_path / "more"), "--least", "3").stdout)["drafts"] == []
