"""Runs parts of a graph in the mended interpreter, so that a pattern can be tested before there are whole
files.

Whether a kernel is interpreted is decided in the process that decorates it, so kernels run in a worker
process that stays for all tests of this process: a request is a module's source with inputs and parameters,
a reply its outputs or what went wrong.
"""

from __future__ import annotations

import atexit
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from egg.expert.emit.triton.language import TRITON
from egg.expert.graph import Graph
from egg.expert.parts import Part

ROOT = Path(__file__).parents[2]


class Failed(AssertionError):
    """The kernel did not run."""


def source(graph: Graph, parts: Sequence[Part]) -> str:
    """A module with the parts' kernels and a ``forward``; not the file the team writes, but near to it."""
    lines = ["import torch", "import torch.nn as nn", *TRITON.imports, ""]
    lines += [f"{c.name} = {c.value!r}" for part in parts for c in part.constants]
    texts: dict[str, str] = {}
    for part in parts:
        for name, text in {**part.helpers, **part.kernels}.items():
            assert texts.setdefault(name, text) == text, f"two texts under the name {name}"
    lines += ["", *texts.values()]
    arguments = [graph.value(name).name for name in graph.arguments if name is not None]
    lines += [f"def forward(self, {', '.join(arguments)}):"]
    lines += [f"    {name} = {text}" for name, text in graph.symbols.items()]
    lines += [f"    {line}" for part in parts for line in part.call]
    lines += [f"    return [{', '.join(graph.results)}]", ""]
    return "\n".join(lines)


def run(
    graph: Graph, parts: Sequence[Part], inputs: Sequence[Any], parameters: Mapping[str, Any] | None = None
) -> list[Any]:
    """What ``forward`` returns, one tensor per result of the graph."""
    return execute(source(graph, parts), inputs, parameters or {})


def execute(text: str, inputs: Sequence[Any], parameters: Mapping[str, Any]) -> list[Any]:
    import torch

    reply = _worker().ask({"text": text, "inputs": list(inputs), "parameters": dict(parameters)})
    if "error" in reply:
        raise Failed(f"{reply['error']}\n{text}")
    assert all(isinstance(out, torch.Tensor) for out in reply["outputs"])
    return reply["outputs"]


class _Worker:
    def __init__(self) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        )
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        atexit.register(self._process.kill)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, request)
        return _receive(self._process.stdout)


@cache
def _worker() -> _Worker:
    return _Worker()


def _send(stream: Any, message: dict[str, Any]) -> None:
    import torch

    buffer = io.BytesIO()
    torch.save(message, buffer)
    data = buffer.getvalue()
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def _receive(stream: Any) -> dict[str, Any]:
    import torch

    head = stream.read(8)
    if len(head) < 8:
        raise Failed("the worker died")
    data = stream.read(int.from_bytes(head, "big"))
    return torch.load(io.BytesIO(data), weights_only=False)


def _serve() -> None:
    from egg.evaluator.interpreter import install

    session = install()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels print must not meet the replies
    stdin = os.fdopen(os.dup(0), "rb")
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            try:
                request = _receive(stdin)
            except Failed:
                return
            count += 1
            path = Path(folder) / f"module{count}.py"
            path.write_text(request["text"])
            _send(out, _answer(session, path, request))


class _Everything:
    """Every signature is in it: what stands for a module here has no guard."""

    def __contains__(self, signature: object) -> bool:
        return True


def _answer(session: Any, path: Path, request: dict[str, Any]) -> dict[str, Any]:
    import importlib.util
    import traceback
    from types import SimpleNamespace

    owner = SimpleNamespace(
        packed=lambda pack, weight, *sizes: pack(weight, *sizes), admitted=_Everything(), modes=list
    )
    for name, tensor in request["parameters"].items():
        *way, last = name.split(".")
        place = owner
        for step in way:
            if not hasattr(place, step):
                setattr(place, step, SimpleNamespace())
            place = getattr(place, step)
        setattr(place, last, tensor)
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        import torch

        if hasattr(module, "ModelNew"):
            _lend_launches(owner, module.ModelNew)
        with torch.no_grad():
            outputs = module.forward(owner, *request["inputs"])
        return {"outputs": outputs}
    except Exception:
        return {"error": traceback.format_exc()}


def _lend_launches(owner: Any, model: type) -> None:
    """A file that replays its launches makes them in a method of their own."""
    launches = getattr(model, "launches", None)
    if launches is not None:
        owner.launches = partial(launches, owner)


if __name__ == "__main__":
    _serve()
