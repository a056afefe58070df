"""The server of ``egg view``: it listens on this machine's loopback address and only answers questions.

A web page that the reader has open elsewhere can make the browser on this machine ask. Against such
a page stand three things. The ``Host`` of a request must be ours, so a name that an attacker points at
127.0.0.1 is refused (DNS rebinding). Answers may not be read, framed or embedded by another origin. And
nothing here writes: only ``GET`` and ``HEAD`` are known, and addresses name places of a :class:`PlaceIndex`.
"""

from __future__ import annotations

import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from egg import __version__
from egg.cli.view_index import PlaceIndex
from egg.cli.view_pages import Pages
from egg.core.errors import EggError

LOOPBACK = "127.0.0.1"
REQUEST_SECONDS = 15
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
VIEWS = {"/": "", "/run": "run", "/log": "log", "/bench": "bench", "/runs": "runs", "/output": "output"}


class ViewServer(ThreadingHTTPServer):
    """Serves the runs and benches of one index until it is shut down."""

    daemon_threads = True

    def __init__(self, index: PlaceIndex, port: int) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.pages = Pages(index)
        self.turn = threading.Lock()
        """Pages are made one at a time: several would only share the same core."""
        self.hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who went away is no fault; anything else is shown where the server was started."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: ViewServer  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = f"egg/{__version__}"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            return self._text(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to its own address only.")
        asked = urlsplit(self.path)
        view = VIEWS.get(asked.path)
        if view is None:
            return self._text(HTTPStatus.NOT_FOUND, "There is no such page.")
        name = parse_qs(asked.query, keep_blank_values=True).get("at", [""])[-1]
        try:
            with self.server.turn:
                found = self.server.pages.answer(view, name, self.headers.get("If-None-Match", ""))
        except EggError as error:
            return self._text(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n{error.hint}")
        if found is None:
            return self._text(HTTPStatus.NOT_FOUND, "There is no such run or bench in the folder.")
        if not found.html:
            return self._answer(HTTPStatus.NOT_MODIFIED, b"", "text/html", found.tag)
        return self._answer(HTTPStatus.OK, found.html.encode("utf-8", "replace"), "text/html", found.tag)

    do_HEAD = do_GET

    def _text(self, status: HTTPStatus, words: str) -> None:
        self._answer(status, words.encode("utf-8", "replace"), "text/plain")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"
                         if kind == "text/plain" else "frame-ancestors 'none'")  # fmt: skip
        if tag:
            self.send_header("ETag", tag)
        if status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a page asks every other second."""
