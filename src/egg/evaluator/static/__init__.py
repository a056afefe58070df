"""The static gate: is the kernel file something an honest author would write?

The file is parsed, never run. Names are resolved to what they stand for (``import torch as t``,
``o = t.ops``, ``getattr(torch, "ops")`` all mean ``torch.ops``), then each family of rules walks the
tree: the language (imports, names, attributes, classes, exceptions), what would tell the judge from other
callers, state that outlives a call, the presence of a kernel, and, where library calls are forbidden, compute
outside the candidate's kernels.

The rules refuse roads, not destinations: a cheat that keeps to plain code is left to the gates that
watch the candidate run. What the rules buy is that those gates cannot be dodged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from egg.core.evaluation import Refusal
from egg.core.policy import LibraryCalls
from egg.core.source import Candidate
from egg.evaluator.static import kernels, language, library, stand_ins, state
from egg.evaluator.static.findings import Finding, Findings
from egg.evaluator.static.main_block import without_main_block
from egg.evaluator.static.scopes import Program, TangledError

COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""As PEP 263 has it."""

__all__ = ["Finding", "Findings", "check", "findings"]


def check(candidate: Candidate, library_calls: LibraryCalls) -> Refusal | None:
    """Refuse the candidate for the first offence in its text, or return ``None``."""
    return findings(candidate.source, library_calls).refusal()


def findings(source: str, library_calls: LibraryCalls) -> Findings:
    """Every offence in the source, in reading order."""
    try:
        if strange := _not_plain_text(source):
            return _only(Finding(strange[0], "static.syntax", strange[1]))
        program = Program(without_main_block(ast.parse(source)))
        return Findings.of(_find(program, library_calls))
    except SyntaxError as error:
        return _only(Finding(error.lineno or 0, "static.syntax", f"not valid Python: {error.msg}"))
    except (ValueError, MemoryError) as error:
        return _only(Finding(0, "static.syntax", f"not readable as Python: {error}"))
    except (RecursionError, TangledError):
        return _only(Finding(0, "static.dynamic", "the code is nested or renamed too deeply to be followed"))


def _find(program: Program, library_calls: LibraryCalls) -> Iterator[Finding]:
    yield from language.find(program)
    yield from stand_ins.find(program)
    yield from state.find(program)
    yield from kernels.find(program)
    if library_calls is LibraryCalls.FORBID:
        yield from library.find(program)


def _not_plain_text(source: str) -> tuple[int, str] | None:
    """What makes another program of the same bytes in another reader's hands, and its line."""
    if "\0" in source or source.startswith("\ufeff"):
        return 1, "a NUL or a byte-order mark in the text"
    for number, text in enumerate(source.split("\n")[:2], 1):
        cookie = COOKIE.match(text)
        if cookie and cookie.group(1).lower().replace("_", "-") not in ("utf-8", "utf8"):
            return number, f"declares the encoding {cookie.group(1)}: a kernel file is UTF-8"
    return None


def _only(finding: Finding) -> Findings:
    return Findings((finding,))
