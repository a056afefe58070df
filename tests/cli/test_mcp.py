"""``egg mcp`` as an agent uses it: a real client over stdio, and in the same process where that suffices."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from egg.api import optimizing
from egg.api.alike import kernels_alike
from egg.cli import mcp_tools
from egg.cli.mcp import server
from egg.core.facts import ProgramFacts
from tests.engine import scripts
from tests.engine.scripts import TASK, kernel
from tests.test_cli_runs import fenced

mcp = pytest.importorskip("mcp")
TOOLS = set(mcp_tools.TOOLS)
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
FORBIDDEN = "import os\nclass ModelNew: pass\n"
SEED = {"coder.seed seed 1": scripts.draft("2.0 ms")}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "double.py"
    path.write_text(TASK.source)
    return path


Session = Callable[[Any], Awaitable[None]]


def connected(target: Any, session: Session) -> None:
    async def main() -> None:
        async with mcp.Client(target) as client:
            await session(client)

    anyio.run(main)


async def called(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return json.loads(result.content[0].text)


async def refused(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return result.content[0].text


def test_a_client_over_stdio_plays_a_run_and_reads_its_mistakes(task: Path, tmp_path: Path) -> None:
    run = str(tmp_path / "run")

    async def session(client: Any) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        begun = await called(
            client, "start_run", task=str(task), folder=run, start="nothing", budget="quick",
            device="offline", target="H200",
        )  # fmt: skip
        assert (begun["run"], begun["waiting"], begun["question"]["purpose"]) == (run, "reply", "coder.seed")
        assert "return x * 2" in begun["question"]["messages"][0]["text"]
        again = await called(client, "reply", run=run, text="I would rather not.")
        assert "no Python code was found" in again["question"]["messages"][-1]["text"]
        waiting = await called(client, "reply", run=run, text=fenced(kernel("2.0 ms")))
        assert waiting["waiting"] == "evaluations"
        assert waiting["ways_on"][0].startswith("egg pending")
        assert (await called(client, "next_question", run=run))["waiting"] == "evaluations"
        assert (await called(client, "resume_run", run=run))["waiting"] == "evaluations"
        assert "the run waits for no reply" in await refused(client, "reply", run=run, text="more")
        assert "no such run" in await refused(client, "next_question", run=str(tmp_path / "absent"))
        found = await called(client, "skill", name="online-softmax")
        assert "class ModelNew" in found["patterns"][0]
        assert "class Model(" not in found["patterns"][0]
        verdict = await called(
            client,
            "judge",
            task=str(task),
            kernel=FORBIDDEN,
            device="cpu",
            target="H200",
        )
        assert verdict["verdict"]["refusal"]["gate"] == "static"

    connected(
        mcp.StdioServerParameters(command=sys.executable, args=["-m", "egg.cli", "mcp"], env=ENVIRONMENT),
        session,
    )


def test_profile_and_skills_answer_for_a_program(task: Path) -> None:
    async def session(client: Any) -> None:
        seen = await called(client, "profile", task=str(task), target="H200", device="cpu")
        assert seen["schema"] == "egg.profile-report/1"
        offered = await called(client, "skills", task=str(task), target="H200", device="cpu", stage="seed")
        assert offered["offered"][0]["stage"] == "seed"
        compiled = await called(client, "compile", task=str(task), kernel=kernel("1 ms"), target="H200")
        assert compiled["compiles"]
        assert "registers" in compiled["summary"]
        assert not (await called(client, "compile", task=str(task), kernel=FORBIDDEN))["compiles"]
        options = {"task": str(task), "kernel": kernel("1 ms"), "target": "H200", "device": "cpu"}
        shown = await called(client, "code", name="double", most=2_000, **options)
        assert (shown["kernel"], shown["target"]) == ("double", "H200")
        assert "- global stores" in shown["code"]
        assert "name one of double" in await refused(client, "code", name="triple", **options)

    connected(server(), session)


def test_a_run_from_the_built_in_team_asks_from_its_kernel_on(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``start`` is expert, a kernel file, or nothing; the built-in team's seed is here a given one."""
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: scripts.FACTS)
    monkeypatch.setattr("egg.api.teams._expert", lambda: scripts.ScriptedTeam({**scripts.PASSING, **SEED}))
    own = tmp_path / "own.py"
    own.write_text(kernel("1.0 ms"))

    async def session(client: Any) -> None:
        for start, shown in (("expert", "2.0 ms"), (str(own), "1.0 ms")):
            run = tmp_path / Path(start).stem
            begun = await called(
                client,
                "start_run",
                task=str(task),
                folder=str(run),
                start=start,
                device="offline",
                target="H200",
            )
            assert begun["waiting"] == "evaluations"
            log = (run / "expert" if start == "expert" else run) / "events.jsonl"
            assert f'SAYS = \\"{shown}\\"' in log.read_text()
        assert "no such file" in await refused(
            client, "start_run", task=str(task), start=str(tmp_path / "absent.py"), device="offline"
        )

    connected(server(), session)


PROGRAM = replace(scripts.FACTS, program=ProgramFacts(0.0, 512, (), (), {"pointwise": 64.0}))


def test_kernels_of_like_programs_come_from_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "FACTS", PROGRAM)
    place = tmp_path / "runs" / "one"
    scripts.begin(place)
    scripts.go_on(place, {**scripts.PASSING, **SEED})
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "events.jsonl").write_text("no log\n")
    found = kernels_alike(PROGRAM, tmp_path / "runs")
    assert [one.task for one in found] == ["double"]
    assert found[0].likeness > 0.8
    assert "2.0 ms" in found[0].to_json()["kernel"]
    product = ProgramFacts(1e12, 10**6, (), (), {"product": 1e12})
    assert kernels_alike(replace(PROGRAM, program=product), tmp_path / "runs") == ()
