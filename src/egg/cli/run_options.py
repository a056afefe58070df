"""The options of a run, from the command line. Mistakes are found before anything is written."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from egg.core.errors import UsageError
from egg.core.settings import EFFORTS, ROLES, Budget, Caps, ModelChoice
from egg.core.source import Candidate, reading

RUNS = Path("egg-runs")
"""Where runs go that were given no place."""

_LEFT_BY_A_KILL = {"lock", "events.jsonl"}
"""What a folder holds when its run was killed before the first event."""

LARGEST_SEED = 2**32 - 1
WIDEST = 8
"""Drafts of one question."""
LEAST_REPLY = 64
"""Tokens."""


def check_team(team: str | None, model: str | None) -> str:
    """The team that was named; by default ``llm`` where a model is named, else the built-in team."""
    from egg.api.teams import TEAMS

    if team is None:
        return "llm" if model is not None else "expert"
    if team not in TEAMS:
        raise UsageError(f"unknown team: {team!r}", f"one of {', '.join(TEAMS)}")
    return team


def start_of(team: str, start: Path | None) -> tuple[str, str, Candidate | None]:
    """Read ``--from``: the team as recorded, ``expert`` where the built-in team begins, and a kernel file to
    begin with. An llm team that goes on from the built-in one is the hybrid team."""
    if start is None:
        return team, "", None
    if str(start) != "expert" or start.is_file():
        return team, "", Candidate.from_file(start)
    if team == "step":
        return team, "expert", None
    return ("hybrid" if team == "llm" else team), "", None


def check_place(device: str) -> str:
    """Where a run's kernels are judged."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?|offline", device):
        raise UsageError(
            f"unknown device: {device!r}",
            "one of auto, cpu, cuda, cuda:0, cuda:1, ..., or offline for another machine",
        )
    return device


def check_seed(seed: int) -> int:
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"--seed is {seed}", f"a whole number from 0 to {LARGEST_SEED}")
    return seed


def skill_folders(named: Sequence[Path], without: bool, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The user's folders of skills, as a run records them; ``None`` for a run without skills."""
    if without and named:
        raise UsageError("--skills and --no-skills contradict each other", "leave one of them out")
    if without:
        return None
    from egg.api.skills import folders_for

    return tuple(str(folder) for folder in folders_for(named, environ))


def lesson_store(named: Path | None, without: bool, environ: Mapping[str, str]) -> str | None:
    """The store of lessons, as a run records it; ``None`` for a run that neither recalls nor learns."""
    if without and named is not None:
        raise UsageError("--lessons and --no-lessons contradict each other", "leave one of them out")
    if without:
        return None
    from egg.api.lessons import default_store

    return str((named or default_store(environ)).expanduser().resolve())


def budget(name: str, reply_tokens: int | None) -> Budget:
    from egg.engine.budgets import find_budget

    found = find_budget(name)
    if reply_tokens is None:
        return found
    if reply_tokens < LEAST_REPLY:
        raise UsageError(
            f"--reply-tokens is {reply_tokens}", f"a kernel file needs some room: at least {LEAST_REPLY}"
        )
    return replace(found, reply_tokens=reply_tokens, reply_per_base=0.0)


def caps(cost: float | None, tokens: int | None, steps: int | None, minutes: float | None) -> Caps:
    check_limit("--max-cost", cost, "in US dollars, as in --max-cost 2.50")
    check_limit("--max-tokens", tokens, "as in --max-tokens 200000")
    check_limit("--max-steps", steps, "as in --max-steps 10")
    check_limit("--max-minutes", minutes, "as in --max-minutes 30")
    return Caps(cost, tokens, steps, minutes)


def check_limit(option: str, value: float | None, example: str) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UsageError(
            f"{option} is {value:g}", f"a number larger than zero, {example}; leave it out for no limit"
        )


def model_choice(
    team: str, model: str | None, base_url: str | None, key_variable: str | None, temperature: float | None
) -> ModelChoice | None:
    """Which model is asked; the options that describe it need it, and the ``step`` team needs none."""
    given = {
        "--model": model,
        "--base-url": base_url,
        "--key-variable": key_variable,
        "--temperature": temperature,
    }
    named = [option for option, value in given.items() if value is not None]
    if team in ("expert", "step") and named:
        raise UsageError(
            f"{', '.join(named)} {'has' if len(named) == 1 else 'have'} no effect: "
            f"the {team} team does not call a model",
            "leave it out, or use --team llm or --team hybrid",
        )
    if temperature is not None and not 0 <= temperature <= 2:
        raise UsageError(f"--temperature is {temperature:g}", "a number from 0 to 2")
    if key_variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_variable):
        raise UsageError(
            "--key-variable is no name of an environment variable",
            "export the key in a variable and give that variable's name, never the key itself",
        )
    if model is None:
        return None
    from egg.llm.connect import parse_model

    choice = parse_model(model, base_url)
    if temperature is not None and choice.provider == "anthropic":
        raise UsageError("Anthropic's protocol takes no temperature", "leave --temperature out")
    return replace(choice, key_variable=key_variable, temperature=temperature)


def models_by_role(
    team: str, model: str | None, base_url: str | None, key_variable: str | None, temperature: float | None
) -> tuple[ModelChoice | None, dict[str, ModelChoice]]:
    """Read ``--model NAME`` or ``designer=NAME,coder=NAME,NAME``: the model of all roles, those of some.

    A tuner plans as a designer does and a debugger reads code as a coder does: where only these are
    named, they answer for both.
    """
    named = per_role("--model", model, "NAME") if model is not None else {}
    if set(named) <= {ALL}:
        return model_choice(team, model, base_url, key_variable, temperature), {}

    def choice(name: str) -> ModelChoice:
        found = model_choice(team, name, base_url, key_variable, temperature)
        assert found is not None
        return found

    default = named.pop(ALL, None)
    for role, stand_in in (("tuner", "designer"), ("debugger", "coder")):
        if role not in named and default is None and stand_in in named:
            named[role] = named[stand_in]
    if default is None and (missing := [role for role in ROLES if role not in named]):
        raise UsageError(
            f"--model names no model for the {' and the '.join(missing)}",
            "add a name without a role for all others: --model designer=NAME,OTHER",
        )
    return choice(default or named["coder"]), {role: choice(name) for role, name in named.items()}


def efforts(team: str, effort: str | None) -> dict[str, str]:
    """Read ``--effort high`` or ``designer=high,coder=low``: how much each role reasons."""
    if effort is None:
        return {}
    if team in ("expert", "step"):
        raise UsageError(
            f"--effort has no effect: the {team} team does not call a model",
            "leave it out, or use --team llm or --team hybrid",
        )
    named = per_role("--effort", effort, "EFFORT")
    for value in named.values():
        if value not in EFFORTS:
            raise UsageError(f"--effort is {value!r}", f"one of {', '.join(EFFORTS)}")
    default = named.pop(ALL, None)
    return {**(dict.fromkeys(ROLES, default) if default is not None else {}), **named}


def width(team: str, drafts: int) -> int:
    """Read ``--width``: how many drafts of a seed or a structure are judged together."""
    if not 1 <= drafts <= WIDEST:
        raise UsageError(f"--width is {drafts}", f"a whole number from 1 to {WIDEST}")
    if team == "expert" and drafts > 1:
        raise UsageError(
            "--width has no effect: the expert team writes one file for each plan",
            "leave it out, or use --team llm, hybrid or step",
        )
    return drafts


def without(team: str, text: str | None, drafts: int) -> tuple[str, ...]:
    """Read ``--without``: the parts of a run that are left out."""
    from egg.core.parts import WIDTH, parts_named

    named = parts_named(text, team)
    if WIDTH in named and drafts > 1:
        raise UsageError("--width and --without width contradict each other", "leave one of them out")
    return named


ALL = ""
"""The role of a value that was given without one."""


def per_role(option: str, text: str, what: str) -> dict[str, str]:
    """``VALUE`` or ``ROLE=VALUE,ROLE=VALUE,VALUE``, by role."""
    found: dict[str, str] = {}
    for entry in text.split(","):
        role, equals, value = entry.strip().rpartition("=")
        if equals and role not in ROLES:
            raise UsageError(
                f"{option} has no role {role!r}", f"one of {', '.join(ROLES)}, as in coder={what}"
            )
        if not value or role in found:
            raise UsageError(
                f"{option} is {text!r}", f"{what}, or one for each role: designer={what},coder={what}"
            )
        found[role] = value
    return found


def check_new(folder: Path) -> Path:
    """A folder that a run may begin in: none yet, or an empty one."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "give --out a folder that does not exist yet")
    if not folder.exists():
        return folder
    log = folder / "events.jsonl"
    if log.exists() and log.stat().st_size:
        raise UsageError(
            f"there is a run in {folder} already",
            f"go on with `egg resume {shlex.quote(str(folder))}`; for other settings give another --out",
        )
    if {entry.name for entry in folder.iterdir()} - _LEFT_BY_A_KILL:
        raise UsageError(
            f"{folder} holds other files",
            "give --out a folder of its own: a run writes several files into it",
        )
    return folder


def read_reply(path: Path) -> str:
    """The text of a reply, from a file or from standard input (``-``)."""
    missing = "write the reply into a file, or use --file -"
    with reading(path, UsageError, missing, "it must be UTF-8 text"):
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        text = data.decode("utf-8")
    if not text.strip():
        raise UsageError("the reply is empty", "answer the question that `egg next` prints")
    return text
