"""The log of a run: what is written is read back, without secrets and with its sources."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from egg.core.codec import to_json
from egg.core.conversation import Message, Speaker
from egg.core.errors import MachineError, UsageError
from egg.core.events import (
    Evaluated,
    Event,
    Exchanged,
    Proposed,
    RunStarted,
    SentBack,
    StageOpened,
    StageSkipped,
)
from egg.core.settings import ModelChoice
from egg.core.source import content_hash, earlier_hash
from egg.core.stage import Stage
from egg.engine.log import Entry, LogError, LogWriter, read_log
from egg.engine.redaction import Redactor
from tests.engine.logs import SETTINGS, asked, sample_events, write_log

START = sample_events()[0]
assert isinstance(START, RunStarted)
SHORT: tuple[Event, ...] = (
    START,
    StageOpened(Stage.SEED, None),
    StageSkipped(Stage.MAPPING, 'a line\nbreak, a "quote", an ümlaut and \ud83d half a pair'),
    SentBack("designer", 3, "tried"),
)
NEXT = SentBack("tuner", 4, "and the run goes on")


def events_of(entries: tuple[Entry, ...]) -> list[Event]:
    return [entry.event for entry in entries]


def edited(path: Path, line: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change one line of a log as an editor would; ``line`` counts from 1."""
    lines = path.read_text().splitlines()
    row = json.loads(lines[line - 1])
    change(row)
    lines[line - 1] = json.dumps(row)
    path.write_text("\n".join(lines) + "\n")


class TestReadingBack:
    def test_every_event_comes_back_as_it_was(self, tmp_path: Path) -> None:
        with LogWriter(tmp_path / "new" / "run") as log:
            written = tuple(log.append(event) for event in sample_events())
        assert events_of(written) == list(sample_events())
        assert read_log(tmp_path / "new" / "run") == written

    def test_numbers_are_line_numbers_and_times_are_utc(self, tmp_path: Path) -> None:
        began = datetime.now(UTC) - timedelta(milliseconds=1)
        path = write_log(tmp_path)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["at"]) for row in rows)
        assert began <= datetime.fromisoformat(rows[0]["at"]) <= datetime.now(UTC)
        assert [row["event"]["kind"] for row in rows] == [event.kind for event in sample_events()]

    def test_a_writer_goes_on_where_the_last_one_ended(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, SHORT)
        before = path.read_bytes()
        with LogWriter(tmp_path) as log:
            assert events_of(log.history) == list(SHORT)
            assert log.append(NEXT).number == len(SHORT) + 1
        assert path.read_bytes().startswith(before)
        assert events_of(read_log(tmp_path)) == [*SHORT, NEXT]

    def test_what_was_read_is_written_as_the_same_bytes(self, tmp_path: Path) -> None:
        """Even where an event was made with a whole number for a real one."""
        now = datetime.now(UTC)
        for folder, events in (("first", list(sample_events())), ("second", [])):
            with LogWriter(tmp_path / folder, clock=lambda: now) as log:
                for event in events or events_of(read_log(tmp_path / "first")):
                    log.append(event)
        first, second = (tmp_path / name / "events.jsonl" for name in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()

    def test_the_entry_returned_is_the_one_read(self, tmp_path: Path) -> None:
        """Lists become tuples and infinities come back, before anybody goes on from the event."""
        question, answer = asked("designer", 2, sample_events()[16].answer)  # type: ignore[union-attr]
        assert isinstance(question, Exchanged)
        odd = replace(question, request=replace(question.request, schema={"pair": (1, 2)}))
        with LogWriter(tmp_path) as log:
            log.append(START)
            entries = (log.append(odd), log.append(replace(answer, seconds=float("inf"))))
        assert read_log(tmp_path)[1:] == entries
        assert entries[0].event != odd

    def test_fields_from_a_later_version_are_passed_over(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, SHORT)
        edited(path, 1, lambda row: row["event"]["facts"]["gpu"].update(colour="green"))
        edited(path, 2, lambda row: (row.update(host="x"), row["event"].update(mood="good")))
        assert events_of(read_log(tmp_path)) == list(SHORT)

    def test_five_megabytes_in_well_under_a_second(self, tmp_path: Path) -> None:
        """Prompts of some thousand tokens, as they are in practice."""
        question, answer = asked("coder.optimize", 2, sample_events()[16].answer)  # type: ignore[union-attr]
        assert isinstance(question, Exchanged)
        long = (Message(Speaker.USER, "y = tl.sum(x * w, axis=0)  # one row\n" * 700),)
        exchange: Event = replace(question, request=replace(question.request, messages=long))
        path = write_log(tmp_path, (START, exchange, answer, *sample_events()[4:6]))
        first, *others = path.read_bytes().splitlines(keepends=True)
        renumbered = (re.sub(rb"^.*?,", b'{"n":%d,' % n, line) for n, line in enumerate(others * 180, 2))
        path.write_bytes(first + b"".join(renumbered))
        assert path.stat().st_size > 5_000_000
        began = time.process_time()
        entries = read_log(tmp_path)
        assert time.process_time() - began < 1.0
        assert len(entries) == 1 + 4 * 180


class TestWriting:
    def test_each_event_is_one_write_and_on_the_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []
        real_write, real_sync = os.write, os.fsync

        def write(handle: int, data: bytes) -> int:
            calls.append(f"write {data.count(bytes([10]))} line, whole: {data.endswith(bytes([10]))}")
            return real_write(handle, data)

        def sync(handle: int) -> None:
            calls.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
            real_sync(handle)

        monkeypatch.setattr(os, "write", write)
        monkeypatch.setattr(os, "fsync", sync)
        with LogWriter(tmp_path / "run") as log:
            assert calls == [f"sync {tmp_path.name}", "sync events.jsonl", "sync run"]
            for event in SHORT:
                calls.clear()
                log.append(event)
                assert calls == ["write 1 line, whole: True", "sync events.jsonl"]

    def test_one_writer_at_a_time_and_readers_meanwhile(self, tmp_path: Path) -> None:
        with LogWriter(tmp_path) as log:
            for event in SHORT:
                log.append(event)
            with pytest.raises(UsageError, match=f"is being written by process {os.getpid()} on "):
                LogWriter(tmp_path)
            assert events_of(read_log(tmp_path)) == list(SHORT)
            log.append(NEXT)
        with LogWriter(tmp_path) as log:
            assert events_of(log.history) == [*SHORT, NEXT]

    def test_a_log_that_cannot_be_read_is_neither_touched_nor_locked(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, SHORT)
        edited(path, 2, lambda row: row.update(n=7))
        damaged = path.read_bytes()
        for _ in range(2):
            with pytest.raises(LogError, match="line 2 "):
                LogWriter(tmp_path)
        assert path.read_bytes() == damaged

    def test_a_log_begins_with_its_start_and_has_one(self, tmp_path: Path) -> None:
        with LogWriter(tmp_path) as log:
            with pytest.raises(ValueError, match=r"event 1 cannot be answer\.sent_back"):
                log.append(NEXT)
            log.append(START)
            with pytest.raises(ValueError, match=r"event 2 cannot be run\.started"):
                log.append(START)
        assert events_of(read_log(tmp_path)) == [START]

    @pytest.mark.parametrize(("interrupted", "kept"), [("fsync", True), ("write", False)])
    def test_interrupted_at_the_keyboard(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str, kept: bool
    ) -> None:
        """A line that was written counts, so that the next one has the next number."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with LogWriter(tmp_path) as log:
            log.append(START)
            with monkeypatch.context() as patch:
                patch.setattr(os, interrupted, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    log.append(SHORT[1])
            log.append(NEXT)
        assert events_of(read_log(tmp_path)) == [START, *([SHORT[1]] if kept else []), NEXT]

    def test_a_disk_that_fails_entirely(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half a line is there and cannot be taken back: nothing more is written behind it."""
        real_write = os.write

        def fail(*_: object) -> None:
            raise OSError(5, "Input/output error")

        with LogWriter(tmp_path) as log:
            log.append(START)
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", lambda handle, data: real_write(handle, data[:20]))
                patch.setattr(os, "ftruncate", fail)
                with pytest.raises(MachineError, match="cannot write"):
                    log.append(NEXT)
            with pytest.raises(ValueError, match="closed"):
                log.append(NEXT)
        assert events_of(read_log(tmp_path)) == [START]
        with LogWriter(tmp_path) as log:
            log.append(NEXT)
        assert events_of(read_log(tmp_path)) == [START, NEXT]

    def test_a_disk_that_does_not_confirm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(handle: int) -> None:
            raise OSError(5, "Input/output error")

        with LogWriter(tmp_path) as log:
            log.append(START)
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fail)
                with pytest.raises(MachineError, match="Input/output error"):
                    log.append(SHORT[1])
            log.append(NEXT)
        assert events_of(read_log(tmp_path)) == [START, NEXT]

    def test_nothing_is_added_to_a_closed_log(self, tmp_path: Path) -> None:
        with LogWriter(tmp_path) as log:
            log.append(START)
        with pytest.raises(ValueError, match="closed"):
            log.append(NEXT)
        log.close()

    @pytest.mark.parametrize("torn", [None, b"", b"{"])
    def test_going_on_needs_a_run_and_makes_nothing(self, tmp_path: Path, torn: bytes | None) -> None:
        folder = tmp_path / "mistyped"
        if torn is not None:
            folder.mkdir()
            (folder / "events.jsonl").write_bytes(torn)
        with pytest.raises(LogError, match="no run in"):
            LogWriter(folder, create=False)
        assert folder.exists() == (torn is not None)
        write_log(folder, SHORT)
        with LogWriter(folder, create=False) as log:
            assert events_of(log.history) == list(SHORT)

    def test_a_place_where_no_folder_can_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cannot make"):
            LogWriter(tmp_path / "file" / "run")

    def test_an_event_that_would_not_come_back_is_refused(self, tmp_path: Path) -> None:
        with LogWriter(tmp_path) as log:
            log.append(START)
            with pytest.raises(ValueError, match=r"model\.exchanged cannot be read back"):
                log.append(Exchanged("not a request", "nor a completion"))  # type: ignore[arg-type]
        assert events_of(read_log(tmp_path)) == [START]


class TestSecrets:
    SECRET = "zK4-very-secret-9Q"

    def test_they_are_taken_out_before_the_disk_sees_them(self, tmp_path: Path) -> None:
        source = f'KEY = "{self.SECRET}"\n'
        with LogWriter(tmp_path, Redactor([self.SECRET])) as log:
            log.append(replace(START, run=f"for {self.SECRET}"))
            named = content_hash('KEY = "[secret]"\n')  # a file is proposed as the log holds it
            entry = log.append(replace(_proposed(), candidate=named, source=source))
        for path in tmp_path.rglob("*"):
            assert self.SECRET.encode() not in path.read_bytes()
        assert read_log(tmp_path)[1] == entry
        assert isinstance(entry.event, Proposed)
        assert entry.event.source == 'KEY = "[secret]"\n'

    def test_shapes_of_keys_are_taken_out_without_being_told(self, tmp_path: Path) -> None:
        model = ModelChoice("openai", "m", "https://me:hunter22@host/v1")
        path = write_log(tmp_path, (replace(START, settings=replace(SETTINGS, model=model)),))
        assert b"hunter22" not in path.read_bytes()

    @pytest.mark.parametrize("word", ["role.answered", "operator_fusion", "prediction", "max_output_tokens"])
    def test_a_word_the_log_is_made_of_is_no_secret(self, tmp_path: Path, word: str) -> None:
        """Taking it out would leave a log nobody can read: said at once, and nothing is written."""
        question, answer = asked("designer", 2, sample_events()[16].answer)  # type: ignore[union-attr]
        with LogWriter(tmp_path, Redactor([word])) as log:
            with pytest.raises(LogError, match="a secret of this run is a word"):  # noqa: PT012
                log.append(START)
                log.append(question)
                log.append(answer)
            held = log.folder
        rows = (held / "events.jsonl").read_text().splitlines()
        assert len(read_log(held)) == len(rows) in (1, 2)


class TestSources:
    """Every file in a log is checked against its name when the log is read."""

    def test_an_altered_kernel_is_noticed(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, sample_events())
        lines = path.read_text().splitlines(keepends=True)
        [at, *_] = [n for n, line in enumerate(lines) if '"kernel.proposed"' in line]
        lines[at] = lines[at].replace("tl.exp(", "tl.log(")
        path.write_text("".join(lines))
        with pytest.raises(LogError, match="was altered: its text is not the kernel"):
            read_log(tmp_path)

    def test_an_altered_task_is_noticed(self, tmp_path: Path) -> None:
        path = write_log(tmp_path, sample_events())
        first, *rest = path.read_text().splitlines(keepends=True)
        path.write_text("".join([first.replace("torch.softmax", "torch.log_softmax"), *rest]))
        with pytest.raises(LogError, match=r"line 1 .* was altered: its text is not the task"):
            read_log(tmp_path)

    def test_names_of_earlier_versions_are_read_as_todays(self, tmp_path: Path) -> None:
        events = sample_events()
        [first] = [event for event in events[:6] if isinstance(event, Proposed)][:1]
        spaced = first.source.replace("\n", "  \n", 1)
        path = write_log(tmp_path, events)
        path.write_text(path.read_text().replace(json.dumps(first.source), json.dumps(spaced)))
        found = read_log(tmp_path)
        assert content_hash(spaced) != first.candidate == earlier_hash(spaced)
        assert content_hash(spaced) in {e.event.candidate for e in found if isinstance(e.event, Proposed)}
        assert first.candidate not in json.dumps([to_json(entry.event) for entry in found])

    @pytest.mark.parametrize("changed", [True, False])
    def test_a_verdict_holds_for_the_whole_hash_and_not_for_a_name(
        self, tmp_path: Path, changed: bool
    ) -> None:
        events = list(sample_events())
        at = next(i for i, event in enumerate(events) if isinstance(event, Evaluated))
        first = events[at]
        assert isinstance(first, Evaluated)
        whole = "0" * 64 if changed else ""
        events[at] = replace(first, evaluation=replace(first.evaluation, candidate_sha256=whole))
        write_log(tmp_path, events)
        if changed:
            with pytest.raises(LogError, match=r"was altered: its text is not the kernel"):
                read_log(tmp_path)
        else:
            assert read_log(tmp_path), "the log of an earlier version stays readable"


def _proposed() -> Proposed:
    return next(event for event in sample_events() if isinstance(event, Proposed))
