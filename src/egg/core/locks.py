"""The lock of an open file, which is the kernel's and ends with the process that holds it.

A holder that is killed, by whatever signal, holds nothing any more, so there is no stale lock to clean up.
"""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

from egg.core.errors import MachineError

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What file systems without locks answer."""


def try_lock(handle: int, place: Path, hint: str) -> bool:
    """Take the exclusive lock of an open file at once; false where another process has it.

    Raises :class:`MachineError` where the file system of ``place`` has no locks; ``hint`` says what to do.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as reason:
        if reason.errno not in NO_LOCKS:
            raise
        raise MachineError(f"the file system of {place} has no locks", hint) from None
    return True
