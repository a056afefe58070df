"""Runs in processes of their own, with a model on loopback: interrupted, and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.engine.scripts import kernel
from tests.test_cli_runs import egg, facts, task

__all__ = ["facts", "task"]

ROOT = Path(__file__).parents[1]


KEY = "sk-do-not-log-0123456789abcdef"

EGG = """
import sys
from egg.api import offline, optimizing
from tests.engine.scripts import FACTS
optimizing.facts_of = lambda *a: FACTS
from egg.cli.app import main
main()
"""


class Endpoint(BaseHTTPRequestHandler):
    """Streams a kernel file that repeats the key it was sent; while ``server.hangs`` it never ends."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        source = kernel("0.5 ms", extra=f"# {self.headers['authorization']}")
        self._piece("```python\n")
        self.server.asked.set()  # type: ignore[attr-defined]
        if self.server.hangs.is_set():  # type: ignore[attr-defined]
            self.server.released.wait(30)  # type: ignore[attr-defined]
            return
        self._piece(source + "\n```")
        end = {"delta": {}, "finish_reason": "stop", "index": 0}
        self._send({"choices": [end], "usage": {"prompt_tokens": 100, "completion_tokens": 50}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _piece(self, text: str) -> None:
        self._send({"choices": [{"delta": {"role": "assistant", "content": text}, "index": 0}]})

    def _send(self, chunk: dict) -> None:
        whole = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", **chunk}
        self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def endpoint() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked, server.hangs, server.released = (threading.Event() for _ in range(3))  # type: ignore[attr-defined]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


def process(*arguments: object) -> subprocess.Popen[str]:
    paths = [str(ROOT), str(ROOT / "src")]
    environ = {**os.environ, "OPENAI_API_KEY": KEY, "PYTHONPATH": os.pathsep.join(paths), "FORCE_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", EGG, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        # A shell that runs the tests in the background may ignore SIGINT, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_go_on_and_does(task, tmp_path, number, code):
    folder = tmp_path / "run"
    with endpoint() as server:
        server.hangs.set()  # type: ignore[attr-defined]
        address = f"http://127.0.0.1:{server.server_port}/v1"
        stopped = process(
            *("optimize", task, "--model", "tiny", "--base-url", address),
            *("--device", "offline", "--out", folder),
        )
        assert server.asked.wait(60)  # type: ignore[attr-defined]
        time.sleep(0.5)  # by then it waits for the reply
        stopped.send_signal(number)
        out, errors = stopped.communicate(timeout=180)
        assert stopped.returncode == code, errors
        assert f"go on with: egg resume {folder}" in errors
        assert "asking coder.seed" in errors
        assert "Traceback" not in errors
        assert out == ""
        if number is signal.SIGTERM:
            return

        server.hangs.clear()  # type: ignore[attr-defined]
        resumed = process("resume", folder, "--json")
        out, errors = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, errors
    printed = json.loads(out)
    assert (printed["waiting"], printed["jobs"], printed["ledger"]["unpriced_calls"]) == ("evaluations", 1, 1)
    assert "coder.seed answered: 150 tokens" in errors
    assert "read back 2 events" in errors
    assert "run double" not in errors
    assert "\x1b" not in errors
    assert "unpriced" in egg("resume", folder).stdout
    for path in folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert KEY not in errors + out
