"""The untrusted side: the process in which candidate code runs.

It obeys a handful of commands and answers each with facts; it decides nothing. Whatever it
says may be forged by the candidate, so the oracle believes only bytes in its own memory,
its own clock, and refusals.
"""

from __future__ import annotations

import os

from egg.evaluator.transport.wire import Channel, WireClosed
from egg.evaluator.worker.session import Session


def main(channel: Channel, means: list[str]) -> None:
    """Serve commands until the oracle hangs up."""
    channel.send({"id": 0, "pid": os.getpid(), "sandbox": means})

    def announce(idle: bool) -> None:
        channel.send({"apart": idle})
        if not idle:
            channel.receive()

    session = Session(announce)
    while True:
        try:
            request, fds = channel.receive()
        except WireClosed:
            return
        channel.send({"id": request["id"], **session.serve(request, fds)})
