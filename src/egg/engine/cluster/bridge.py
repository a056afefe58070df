"""The process that talks to Ray: ``python -m egg.engine.cluster.bridge FD OPTIONS``.

It hears jobs and says answers over a socket, one JSON object each:

- in: ``{"ticket", "job", "line"}``, the line as in a jobs file;
- out: ``{"connected"}`` once, ``{"ready", "judges"}`` when it can begin and whenever the number of judges
  changes, ``{"ticket", "line"}`` for an answer, ``{"note"}`` for people, ``{"refused"}`` for an error that
  ends it.

It ends when the other side hangs up, and its actors with it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import egg
from egg.core.codec import from_json
from egg.core.error_json import error_to
from egg.core.errors import EggError, UsageError
from egg.engine.cluster.actor import Kind
from egg.engine.cluster.slots import Cluster, Work
from egg.evaluator.transport.wire import Channel, WireClosed

LOOK_SECONDS = 2.0
"""Between two looks at the nodes of the cluster."""
NOT_SENT = ["**/__pycache__", "**/knowledge/skills", "**/agents/prompts"]
"""Of this package: nothing that judges needs it."""

Event = Callable[[], None]


def main(channel: Channel, options: dict[str, Any]) -> None:
    try:
        ray = _connect(options["address"])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's own handler may raise into anything
        channel.send({"connected": True})
        _serve(ray, channel, options)
    except EggError as error:
        with contextlib.suppress(WireClosed):
            channel.send({"refused": error_to(error)})
    except WireClosed:
        pass


def _connect(address: str) -> Any:
    """Join the cluster; this package goes to its nodes."""
    import ray
    import ray.util.scheduling_strategies

    sent = {"py_modules": [str(Path(egg.__file__).parent)], "excludes": NOT_SENT}
    try:
        ray.init(address=address, runtime_env=sent, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        cause = " ".join(str(error).split())
        raise UsageError(
            f"cannot join the Ray cluster at {address!r}: {cause[:400]}",
            "on a machine of the cluster use auto or HOST:PORT of its head, elsewhere ray://HOST:10001; "
            "Python and Ray must be of the same versions here and there",
        ) from error
    return ray


def _serve(ray: Any, channel: Channel, options: dict[str, Any]) -> None:
    """Do what comes from either side, in the order it comes, until the pool hangs up."""
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    kind = from_json(Kind, options["kind"]) if options["kind"] else None
    module, name = options["judge"].split(":")
    judge = getattr(importlib.import_module(module), name)
    cluster = Cluster(ray, judge, options["device"], kind, options["patience"], channel.send, events.put)
    threading.Thread(target=_listen, args=(channel, cluster, events), daemon=True).start()
    try:
        look = 0.0
        while True:
            if time.monotonic() >= look:
                cluster.refresh()
                look = time.monotonic() + LOOK_SECONDS
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=max(0.0, look - time.monotonic()))
                if event is None:
                    return
                event()
    finally:
        with contextlib.suppress(Exception):  # of a cluster that is gone
            cluster.close()
            ray.shutdown()


def _listen(channel: Channel, cluster: Cluster, events: queue.SimpleQueue[Event | None]) -> None:
    with contextlib.suppress(WireClosed):
        while True:
            message, _ = channel.receive()
            work = Work(message["ticket"], message["job"], message["line"])
            events.put(lambda work=work: cluster.take(work))
    events.put(None)


if __name__ == "__main__":
    main(Channel(socket.socket(fileno=int(sys.argv[1]))), json.loads(sys.argv[2]))
