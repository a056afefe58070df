"""Tools in a run: recorded, resumed, replayed; over real HTTP with a real judge and compiler."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from egg.api.clients import JournaledClient, OutsideClient
from egg.api.runs import Progress, advance, look, replay, start, state_of
from egg.api.teams import llm_team
from egg.api.tools import Workbench, tool_names
from egg.cli.app import app
from egg.core.conversation import Request, Speaker, ToolCall
from egg.core.events import Evaluated, Exchanged, ToolCalled
from egg.core.settings import Settings
from egg.engine.budgets import BUDGETS
from egg.engine.log import LOG, read_log
from egg.engine.scripted import ScriptedJudge
from egg.evaluator.judge.pool import Job
from egg.llm.scripted import ScriptedClient
from tests.engine import scripts

PASS = {"bottleneck": "none", "worth_optimizing": False, "reason": "it is as good as it gets"}
BETTER = '# edit: replace SAYS\nSAYS = "0.5 ms"\n'


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def settings() -> Settings:
    return replace(scripts.settings(), team="llm", budget=replace(BUDGETS["quick"], tool_calls=3))


def called(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(f"{name}-1", name, json.dumps(arguments))


def reply(request: Request) -> str | ToolCall:
    """A seed that is judged before it is handed in; then nothing more."""
    if request.schema is not None:
        return json.dumps(PASS)
    turns = sum(message.speaker is Speaker.TOOL for message in request.messages)
    return [
        called("judge", kernel=scripts.kernel("2.0 ms")),
        called("compile", kernel=BETTER, on=1),
        called("judge", kernel=BETTER, on=1),
        "use draft 3",
    ][turns]


class Counting(ScriptedJudge):
    """Keeps the names of the jobs."""

    def __init__(self) -> None:
        super().__init__(scripts.act)
        self.jobs: list[str] = []

    def judge(self, jobs: Sequence[Job]) -> Any:
        self.jobs += [job.id.rpartition(".")[2] for job in jobs]
        return super().judge(jobs)


def went_on(
    folder: Path, judge: ScriptedJudge, client: ScriptedClient | None = None, device: str = "cuda:0"
) -> Progress:
    if not (folder / LOG).exists():
        start(folder, scripts.TASK, replace(settings(), device=device), scripts.FACTS, name="tools")
    bench = Workbench(replace(settings(), device="cpu"), folder, judge, {})

    def team(started, journal):
        asked = JournaledClient(client or ScriptedClient(reply), journal)
        return llm_team(started.settings, asked, bench.for_run(started, journal))

    return advance(folder, team, bench)


def test_calls_are_effects_of_the_log_and_a_verdict_is_not_asked_for_twice(tmp_path: Path) -> None:
    judge = Counting()
    state = went_on(tmp_path / "run", judge).state
    assert state.closed is not None
    assert state.closed.verdict == "faster"
    assert state.best_kernel is not None
    assert "0.5 ms" in state.best_kernel.candidate.source
    events = [entry.event for entry in read_log(tmp_path / "run")]
    calls = [event for event in events if isinstance(event, ToolCalled)]
    assert [event.call.name for event in calls] == ["judge", "compile", "judge"]
    assert {event.purpose for event in calls} == {"coder.seed"}
    assert "Accepted" in calls[2].result
    assert state.ledger.tools == 3
    kinds = [type(event) for event in events if isinstance(event, Exchanged | ToolCalled)]
    assert kinds[:7] == [Exchanged, ToolCalled] * 3 + [Exchanged]
    assert judge.jobs == ["tool-judge", "tool-compile", "tool-judge", "full"]
    judged = [event.evaluation for event in events if isinstance(event, Evaluated)]
    assert judged[0].candidate == "seed-1"
    assert replay(tmp_path / "run").state == state_of(tmp_path / "run") == state


def test_a_run_cut_off_between_calls_goes_on_and_runs_no_call_twice(tmp_path: Path) -> None:
    whole = went_on(tmp_path / "whole", Counting()).state
    lines = (tmp_path / "whole" / LOG).read_text().splitlines(keepends=True)
    for kept in range(2, 12):
        place = tmp_path / f"cut-{kept}"
        place.mkdir()
        (place / LOG).write_text("".join(lines[:kept]))
        left = look(place)
        client, judge = ScriptedClient(reply), Counting()
        state = went_on(place, judge, client).state
        assert (state.steps, state.best) == (whole.steps, whole.best)
        assert state.ledger.tools == 3
        kinds = [entry.event.kind for entry in read_log(place)]
        assert kinds.count("tool.called") == 3
        assert len(judge.jobs) <= 4
        if left.waiting is not None:
            assert "tool" not in str(left.waiting)


def test_a_question_that_a_model_was_at_with_tools_is_answered_from_outside(tmp_path: Path) -> None:
    """The calls stay in the log; the answer is asked for anew, as the question was."""
    went_on(tmp_path / "whole", Counting())
    lines = (tmp_path / "whole" / LOG).read_text().splitlines(keepends=True)
    place = tmp_path / "cut"
    place.mkdir()
    (place / LOG).write_text("".join(lines[:6]))
    outside = OutsideClient([f"```python\n{scripts.kernel('0.7 ms')}```", *[json.dumps(PASS)] * 4])

    def team(started, journal):
        return llm_team(started.settings, JournaledClient(outside, journal))

    state = advance(place, team, ScriptedJudge(scripts.act)).state
    assert state.closed is not None
    assert "0.7 ms" in state.sources[state.best or ""]
    assert outside.unused == []
    assert replay(place).state == state_of(place)


def test_a_model_reads_the_compiled_code_of_a_kernel(tmp_path: Path) -> None:
    """A name that is not in the file is answered with those that are; the log replays without a compiler."""
    file = scripts.kernel("0.5 ms")
    moves = [
        called("code", kernel=file, name="triple"),
        called("code", kernel=file, name="double"),
        "use draft 2",
    ]

    def reply(request: Request) -> str | ToolCall:
        if request.schema is not None:
            return json.dumps(PASS)
        return moves[sum(message.speaker is Speaker.TOOL for message in request.messages)]

    state = went_on(tmp_path / "run", Counting(), ScriptedClient(reply), "cpu").state
    assert state.closed is not None
    events = [entry.event for entry in read_log(tmp_path / "run")]
    wrong, right = [event.result for event in events if isinstance(event, ToolCalled)]
    assert wrong == "Error: the file launches no kernel 'triple' (name one of double)"
    assert right.startswith("double for H200: grid ")
    assert "- global loads 1: LDG.E" in right
    line = file.strip().splitlines().index("    x = tl.load(x_ptr + at, mask=at < n)") + 1
    assert any(row.startswith(f"{line:4} | ") and "LDG.E" in row for row in right.splitlines())
    assert replay(tmp_path / "run").state == state_of(tmp_path / "run") == state


def test_each_run_has_the_tools_that_work_in_it() -> None:
    here, there = settings(), replace(settings(), device="cuda:0")
    assert "time" in tool_names(there)
    assert "time" not in tool_names(replace(here, device="offline"))
    assert "skill" in tool_names(replace(here, skills=()))
    assert "skill" not in tool_names(replace(here, skills=None))


# -- over HTTP -----------------------------------------------------------------------------------------


class Endpoint(BaseHTTPRequestHandler):
    """A model in both protocols: it compiles and judges a file, looks up a skill, then hands the file in."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        anthropic = self.path.endswith("/messages")
        answer = self._answer(body, anthropic)
        (self._messages if anthropic else self._chat)(answer)

    def _answer(self, body: dict, anthropic: bool) -> str | tuple[str, str]:
        if "tools" not in body:
            return json.dumps(PASS)
        kernel = scripts.kernel("")
        if anthropic:
            turns = sum(m["role"] == "assistant" for m in body["messages"])
        else:
            turns = sum(m["role"] == "tool" for m in body["messages"])
        return [
            ("compile", json.dumps({"kernel": kernel})),
            ("skill", json.dumps({"name": "online-softmax"})),
            ("judge", json.dumps({"kernel": kernel})),
            "use draft 2",
        ][turns]

    def _chat(self, answer: str | tuple[str, str]) -> None:
        if isinstance(answer, str):
            deltas = [{"content": answer}]
        else:
            name, arguments = answer
            half = len(arguments) // 2
            begun = {"index": 0, "id": f"call-{name}", "type": "function"}
            deltas = [
                {"tool_calls": [{**begun, "function": {"name": name, "arguments": arguments[:half]}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": arguments[half:]}}]},
            ]
        for delta in deltas:
            self._data({"choices": [{"index": 0, "delta": delta}]})
        finish = "stop" if isinstance(answer, str) else "tool_calls"
        self._data({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _messages(self, answer: str | tuple[str, str]) -> None:
        usage = {"input_tokens": 10, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "tiny", "content": []}
        self._event("message_start", message={**message, "usage": usage})
        if isinstance(answer, str):
            self._event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": answer})
        else:
            block = {"type": "tool_use", "id": f"call-{answer[0]}", "name": answer[0], "input": {}}
            self._event("content_block_start", index=0, content_block=block)
            part = {"type": "input_json_delta", "partial_json": answer[1]}
            self._event("content_block_delta", index=0, delta=part)
        self._event("content_block_stop", index=0)
        reason = "end_turn" if isinstance(answer, str) else "tool_use"
        self._event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 9})
        self._event("message_stop")

    def _data(self, chunk: dict) -> None:
        whole = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", **chunk}
        self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())

    def _event(self, kind: str, **body: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def endpoint() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.bodies = []  # type: ignore[attr-defined]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("model", "path", "device", "verdict"),
    [("tiny", "/v1", "offline", None), ("anthropic/tiny", "", "cpu", "unmeasured")],
)
def test_a_model_behind_http_tries_its_kernel_before_it_answers(
    tmp_path, model, path, device, verdict
) -> None:
    """Where another machine judges the run, this one's CPU compiles and judges for the tools."""
    task = tmp_path / "double.py"
    task.write_text(scripts.TASK.source)
    with endpoint() as server:
        address = f"http://127.0.0.1:{server.server_port}{path}"
        ran = egg(
            *("optimize", task, "--model", model, "--base-url", address),
            *("--device", device, "--out", tmp_path / "run", "--max-steps", "1", "--no-lessons", "--json"),
        )
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert (result["verdict"], result["ledger"]["tools"]) == (verdict, 3)
    events = [entry.event for entry in read_log(tmp_path / "run")]
    compiled, skill, judged = [event.result for event in events if isinstance(event, ToolCalled)]
    assert "It compiles for" in compiled
    assert "registers" in compiled
    assert skill.startswith("online-softmax:")
    assert judged.startswith("Accepted: right on")
    assert "draft 2" in str(server.bodies[3]["messages"]).lower()  # type: ignore[attr-defined]
    assert replay(tmp_path / "run").state == state_of(tmp_path / "run")
