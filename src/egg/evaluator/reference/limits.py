"""What a program asks of its types, and the same answers for a run in another.

``torch.finfo(x.dtype).eps`` is 1.2e-7 in fp32 and 2.2e-16 in fp64, and a root mean square norm without a
guard of its own takes that one: so a run in fp64 is another program wherever a guard or a step is such a
number. Its distance from the reference would be taken for rounding, and every candidate allowed as much. So
what the reference asked is noted, and where that was one type, the exacter run is told of the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

FINFO, RMS_NORM = torch.finfo, torch.rms_norm
NORM_COMPUTES_IN = torch.float32
"""Whatever narrower type its rows have: the guard that such a norm takes is that of this type."""

STEPS = frozenset({"eps", "resolution", "smallest_normal", "tiny"})


class Asked:
    """The types that the reference's last run asked of, and those of rows that it normed without a guard."""

    def __init__(self, *, ever: bool = False) -> None:
        self.kinds: set[torch.dtype] = set()
        self.normed: set[torch.dtype] = set()
        self.ever = ever
        """Whether any run asked: then the reference runs first."""

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """While the reference runs."""
        self.kinds, self.normed = set(), set()

        def finfo(*args: Any, **kwargs: Any) -> Any:
            found = FINFO(*args, **kwargs)
            self.kinds.add(getattr(torch, found.dtype))
            return found

        def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
            if eps is None:
                self.normed.add(input.dtype)
            return RMS_NORM(input, normalized_shape, weight, eps)

        with _in_place_of(finfo, rms_norm):
            yield
        self.ever |= bool(self.kinds or self.normed)

    @contextlib.contextmanager
    def answered(self, wide: torch.dtype) -> Iterator[None]:
        """While the program runs in ``wide``: asked of that, it is told of what the reference asked of."""
        kind = next(iter(self.kinds)) if len(self.kinds) == 1 else wide
        guard = None if wide in self.normed else FINFO(NORM_COMPUTES_IN).eps

        def finfo(*args: Any, **kwargs: Any) -> Any:
            found = FINFO(*args, **kwargs)
            return _Told(FINFO(kind), found) if found.dtype == FINFO(wide).dtype else found

        def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
            return RMS_NORM(input, normalized_shape, weight, guard if eps is None else eps)

        if not self.kinds and not self.normed:
            yield
            return
        with _in_place_of(finfo, rms_norm):
            yield


class _Told:
    """The steps of a narrow type, and the range of the wide one: what is masked by the least number of a type
    stays beyond all that the narrow one holds, and is compared as a mask."""

    def __init__(self, narrow: torch.finfo, wide: torch.finfo) -> None:
        self._narrow, self._wide = narrow, wide

    def __getattr__(self, name: str) -> Any:
        return getattr(self._narrow if name in STEPS else self._wide, name)


@contextlib.contextmanager
def _in_place_of(finfo: Any, rms_norm: Any) -> Iterator[None]:
    """Meanwhile PyTorch has these; what asks through a name of its own is not heard."""
    before = torch.finfo, torch.rms_norm
    torch.finfo, torch.rms_norm = finfo, rms_norm
    try:
        yield
    finally:
        torch.finfo, torch.rms_norm = before
