"""Put something else in an attribute's place for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Set ``attributes`` on ``owner`` and put back exactly what its own dictionary held before.

    An attribute the owner did not hold itself (an inherited one, a cached property not yet
    computed) is deleted again, so that nothing of the replacement is left behind.
    """
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in attributes:
            if name in before:
                setattr(owner, name, before[name])
            elif name in vars(owner):
                delattr(owner, name)
