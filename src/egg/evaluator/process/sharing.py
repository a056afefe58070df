"""Several judges on one GPU: they use it together, or one of them has it alone, and its memory is rationed.

Judges may be unrelated processes of one user, so they meet in files: advisory locks in a
folder of the user's, one folder per GPU. A lock vanishes with the process that holds it,
however that ends, so nothing has to be cleaned up.

*Together or alone.* What is measured must be measured alone; everything else may overlap.
A judge that wants the GPU alone holds the lock ``door`` shared and waits for the lock ``room``; a judge
that comes in together with others takes the door exclusively for a moment. So no judge enters while
another waits to be alone, and all that wait for it have their turn, one after another, before the others
come back. None starves: a judge that was alone must come in together with others before it can be alone
again. All judges wait until the slowest of those inside has left, so none stays inside for work that does
not use the GPU: a judge leaves at its next request or run of the reference (:meth:`SharedGpu.give_way`), and
for as long as something is compiled or built on the CPU (:meth:`SharedGpu.apart`).

*Memory.* There are :data:`SLOTS` slots. A question takes as many as the memory it needs for
as long as it is judged: all of them at once, or none. Smaller questions may overtake it meanwhile, for
:data:`OVERTAKEN_SECONDS`; from then on the judge holds the lock ``admission`` and what becomes free. So two
judges that both lack some never wait for each other, and one that needs all of them gets them.

Locks are tried again and again instead of waited for: a process that waits can be ended by a
signal, and tells that it waits, so that waiting is not taken for a judge that hangs.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch

from egg.core.errors import MachineError

SLOTS = 64
"""Few enough to look at twenty times a second, so many that a small question wastes little of one."""
POLL_SECONDS = 0.005
ADMISSION_SECONDS = 0.05
"""Between two looks at the slots."""
OVERTAKEN_SECONDS = 30.0
"""How long smaller questions may overtake one that lacks memory: about as long as one is judged."""
TELL_SECONDS = 1.0
FORGOTTEN_SECONDS = 60.0
"""After which a file that marks a judge, and that no process holds, is removed."""

ELSEWHERE = "set TMPDIR to a folder that this user can write to, the same for all who judge on this GPU"

OnWait = Callable[[float], None]
"""Hears, while there is waiting and at its end, how many seconds have been waited since it last heard."""


class Use(StrEnum):
    """What a judge does with the GPU right now."""

    NOTHING = "nothing"
    TOGETHER = "together"
    ALONE = "alone"


class Wait(StrEnum):
    """What a judge waits for."""

    MEMORY = "memory"
    """Slots."""
    QUIET = "quiet"
    """The GPU alone."""
    TURN = "turn"
    """The end of what others measure."""


class Sharing(Protocol):
    """A place on a GPU."""

    @property
    def waits(self) -> Mapping[Wait, float]:
        """Seconds spent waiting for others, so far."""
        ...

    def together(self) -> None:
        """Use the GPU beside others from now on."""
        ...

    def alone(self) -> None:
        """Have the GPU alone from now on. A judge that was inside leaves first, or two would block."""
        ...

    def leave(self) -> None:
        """Use it no longer."""
        ...

    def give_way(self) -> None:
        """Let those in who wait to be alone, if this judge is not; nothing of ours runs meanwhile."""
        ...

    def apart(self) -> AbstractContextManager[None]:
        """For work that leaves the GPU alone: others need not wait for its end."""
        ...

    def admitted(self, nbytes: int | None) -> AbstractContextManager[None]:
        """Memory for one question: so much of it, half where the need is unknown, or all that there is."""
        ...

    def crowded(self) -> bool:
        """Whether other judges live on this GPU, busy or not."""
        ...

    def close(self) -> None: ...


def place_on(device: torch.device, on_wait: OnWait = lambda _: None) -> Sharing:
    """A place on ``device``; a CPU is not shared out: nothing is measured there."""
    if device.type != "cuda":
        return Unshared()
    seen = torch.cuda.get_device_properties(device)
    return SharedGpu(
        folder_for(_identity(seen, device)),
        seen.total_memory,
        on_wait,
        lambda: torch.cuda.synchronize(device),
    )


def folder_for(identity: str) -> Path:
    """The folder of one GPU's locks, made if need be: this user's, and closed to everybody else."""
    home = Path(os.environ.get("EGG_GPU_LOCKS") or Path(tempfile.gettempdir()) / f"egg-gpus-{os.getuid()}")
    folder = home / re.sub(r"[^A-Za-z0-9.-]+", "-", identity)
    for place in (home, folder):
        try:
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
            found = place.lstat()
        except OSError as reason:
            raise MachineError(f"no place for the locks of a GPU: {reason}", ELSEWHERE) from reason
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise MachineError(f"{place} is not a folder of this user alone", f"remove it, or {ELSEWHERE}")
    return folder


def _identity(seen: object, device: torch.device) -> str:
    """What the GPU is called whatever its index: two processes may see different ones of several."""
    name = getattr(seen, "uuid", None)
    if name:
        return str(name)
    bus = [getattr(seen, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return f"index-{device.index or 0}" if bus[1] is None else "pci-" + "-".join(str(part) for part in bus)


class Lock:
    """One file of the folder, and whether this process holds a lock on it.

    It is opened anew for every try: a file that was removed must not be locked any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def take(self, *, exclusive: bool) -> bool:
        """Try, without waiting. A lock that is held is kept as it is."""
        if self._fd is not None:
            return True
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a forked helper may have inherited the file
            os.close(fd)


class SharedGpu:
    """One judge's place on a GPU that others use too."""

    def __init__(
        self,
        folder: Path,
        total_bytes: int,
        on_wait: OnWait = lambda _: None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """``settle`` waits until the GPU has done what this process asked of it."""
        self.waits = dict.fromkeys(Wait, 0.0)
        self.use = Use.NOTHING
        self._total, self._on_wait, self._settle = total_bytes, on_wait, settle
        self._door, self._room = Lock(folder / "door"), Lock(folder / "room")
        self._admission = Lock(folder / "admission")
        self._slots = [Lock(folder / f"slot-{index}") for index in range(SLOTS)]
        self._folder = folder
        self._present = Lock(folder / f"present-{os.getpid()}-{secrets.token_hex(4)}")
        # another judge may be testing whether we live
        self._await(lambda: self._present.take(exclusive=True), Wait.TURN)

    def together(self) -> None:
        self._enter(Use.TOGETHER, Wait.TURN)

    def alone(self) -> None:
        self._enter(Use.ALONE, Wait.QUIET)

    def _enter(self, use: Use, wait: Wait) -> None:
        """Take both locks, the door first. A judge that shares the room gives the door back; one that is
        alone in it keeps the door shared, with the judges that wait to be alone next."""
        if self.use is use:
            return
        self.leave()
        shared = use is Use.TOGETHER
        with self._undone_unless_done():
            self._await(lambda: self._door.take(exclusive=shared), wait)
            self._await(lambda: self._room.take(exclusive=not shared), wait)
            if shared:
                self._door.release()
            self.use = use

    def leave(self) -> None:
        if self.use is Use.NOTHING:
            return
        try:
            self._settle()
        finally:
            self.use = Use.NOTHING
            self._out()

    def _out(self) -> None:
        for lock in (self._room, self._door):
            lock.release()

    def give_way(self) -> None:
        if self.use is not Use.TOGETHER:
            return
        if self._door.take(exclusive=True):
            self._door.release()
        else:
            self.leave()
            self.together()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        if self.use is not Use.TOGETHER:
            yield
            return
        self.leave()
        try:
            yield
        except Exception:  # what ends the process does not wait to be let in
            self.together()
            raise
        self.together()

    @contextlib.contextmanager
    def admitted(self, nbytes: int | None) -> Iterator[None]:
        count = slots_for(nbytes, self._total)
        taken: list[Lock] = []
        try:
            pause, memory = ADMISSION_SECONDS, Wait.MEMORY
            if not self._await(lambda: self._at_once(taken, count), memory, pause, OVERTAKEN_SECONDS):
                try:
                    self._await(lambda: self._admission.take(exclusive=True), memory)
                    self._await(lambda: self._gathered(taken, count), memory, pause)
                finally:
                    self._admission.release()
            yield
        finally:
            for slot in taken:
                slot.release()

    def _at_once(self, taken: list[Lock], count: int) -> bool:
        """All slots or none: a judge that lacks some keeps no other waiting."""
        if not self._admission.take(exclusive=True):
            return False
        try:
            if self._gathered(taken, count):
                return True
            while taken:
                taken.pop().release()
            return False
        finally:
            self._admission.release()

    def _gathered(self, taken: list[Lock], count: int) -> bool:
        for slot in self._slots:
            if len(taken) < count and slot not in taken and slot.take(exclusive=True):
                taken.append(slot)
        return len(taken) == count

    def crowded(self) -> bool:
        for path in self._folder.glob("present-*"):
            if path == self._present.path:
                continue
            try:
                age = time.time() - path.stat().st_mtime
            except FileNotFoundError:
                continue
            other = Lock(path)
            if not other.take(exclusive=False):
                return True
            if age > FORGOTTEN_SECONDS:
                path.unlink(missing_ok=True)
            other.release()
        return False

    def close(self) -> None:
        self.leave()
        self._present.path.unlink(missing_ok=True)
        self._present.release()

    @contextlib.contextmanager
    def _undone_unless_done(self) -> Iterator[None]:
        """An end in the middle of coming in (a signal, a socket that was closed) leaves no lock behind."""
        try:
            yield
        finally:
            if self.use is Use.NOTHING:
                self._out()

    def _await(
        self,
        attempt: Callable[[], bool],
        reason: Wait,
        pause: float = POLL_SECONDS,
        limit: float = math.inf,
    ) -> bool:
        """Try until it succeeds, or for ``limit`` seconds; whether it did."""
        began = since = time.monotonic()
        if attempt():
            return True
        while True:
            time.sleep(pause)
            done = attempt()
            now = time.monotonic()
            ended = done or now - began >= limit
            if ended or now - since >= TELL_SECONDS:
                self.waits[reason] += now - since
                self._on_wait(now - since)
                since = now
            if ended:
                return done


class Unshared:
    """A device that no other judge uses: every request is granted."""

    waits: Mapping[Wait, float] = MappingProxyType(dict.fromkeys(Wait, 0.0))

    def together(self) -> None:
        pass

    def alone(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def give_way(self) -> None:
        pass

    def apart(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def admitted(self, nbytes: int | None) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def crowded(self) -> bool:
        return False

    def close(self) -> None:
        pass


def slots_for(nbytes: int | None, total: int) -> int:
    """How many slots stand for ``nbytes`` of ``total``: at least one, at most all, half for the unknown."""
    if nbytes is None:
        return SLOTS // 2
    return max(1, min(SLOTS, math.ceil(nbytes / max(total, 1) * SLOTS)))
