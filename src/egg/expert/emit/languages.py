"""The languages that kernels are written in."""

from __future__ import annotations

from egg.expert.emit.language import Language
from egg.expert.emit.triton.language import TRITON

LANGUAGES: tuple[Language, ...] = (TRITON,)
