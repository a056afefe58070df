"""Landlock: the kernel's own sandbox for a process that asks for it.

A ruleset names the folders that stay readable and the one that stays writable; every other
path, TCP, and signals to processes outside are denied from then on, for this process and
all it starts. Newer kernels know more access rights, so the ruleset is cut to the ABI that
is present. See ``landlock(7)`` for the numbers.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FS_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)
_NET_RIGHTS = 0b11
_SCOPES = 0b11


def abi() -> int:
    """The Landlock ABI of the running kernel; 0 where there is none."""
    return max(0, _libc().syscall(_CREATE, None, 0, 1))


def restrict(readable: Iterable[str], writable: Iterable[str], *, tcp: bool = False) -> bool:
    """Confine this process for good; TCP is denied too, unless ``tcp``. Returns whether the kernel could."""
    version = abi()
    if version < 1:
        return False
    handled = _FS_RIGHTS_BY_ABI[min(version, 5)]
    network = _NET_RIGHTS if version >= 4 and not tcp else 0
    attributes = struct.pack("QQQ", handled, network, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _libc().syscall(_CREATE, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(ruleset, path, _READ & handled)
        for path in writable:
            _allow(ruleset, path, handled)
        return _libc().syscall(_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Grant ``rights`` below ``path``; a path that is not there needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, handle)
        if _libc().syscall(_ADD, ruleset, 1, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
    finally:
        os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
