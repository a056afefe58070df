"""The ledgers of checks: what each depends on besides the file that is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.ledger import Checks, Files

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "egg"
JUDGE = ("core", "hardware", "analysis", "evaluator")
"""The floors that a verdict depends on."""


def _helpers() -> Iterator[Path]:
    """What the tests of generated files share."""
    return (path for path in (HERE / "expert").glob("*.py") if not path.name.startswith("test_"))


INTERPRETED = Checks(
    HERE / "expert" / "data" / "interpreted.txt",
    (*_helpers(), *(SOURCE / "evaluator" / "interpreter").glob("*.py")),
)
"""Generated files that computed the right results in the interpreter."""

COMPILED = Checks(
    HERE / "expert" / "data" / "compiled.txt",
    (
        *_helpers(),
        *(path for room in ("offline", "work") for path in (SOURCE / "evaluator" / room).rglob("*.py")),
        *(SOURCE / "analysis").rglob("*.py"),
    ),
)
"""Generated files that the compiler made something good of."""

JUDGED = Checks(
    HERE / "evaluator" / "data" / "judged.txt",
    (
        HERE / "evaluator" / "verdicts.py",
        *(path for floor in JUDGE for path in (SOURCE / floor).rglob("*.py")),
        *(SOURCE / "hardware").rglob("*.toml"),
    ),
)
"""Files of the corpus that the judge as it is got right."""

TEAM = Files(
    HERE / "expert" / "data" / "files.json",
    HERE / "expert",
    (
        *_helpers(),
        HERE / "conftest.py",
        HERE / "analysis" / "kernels.py",
        *(path for floor in (*JUDGE, "expert") for path in (SOURCE / floor).rglob("*.py")),
        *(SOURCE / "hardware").rglob("*.toml"),
    ),
    re.compile(
        rf"egg\.(?!{'|'.join((*JUDGE, 'expert'))})"
        r"|tests\.(?!expert|ledgers|analysis\.kernels)|benchmarks|subprocess"
    ),
)
"""Tests of the built-in team that need neither the engine nor another process."""

VERDICTS = Files(
    HERE / "evaluator" / "data" / "files.json",
    HERE / "evaluator",
    (
        *(path for path in (HERE / "evaluator").rglob("*.py") if not path.name.startswith("test_")),
        *(path for path in (HERE / "corpus").rglob("*.py")),
        HERE / "conftest.py",
        HERE / "samples.py",
        *(path for floor in JUDGE for path in (SOURCE / floor).rglob("*.py")),
        *(SOURCE / "hardware").rglob("*.toml"),
    ),
    re.compile(
        rf"egg\.(?!{'|'.join(JUDGE)})"
        r"|tests\.(?!evaluator\.(?!test_)|corpus|ledgers|samples|conftest)|benchmarks"
        r"|egg\.evaluator\.process|subprocess|signal|socket|Sandbox"
    ),
)
"""Tests of the judge that depend on its code alone, not on how the system runs processes."""

FILES = (TEAM, VERDICTS)
ALL = (INTERPRETED, COMPILED, JUDGED)
