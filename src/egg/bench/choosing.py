"""Some tasks of a suite: by level, by number, by name.

Whatever is asked for must be there. A bench over the tasks that happened to match would score something else
than its user meant, so a level or an id that means nothing is refused, with what was probably meant.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence

from egg.bench.listing import Listed
from egg.core.errors import UsageError

_NUMBERS = re.compile(r"(?:[Ll]?(?P<level>\d{1,9})/)?(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")
_SHOWN = 8


def chosen(
    found: Sequence[Listed],
    suite: str,
    *,
    levels: str | Iterable[str | int] | None = None,
    ids: str | Iterable[str | int] | None = None,
) -> list[Listed]:
    """Those of ``found`` in one of ``levels`` and named by one of ``ids``, in the order of ``found``."""
    left = list(found) if levels is None else _of_levels(found, suite, _items(levels, "levels"))
    if ids is None:
        return left
    meant = [_meant(left, suite, word) for word in _items(ids, "ids")]
    keys = {task.key for tasks in meant for task in tasks}
    return [task for task in left if task.key in keys]


def _items(given: str | Iterable[str | int], what: str) -> list[str]:
    """One string is a list with commas; nothing at all is a mistake, not an empty bench."""
    parts = given.split(",") if isinstance(given, str) else map(str, given)
    words = [part.strip() for part in parts if part.strip()]
    if not words:
        raise UsageError(f"no {what} given", f"name some {what}, or leave the option out for all")
    return words


def _of_levels(found: Sequence[Listed], suite: str, words: list[str]) -> list[Listed]:
    present = sorted({task.level for task in found if task.level is not None})
    if not present:
        raise UsageError(
            f"suite {suite!r} has no levels", "choose by ids instead: names, or patterns of names"
        )
    wanted: set[int] = set()
    for word in words:
        match = _NUMBERS.fullmatch(word)
        if match is None or match["level"]:
            raise UsageError(f"not a level: {word!r}", "levels are numbers or ranges: 1,2 or 1-3")
        first, last = _range(match, word)
        named = [level for level in present if first <= level <= last]
        if not named:
            raise UsageError(f"suite {suite!r} has no level {word}", f"it has {', '.join(map(str, present))}")
        wanted.update(named)
    return [task for task in found if task.level in wanted]


def _meant(found: Sequence[Listed], suite: str, word: str) -> list[Listed]:
    """The tasks one id means: a key or name as it stands, then numbers, then a pattern."""
    exact = [task for task in found if word in (task.key, task.name)]
    if exact:
        return exact
    match = _NUMBERS.fullmatch(word)
    if match:
        first, last = _range(match, word)
        level = int(match["level"]) if match["level"] else None
        named = [
            task
            for task in found
            if task.problem is not None
            and first <= task.problem <= last
            and (level is None or task.level == level)
        ]
    else:
        named = [task for task in found if fnmatch.fnmatchcase(task.name, word)]
    if not named:
        raise UsageError(f"suite {suite!r} has no task {word!r} among those chosen", _nearest(found, word))
    return named


def _range(match: re.Match[str], word: str) -> tuple[int, int]:
    first = int(match["first"])
    last = int(match["last"] or first)
    if last < first:
        raise UsageError(f"the range {word} is empty", f"write it upwards: {last}-{first}")
    return first, last


def _nearest(found: Sequence[Listed], word: str) -> str:
    names = [task.name for task in found]
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    keys = [task.key for task in found]
    return f"it has {', '.join(keys[:_SHOWN])}{', ...' if len(keys) > _SHOWN else ''}"
