"""Names of unusual inputs, apart from what makes them: processes without PyTorch name them in settings."""

from __future__ import annotations

OFFSET, HUGE, MINUTE = "offset", "huge", "minute"
ZEROS, LEVEL, TIES = "slices of zeros", "constant slices", "equal values"
LARGEST, LEAST, SORTED = "near the largest of the type", "near the least of the type", "sorted"
NEAR, PERIODIC = "values next to the extremes", "the largest values at a period"
UNUSUAL = (OFFSET, HUGE, MINUTE, ZEROS, LEVEL, TIES, LARGEST, LEAST, SORTED, NEAR, PERIODIC)
