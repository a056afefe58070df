"""JSON messages, and file descriptors beside them, over a Unix socket."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import time
from typing import Any

MAX_MESSAGE = 32 << 20
_HEADER = struct.Struct("!I")


class WireClosed(Exception):
    """The other side is gone, or does not speak the protocol."""


class WireGarbled(WireClosed):
    """What came is not the protocol: too long, not JSON, not an object."""


class Channel:
    """One end of a stream socket that carries length-prefixed JSON objects."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return Channel(a), Channel(b)

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        body = json.dumps(message).encode()
        data = _HEADER.pack(len(body)) + body
        try:
            if fds:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                sent = self.sock.sendmsg([data], rights)
                data = data[sent:]
            self.sock.sendall(data)
        except OSError as error:
            raise WireClosed(str(error)) from error

    def receive(
        self, deadline: float | None = None, limit: int = MAX_MESSAGE
    ) -> tuple[dict[str, Any], list[int]]:
        """The next message; ``deadline`` holds for all of it, however slowly its bytes come."""
        fds: list[int] = []
        try:
            return self._message(fds, deadline, limit), fds
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _message(self, fds: list[int], deadline: float | None, limit: int) -> dict[str, Any]:
        size = _HEADER.unpack(self._exactly(_HEADER.size, fds, deadline))[0]
        if size > limit:
            raise WireGarbled(f"a message of {size} bytes is over the limit of {limit}")
        body = self._exactly(size, fds, deadline)
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise WireGarbled(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise WireGarbled("not a JSON object")
        return message

    def _exactly(self, count: int, fds: list[int], deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < count:
            if deadline is not None:
                self.sock.settimeout(max(0.05, deadline - time.monotonic()))
                if time.monotonic() > deadline + 0.05:
                    raise TimeoutError("the message did not end in time")
            try:
                part, rights, _, _ = self.sock.recvmsg(count - len(data), socket.CMSG_SPACE(16 * 4))
            except (TimeoutError, InterruptedError):
                raise
            except OSError as error:
                raise WireClosed(str(error)) from error
            for level, kind, payload in rights:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    whole = len(payload) - len(payload) % 4
                    fds.extend(array.array("i", payload[:whole]))
            if not part:
                raise WireClosed("end of stream")
            data += part
        return bytes(data)

    def close(self) -> None:
        self.sock.close()
