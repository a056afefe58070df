"""Arguments of ``forward`` that are lists, tuples or dictionaries, and what lies in them.

To a graph every tensor or number in a container is an argument of its own: ``features[0]`` is ``features_0``,
``outputs["boxes"]`` is ``outputs_boxes``. A file has the task's signature; its ``forward`` compares the form
of each container with the captured one and unpacks it, and behind these lines nothing knows of containers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from egg.core.containers import inner_name

Path = tuple[int | str, ...]
"""Where something lies in a call: the argument's place, then keys of containers."""
Key = int | str


@dataclass(frozen=True)
class Container:
    """One list, tuple or dictionary among the arguments of a call."""

    path: Path
    kind: str
    """``list``, ``tuple`` or ``dict``; what derives from one of them is that."""
    keys: tuple[Key, ...]
    """In order; places in a list or tuple."""

    def differs(self, name: str) -> str:
        """The condition that what is called ``name`` has another form."""
        held = f"len({name}) != {len(self.keys)}"
        if self.kind == "dict":
            held = f"[*{name}] != [{', '.join(map(_literal, self.keys))}]"
        return f"not isinstance({name}, {self.kind}) or {held}"

    @property
    def words(self) -> str:
        if self.kind == "dict":
            return f"a dictionary of {', '.join(map(str, self.keys))}"
        return f"a {self.kind} of {len(self.keys)}"


@dataclass(frozen=True)
class Flat:
    """The arguments of a call in a row, without containers."""

    arguments: tuple[tuple[str, Any], ...]
    """By name."""
    paths: Mapping[str, Path]
    containers: tuple[Container, ...]
    """Each before those that it holds."""


def flattened(arguments: Iterable[tuple[str, Any]], taken: Collection[str]) -> Flat:
    """What lies in containers gets names that are neither ``taken`` nor those of ``arguments``."""
    given = list(arguments)
    used = {*taken, *(name for name, _ in given)}
    found: list[tuple[str, Any, Path]] = []
    containers: list[Container] = []
    for place, (name, value) in enumerate(given):
        _flatten(name, value, (place,), used, found, containers)
    rows = tuple((name, value) for name, value, _ in found)
    return Flat(rows, {name: path for name, _, path in found}, tuple(containers))


def _flatten(
    name: str,
    value: Any,
    path: Path,
    used: set[str],
    found: list[tuple[str, Any, Path]],
    containers: list[Container],
) -> None:
    kind = next((kind for kind in (list, tuple, dict) if isinstance(value, kind)), None)
    if kind is None or (isinstance(value, dict) and any(type(key) not in (int, str) for key in value)):
        found.append((name, value, path))
        return
    keys = tuple(value) if isinstance(value, dict) else tuple(range(len(value)))
    containers.append(Container(path, kind.__name__, keys))
    for key, item in zip(keys, value.values() if isinstance(value, dict) else value, strict=True):
        _flatten(inner_name(name, key, used), item, (*path, key), used, found, containers)


def filled(value: Any, items: Iterator[Any]) -> Any:
    """``value`` with the next of ``items`` in the place of each thing that is no container."""
    if isinstance(value, dict):
        if any(type(key) not in (int, str) for key in value):
            return next(items)
        pairs = [(key, filled(item, items)) for key, item in value.items()]
        return dict(pairs) if type(value) is dict else type(value)(pairs)
    if isinstance(value, list | tuple):
        inner = [filled(item, items) for item in value]
        return type(value)(*inner) if hasattr(value, "_fields") else type(value)(inner)
    return next(items)


def values_in(arguments: Sequence[Any]) -> list[Any]:
    """What :func:`flattened` has in a row."""
    return [value for _, value in flattened((("value", value) for value in arguments), ()).arguments]


def subscripted(name: str, path: Path) -> str:
    """``outputs["boxes"][0]``, of a path below the argument called ``name``."""
    return name + "".join(f"[{_literal(key)}]" for key in path)


def _literal(key: Key) -> str:
    return f'"{key}"' if isinstance(key, str) and key.isidentifier() else repr(key)


def whole_texts(paths: Mapping[str, Path], containers: Sequence[Container]) -> list[str]:
    """Every argument of a call as an expression of what lies in it."""
    texts: dict[Path, str] = {path: name for name, path in paths.items()}
    for container in reversed(containers):
        held = [texts.pop((*container.path, key)) for key in container.keys]
        texts[container.path] = _text(container, held)
    return [texts[path] for path in sorted(texts)]


def _text(container: Container, held: Sequence[str]) -> str:
    if container.kind == "dict":
        pairs = (f"{_literal(key)}: {text}" for key, text in zip(container.keys, held, strict=True))
        return f"{{{', '.join(pairs)}}}"
    inner = ", ".join(held)
    if container.kind == "list":
        return f"[{inner}]"
    return f"({inner},)" if len(held) == 1 else f"({inner})"
