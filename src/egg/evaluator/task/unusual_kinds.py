"""The names of unusual inputs, apart from what makes them: settings name them in processes without PyTorch."""

from __future__ import annotations

OFFSET, HUGE, MINUTE = "offset", "huge", "minute"
ZEROS, LEVEL, TIES = "slices of zeros", "constant slices", "equal values"
UNUSUAL = (OFFSET, HUGE, MINUTE, ZEROS, LEVEL, TIES)
