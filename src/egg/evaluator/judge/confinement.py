"""What an oracle's process gives up before it imports anything that a task could use.

The parents of the candidates' processes need more rights than the oracle: they are started first.
"""

from __future__ import annotations

import os
import signal
import tempfile

from egg.core.errors import MachineError
from egg.evaluator.process import sandbox
from egg.evaluator.process.forkserver import KEPT_FOLDER, begin
from egg.evaluator.process.handle import ForkServer, forkserver_for
from egg.evaluator.process.lasting import lasting
from egg.evaluator.process.starting import as_fork

LOCKS_VARIABLE = "EGG_GPU_LOCKS"
LIMITS = sandbox.Limits(
    address_space=None, resident=1 << 62, processes=4096, open_files=4096, file_size=64 << 30, output=1 << 62
)
"""Of the oracle itself: the reference may need all of the machine's memory."""


def on_gpu(device: str) -> bool:
    return device.startswith("cuda")


def confined(device: str, folder: str, uid: int | None) -> dict[str, ForkServer]:
    """Start the parents of candidates, then give up every right to do so; returns them by kind.

    A confinement holds for threads that are started afterwards, so this process must have one thread.
    """
    os.environ["TMPDIR"] = os.environ[KEPT_FOLDER] = tempfile.tempdir = folder
    forkservers = {"cuda": forkserver_for("cuda", device)} if on_gpu(device) else _forked_forkservers(device)
    scratch = os.path.join(folder, "task")
    os.mkdir(scratch, 0o700)
    if uid is not None:
        os.chown(scratch, uid, uid)
    open_folders = _kept_folders() if on_gpu(device) else ()
    os.environ.update(HOME=scratch, TMPDIR=scratch)
    tempfile.tempdir = scratch
    os.chdir(scratch)
    if len(os.listdir("/proc/self/task")) > 1:
        raise MachineError("the oracle has threads before it is confined", "please report it")
    sandbox.confine(scratch, uid, LIMITS, watched=on_gpu(device), writable=open_folders)
    sandbox.die_with_parent(signal.SIGKILL)  # again: the kernel forgets it when the user changes
    sandbox.hide_memory()
    return forkservers


def _forked_forkservers(device: str) -> dict[str, ForkServer]:
    """Parents of candidates that inherit PyTorch from this process, and the compiling one its compiler too.

    Triton is imported by each of them: whether it interprets is decided then.
    """
    with lasting():
        import torch

        interpret = forkserver_for("interpret", device, as_fork(begin))
        import torch._dynamo  # noqa: F401

        compiling = forkserver_for("compile", device, as_fork(begin))
    return {"interpret": interpret, "compile": compiling}


def _kept_folders() -> tuple[str, ...]:
    """Folders on a machine with a GPU that outlive an oracle: compiled baselines, and locks of judges."""
    folders = [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
    folders.append(os.environ[LOCKS_VARIABLE])
    for folder in folders:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return tuple(folders)
