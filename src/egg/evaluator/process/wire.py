"""JSON messages, and file descriptors beside them, over a Unix socket."""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any

MAX_MESSAGE = 32 << 20
_HEADER = struct.Struct("!I")


class WireClosed(Exception):
    """The other side is gone, or does not speak the protocol."""


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

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        fds: list[int] = []
        size = _HEADER.unpack(self._exactly(_HEADER.size, fds))[0]
        if size > MAX_MESSAGE:
            raise WireClosed(f"a message of {size} bytes is over the limit of {MAX_MESSAGE}")
        body = self._exactly(size, fds)
        try:
            message = json.loads(body)
        except ValueError as error:
            raise WireClosed(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise WireClosed("not a JSON object")
        return message, fds

    def _exactly(self, count: int, fds: list[int]) -> bytes:
        data = bytearray()
        while len(data) < count:
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
