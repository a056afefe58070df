"""Kernels of earlier runs in a prompt, within a budget.

The first one, the likest, is shown as a file (or its outline); of the others what changed is enough. Each
begins with what it is worth and with the changes that made it so: these stay when the code does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.agents.outline import within_budget
from egg.core.exemplar import Exemplar, Won
from egg.core.tokens import estimate_tokens

LEAST_CODE = 200
"""Tokens: less code teaches nothing."""


def examples_shown(exemplars: Sequence[Exemplar], room: int) -> tuple[str, ...]:
    """A passage of Markdown for each exemplar that fits, the likest first."""
    shown: list[str] = []
    for exemplar in exemplars:
        text = _head(exemplar)
        room -= estimate_tokens(text)
        if room < 0:
            break
        code = _code(exemplar, room, whole=not shown)
        room -= estimate_tokens(code)
        shown.append(f"{text}\n\n{code}" if code else text)
    return tuple(shown)


def _head(exemplar: Exemplar) -> str:
    speed = f"{exemplar.speedup:.2f}x eager" if exemplar.speedup is not None else "no GPU measured it"
    time = f", {exemplar.milliseconds:.4g} ms" if exemplar.milliseconds is not None else ""
    lines = [f"### {exemplar.task}", "", f"Likeness {exemplar.likeness:.0%}; {exemplar.gpu}: {speed}{time}."]
    return "\n".join([*lines, "", *(f"- {_won(won)}" for won in exemplar.won)])


def _won(won: Won) -> str:
    gain = f" ({won.gain:.2f}x)" if won.gain is not None else ""
    skill = f", skill {won.skill}" if won.skill else ""
    return f"{won.stage.value}{skill}{gain}: {won.change}"


def _code(exemplar: Exemplar, room: int, *, whole: bool) -> str:
    """The file or its outline, or the difference; nothing where too little would be left of it."""
    if room < LEAST_CODE:
        return ""
    if not whole:
        fits = exemplar.diff and estimate_tokens(exemplar.diff) <= room
        return f"````diff\n{exemplar.diff}\n````" if fits else ""
    text = within_budget(exemplar.source, room).text.strip("\n")
    return f"````python\n{text}\n````" if estimate_tokens(text) <= room else ""
