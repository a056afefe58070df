"""What the containers among arguments hold besides tensors: keys, lengths, numbers, strings.

A caller's dictionary or list is an input as a tensor is: a program goes on with it. The values of tensors in
it are compared elsewhere; here stands only which one it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from egg.core.errors import TaskError

MOST = 200
"""Letters of one value that are shown; two that begin alike are told apart by a hash."""


def contents(arguments: Any) -> dict[str, str]:
    """Each thing among ``arguments`` by its path, in words: ``[1]['step']`` is ``int 3``."""
    return dict(_contents(arguments, ""))


def check_unchanged(task: str, before: Mapping[str, str], arguments: Any) -> None:
    """Raise :class:`TaskError` where a task's own forward has changed what its ``arguments`` held."""
    after = contents(arguments)
    for path in (*before, *(path for path in after if path not in before)):
        was, now = before.get(path, "absent"), after.get(path, "absent")
        if was != now:
            raise TaskError(
                f"task {task!r}: Model.forward changes its inputs: inputs{path} is {now}, it was {was}",
                "make the reference copy containers first: its inputs are compared and reused",
            )


def _contents(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """A container by its kind and its keys in their order, then what it holds."""
    if isinstance(value, torch.Tensor):
        yield path, f"tensor {id(value):#x}"
    elif isinstance(value, Mapping):
        yield path, _shown(f"dict with {', '.join(map(repr, value))}")
        for key, item in value.items():
            yield from _contents(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        yield path, f"{type(value).__name__} of {len(value)}"
        for number, item in enumerate(value):
            yield from _contents(item, f"{path}[{number}]")
    elif isinstance(value, set | frozenset):
        yield path, _shown(f"{type(value).__name__} {sorted(map(repr, value))}")
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield path, _shown(f"{type(value).__name__} {value!r}")
    else:
        yield path, type(value).__name__


def _shown(text: str) -> str:
    return (
        text if len(text) <= MOST else f"{text[:MOST]}... ({len(text)} letters, {hash(text) & 0xFFFF_FFFF:x})"
    )
