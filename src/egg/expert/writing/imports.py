"""Import lines in the order that Python programmers expect: standard library, then packages, each sorted."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable


def sorted_imports(lines: Iterable[str], used: set[str]) -> list[str]:
    """Those of ``lines`` that bind a name in ``used``: one group per origin, names of one module together."""
    plain: dict[str, set[str]] = {}
    members: dict[str, set[tuple[str, str]]] = {}
    for line in lines:
        (statement,) = ast.parse(line).body
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            raise ValueError(f"not an import: {line}")
        for alias in statement.names:
            if (alias.asname or alias.name).split(".")[0] not in used:
                continue
            if isinstance(statement, ast.Import):
                text = f"import {alias.name} as {alias.asname}" if alias.asname else f"import {alias.name}"
                plain.setdefault(alias.name, set()).add(text)
            else:
                text = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                members.setdefault(str(statement.module), set()).add((alias.name, text))
    groups: dict[bool, list[str]] = {True: [], False: []}
    for module in sorted(plain):
        groups[_standard(module)] += sorted(plain[module])
    for module in sorted(members):
        names = ", ".join(text for _, text in sorted(members[module], key=_member_order))
        groups[_standard(module)].append(f"from {module} import {names}")
    between = [""] if groups[True] and groups[False] else []
    return [*groups[True], *between, *groups[False]]


def _standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


def _member_order(member: tuple[str, str]) -> tuple[int, str]:
    """Constants, classes, then functions, as import sorters have it."""
    name = member[0]
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name
