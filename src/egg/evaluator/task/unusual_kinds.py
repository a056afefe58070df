"""Names of unusual inputs, apart from what makes them: processes without PyTorch name them in settings."""

from __future__ import annotations

OFFSET, HUGE, MINUTE = "offset", "huge", "minute"
ZEROS, LEVEL, TIES = "slices of zeros", "constant slices", "equal values"
UNUSUAL = (OFFSET, HUGE, MINUTE, ZEROS, LEVEL, TIES)
