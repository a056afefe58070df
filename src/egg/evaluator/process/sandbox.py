"""Confinement of a process that runs other people's code, by whatever means the machine offers.

In order: a network namespace, another user, resource limits, no new privileges, Landlock.
Each is tried on its own; what took hold is reported, so that a result says how its
candidate was confined. PID namespaces are left out on purpose: CUDA will not start in one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import os
import resource
import secrets
import site
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from egg.evaluator.process import landlock

_NEWNET, _NEWIPC, _NEWUSER = 0x40000000, 0x08000000, 0x10000000
_PDEATHSIG, _DUMPABLE, _KEEPCAPS, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 8, 36, 38
_SET_INTERFACE_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_CAPABILITY_V3 = 0x20080522
_DAC_READ_SEARCH = 1 << 2
_SETUID = 1 << 7

GIB = 1 << 30
FIRST_UID, UIDS = 1_000_000_000, 900_000_000
DEVICE_WRITABLE = ("/dev", "/proc")
"""CUDA opens its devices, and its own entries below /proc, for writing; user ids guard the others."""
SYSTEM_READABLE = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/opt",
    "/sys",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
)
"""Of ``/etc`` only what the dynamic loader, the clock and name lookups read: passwords and keys lie there."""
PYTHON_SETTINGS = "/etc/python3*"
"""Where Debian keeps ``sitecustomize``, which every interpreter imports."""


@dataclass(frozen=True)
class Limits:
    """Hard limits of one candidate process tree."""

    address_space: int | None
    """Bytes beyond what is mapped at the start; ``None`` where CUDA needs room to reserve."""
    resident: int
    """Bytes of resident memory, watched from outside."""
    processes: int = 64
    open_files: int = 512
    file_size: int = 1 << 30
    output: int = 4 << 20
    """Bytes a candidate may print."""


def limits_for(kind: str) -> Limits:
    """What one candidate may take on a machine with a GPU (``cuda``), or without one."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if kind == "cuda":
        return Limits(address_space=None, resident=min(32 * GIB, ram // 2), processes=256, open_files=1024)
    return Limits(address_space=min(8 * GIB, ram // 2), resident=min(8 * GIB, ram // 2))


def die_with_parent(signal_number: int) -> None:
    _libc().prctl(_PDEATHSIG, signal_number, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the one that inherits every orphaned descendant."""
    _libc().prctl(_SUBREAPER, 1, 0, 0, 0)


def hide_memory() -> None:
    """Keep other processes of the same user from reading this one's memory."""
    _libc().prctl(_DUMPABLE, 0, 0, 0, 0)


def confine(
    scratch: str,
    uid: int | None,
    limits: Limits,
    *,
    watched: bool = False,
    writable: Sequence[str] = (),
) -> list[str]:
    """Confine this process for good; returns the means that took hold.

    A process that a tool of NVIDIA's watches talks to the tool over loopback and the common
    temporary folder: ``watched`` leaves it those, inside its own network namespace. ``writable`` are folders
    beside ``scratch`` that stay open.
    """
    means: list[str] = []
    private = _private(_python())
    if _unshare(_NEWNET | _NEWIPC) or _unshare(_NEWUSER | _NEWNET | _NEWIPC):
        means.append("network namespace")
        if watched:
            _loopback_up()
    if uid is not None:
        _become(uid)
        means.append("own user")
    if uid is not None or os.geteuid() == 0:
        _keep_capabilities(_DAC_READ_SEARCH if private and landlock.abi() else 0)
    _set_limits(limits, others=0 if uid is not None else _threads_of(os.getuid()))
    means.append("rlimits")
    if _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        means.append("no new privileges")
    shared = (tempfile.gettempdir(),) if watched else ()
    if landlock.restrict(_readable(), (scratch, *shared, *writable, *DEVICE_WRITABLE), tcp=watched):
        means.append("landlock")
    return means


def free_uid() -> int | None:
    """A user id that no other process has, where we may choose one: what runs under it is the candidate's."""
    able = os.geteuid() == 0 and _capabilities() & _SETUID
    return FIRST_UID + secrets.randbelow(UIDS) if able else None


def reads_everything() -> bool:
    """Whether this process may read files whatever their permissions say."""
    return bool(_capabilities() & _DAC_READ_SEARCH)


def _capabilities() -> int:
    with open("/proc/self/status") as status:
        return next((int(line.split()[1], 16) for line in status if line.startswith("CapEff:")), 0)


def _python() -> list[str]:
    """Where the interpreter and its modules lie."""
    places = {sys.prefix, sys.base_prefix, *(p for p in sys.path if p), *site.getsitepackages()}
    return sorted(os.path.realpath(p) for p in places)


def _readable() -> tuple[str, ...]:
    return (*SYSTEM_READABLE, *glob.glob(PYTHON_SETTINGS), *_python())


def _private(places: Sequence[str]) -> bool:
    """Whether another user could not get to some of ``places``: an interpreter below a private home."""
    for place in places:
        path = place
        while path not in ("/", ""):
            with contextlib.suppress(OSError):
                wanted = 0o5 if path == place and os.path.isdir(path) else 0o1
                if os.path.isdir(path) and os.stat(path).st_mode & wanted != wanted:
                    return True
            path = os.path.dirname(path)
    return False


def _become(uid: int) -> None:
    """Drop to ``uid`` for good; capabilities are kept until :func:`_keep_capabilities` chooses among them."""
    _libc().prctl(_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _keep_capabilities(keep: int) -> None:
    """Give up every capability but ``keep``: at most the one to read files, which Landlock then narrows.

    Without it an interpreter installed below a private home could not load its own modules.
    """
    header = struct.pack("Ii", _CAPABILITY_V3, 0)
    if _libc().capset(header, struct.pack("IIIIII", keep, keep, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _set_limits(limits: Limits, others: int) -> None:
    """``others`` are the threads that run already under this user: the kernel counts them too."""

    def cap(which: int, value: int) -> None:
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))

    cap(resource.RLIMIT_NPROC, others + limits.processes)
    cap(resource.RLIMIT_NOFILE, limits.open_files)
    cap(resource.RLIMIT_FSIZE, limits.file_size)
    cap(resource.RLIMIT_CORE, 0)
    if limits.address_space is not None:
        cap(resource.RLIMIT_AS, _mapped() + limits.address_space)


def _threads_of(uid: int) -> int:
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_INTERFACE_FLAGS, struct.pack("16sh", b"lo", _UP_AND_RUNNING))


def _mapped() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _unshare(flags: int) -> bool:
    return _libc().unshare(flags) == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
