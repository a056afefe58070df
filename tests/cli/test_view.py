"""``egg view``: what it shows and follows, and whom and what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from egg.cli.app import app
from egg.cli.view_index import Kind, PlaceIndex
from egg.cli.view_server import ViewServer
from tests.report.browser import PHONE, chromium
from tests.report.made import SOFTMAX, first, hostile_run, many_rows

__all__ = ["chromium"]

EVENTS = len((SOFTMAX / "events.jsonl").read_text().splitlines())
HOSTILE_NAME = '"><img src=x onerror=window.pwned=1>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run, one that is under way, and a bench with a run in it."""
    root = tmp_path / "work"
    shutil.copytree(SOFTMAX, root / "done")
    first(SOFTMAX, root / "deep" / "open", EVENTS // 2)
    bench = root / "bench"
    shutil.copytree(SOFTMAX, bench / "runs" / "1_1")
    (bench / "bench.json").write_text("{}")
    (bench / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in many_rows(12)))
    (bench / "workers.log").write_text("worker 1 <b>began</b>\n")
    return root


@contextmanager
def serving(folder: Path) -> Iterator[ViewServer]:
    with ViewServer(PlaceIndex(folder), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: ViewServer, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=180)
    given = {"Host": f"127.0.0.1:{server.port}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    connection.putrequest(method, path, skip_host=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_a_folder_s_runs_and_benches_are_listed_and_reported(folder: Path) -> None:
    with serving(folder) as server:
        _, index = ask(server, "/")
        for shown in ("faster", "open", "12 tasks ended", "/run?at=deep%2Fopen", "/bench?at=bench"):
            assert shown in index
        assert "1_1" not in index, "the runs of a bench are the bench's"
        _, bench = ask(server, "/bench?at=bench")
        assert "12 tasks" in bench
        _, runs = ask(server, "/runs?at=bench")
        assert f"/run?at={quote('bench/runs/1_1', safe='')}" in runs
        for name in ("done", "deep/open", "bench/runs/1_1"):
            answer, report = ask(server, f"/run?at={quote(name, safe='')}")
            assert answer.status == 200
            assert "wide_softmax" in report
        _, log = ask(server, "/log?at=done")
        assert "stage structure" in log
        _, output = ask(server, "/output?at=bench")
        assert "worker 1 &lt;b&gt;began&lt;/b&gt;" in output


def test_a_page_is_made_again_when_its_files_have_grown_and_not_before(folder: Path) -> None:
    run = folder / "deep" / "open"
    with serving(folder) as server:
        answer, before = ask(server, "/log?at=deep%2Fopen")
        tag = answer.headers["ETag"]
        answer, nothing = ask(server, "/log?at=deep%2Fopen", If_None_Match=tag)
        assert (answer.status, nothing) == (304, "")
        (run / "events.jsonl").write_bytes((SOFTMAX / "events.jsonl").read_bytes())
        answer, after = ask(server, "/log?at=deep%2Fopen", If_None_Match=tag)
        assert answer.status == 200
        assert answer.headers["ETag"] != tag
        assert "ended, faster" in after
        assert "ended, faster" not in before


@pytest.mark.parametrize(
    "path",
    [
        "/run?at=../outside",
        "/run?at=..%2Foutside",
        "/run?at=%2Fetc",
        "/run?at=/etc/passwd",
        "/log?at=linked",
        "/run?at=borrowed",
        "/output?at=linked_bench",
        "/bench?at=done",
        "/run?at=bench%2Fruns%2F..%2F..%2F..%2Foutside",
        "/../outside/events.jsonl",
        "/events.jsonl",
        "//etc/passwd",
    ],
)
def test_nothing_outside_the_folder_is_shown(folder: Path, path: str) -> None:
    outside = folder.parent / "outside"
    shutil.copytree(SOFTMAX, outside)
    (folder / "linked").symlink_to(outside)
    (folder / "borrowed").mkdir()
    (folder / "borrowed" / "events.jsonl").symlink_to(outside / "events.jsonl")
    (folder / "linked_bench").mkdir()
    (folder / "linked_bench" / "rows.jsonl").write_text("")
    (folder / "linked_bench" / "workers.log").symlink_to("/etc/passwd")
    with serving(folder) as server:
        answer, text = ask(server, path)
        assert answer.status == 404
        assert "wide_softmax" not in text
        assert "root:" not in text
        assert "linked" not in ask(server, "/")[1]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_name_that_somebody_points_here_is_refused(folder: Path, host: str) -> None:
    with serving(folder) as server:
        answer, text = ask(server, "/", Host=host.format(port=server.port))
        assert answer.status == 421
        assert "faster" not in text
        assert ask(server, "/", Host=f"localhost:{server.port}")[0].status == 200


def test_it_listens_on_the_loopback_and_only_reads(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with serving(folder) as server:
        assert server.server_address[0] == "127.0.0.1"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(server, "/run?at=done", method)[0].status == 501
        answer, text = ask(server, "/run?at=done", "HEAD")
        assert (answer.status, text) == (200, "")
        ask(server, "/run?at=done")
        ask(server, "/bench?at=bench")
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_run_that_cannot_be_read_does_not_hide_the_others(folder: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken" / "events.jsonl").write_text("{}\n")
    with serving(folder) as server:
        _, index = ask(server, "/")
        assert "unreadable" in index
        assert "faster" in index
        assert ask(server, "/run?at=broken")[0].status == 503


def test_a_folder_that_is_a_run_itself_is_shown(folder: Path) -> None:
    assert [(place.kind, place.name) for place in PlaceIndex(folder / "done").places()] == [(Kind.RUN, ".")]
    with serving(folder / "done") as server:
        assert "/run?at=." in ask(server, "/")[1]
        assert ask(server, "/run?at=.")[0].status == 200


def test_mistakes_are_told() -> None:
    done = CliRunner().invoke(app, ["view", "no such folder"])
    assert done.exit_code == 2
    assert "no such folder" in done.output


def test_the_command_serves_until_it_is_interrupted(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "egg.cli", "view", str(folder), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["address"].startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


# -- in a browser ------------------------------------------------------------------------------------


def until(page: Any, expression: str, seconds: float = 20.0) -> None:
    """Until the page says so. Playwright's own waiting compiles text, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"not within {seconds:g} s: {expression}"
        page.wait_for_timeout(50)


@contextmanager
def opened(chromium: Any, address: str, size: dict[str, int] | None = None) -> Iterator[Any]:
    context = chromium.new_context(viewport=size or {"width": 1200, "height": 900})
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(address)
    try:
        yield page
    finally:
        context.close()


def test_a_browser_follows_a_run_and_keeps_what_is_unfolded(chromium: Any, folder: Path) -> None:
    run = folder / "deep" / "open"
    with serving(folder) as server, opened(chromium, server.address) as page:
        page.get_by_role("link", name="deep/open").click()
        page.wait_for_selector("#story")
        steps = page.locator(".step").count()
        page.locator("#story details summary").first.click()
        unfolded = page.locator("#story details[open]").count()
        (run / "events.jsonl").write_bytes((SOFTMAX / "events.jsonl").read_bytes())
        until(page, f"document.querySelectorAll('.step').length > {steps}")
        assert page.locator("#story details[open]").count() == unfolded == 1
        assert page.locator("h1 .badge").text_content() == "faster"
        assert page.locator("#live").text_content() == "live"
        page.get_by_role("link", name="log").click()
        page.wait_for_selector("ol.log")
        assert "ended, faster" in page.locator("ol.log li").first.text_content()
        assert page.complaints == []


def test_a_browser_follows_a_bench_and_keeps_its_filters_and_order(chromium: Any, folder: Path) -> None:
    rows = folder / "bench" / "rows.jsonl"
    with serving(folder) as server, opened(chromium, f"{server.address}bench?at=bench", PHONE) as page:
        page.get_by_label("Find").fill("1/")
        head = page.locator("#tasks-table thead th", has_text="over eager")
        head.locator("button").click()
        assert page.locator("#tasks-table tbody tr").count() == 12
        rows.write_text("".join(row.to_line() + "\n" for row in many_rows(30)))
        until(page, "document.querySelectorAll('#tasks-table tbody tr').length === 30")
        assert page.get_by_label("Find").input_value() == "1/"
        assert head.get_attribute("aria-sort") == "descending"
        assert page.locator("form [role=status]").text_content().endswith("of 30 shown")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.complaints == []


def test_a_phone_shows_each_place_with_its_state_and_what_came_of_it(chromium: Any, folder: Path) -> None:
    with serving(folder) as server, opened(chromium, server.address, PHONE) as page:
        rows = page.locator("#items tbody tr")
        assert rows.count() == len(PlaceIndex(folder).places())
        for row in rows.all():
            for cell in (row.locator("a"), row.locator(".badge"), row.locator(".so-far")):
                box = cell.bounding_box()
                assert box["width"] > 0
                assert box["x"] + box["width"] <= PHONE["width"]
        page.get_by_role("link", name="deep/open").click()
        page.wait_for_selector("#story")
        assert page.locator("nav.live [aria-current=page]").text_content() == "report"
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_hostile_names_and_contents_do_nothing_in_a_browser(chromium: Any, tmp_path: Path) -> None:
    root = tmp_path / "work"
    hostile_run(root / HOSTILE_NAME)
    with serving(root) as server, opened(chromium, server.address) as page:
        for address in ("", f"run?at={quote(HOSTILE_NAME)}", f"log?at={quote(HOSTILE_NAME)}"):
            answer = page.goto(server.address + address)
            assert answer.status == 200
            until(page, "document.getElementById('live').textContent === 'live'")
            assert page.evaluate("window.pwned") is None
            assert page.locator("img").count() == 0
        assert page.complaints == []


def test_a_page_says_when_its_server_has_ended(chromium: Any, folder: Path) -> None:
    with serving(folder) as server:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(server.address)
    until(page, "document.getElementById('live').textContent === 'egg view has ended'")
    context.close()
