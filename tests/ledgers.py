"""The ledgers of checks: what each depends on besides the file that is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.dependencies import dependencies, direct
from tests.ledger import Checks, Files

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "egg"
JUDGE = ("core", "hardware", "analysis", "evaluator")
"""The floors that a verdict depends on."""
SHARE = 8
"""Where only the code that makes checks has changed, `make test` makes one in so many again."""


def _helpers() -> Iterator[Path]:
    """What the tests of generated files share."""
    return (path for path in (HERE / "expert").glob("*.py") if not path.name.startswith("test_"))


INTERPRETED = Checks(
    HERE / "expert" / "data" / "interpreted.txt",
    (*_helpers(), *(SOURCE / "evaluator" / "interpreter").glob("*.py")),
    SHARE,
)
"""Generated files that computed the right results in the interpreter."""

COMPILED = Checks(
    HERE / "expert" / "data" / "compiled.txt",
    (
        *_helpers(),
        *(path for room in ("offline", "work") for path in (SOURCE / "evaluator" / room).rglob("*.py")),
        *(SOURCE / "analysis").rglob("*.py"),
    ),
    SHARE,
)
"""Generated files that the compiler made something good of."""

JUDGED = Checks(
    HERE / "evaluator" / "data" / "judged.txt",
    (
        HERE / "evaluator" / "verdicts.py",
        *(path for floor in JUDGE for path in (SOURCE / floor).rglob("*.py")),
        *(SOURCE / "hardware").rglob("*.toml"),
    ),
    SHARE,
)
"""Files of the corpus that the judge as it is got right."""

UNCHANGED = Files(
    HERE,
    dependencies,
    re.compile(
        r"^(import|from) (signal|socket|multiprocessing)\b|Popen|\bos\.(fork|kill)|tests\.(leftovers|servers)"
        r"|ray_cluster|\.following|report\.browser|landlock|egg\.evaluator\.process\.(sandbox|sharing|subreaper)",
        re.MULTILINE,
    ),
    always=("test_readme.py", "test_demo.py", "test_doctor.py", "test_cli.py", "cli/test_help.py",
            "cli/test_quiet.py", "cli/test_mcp.py", "test_ledger.py", "test_dependencies.py",
            "test_meaning.py", "test_sampling.py"),
    direct=direct,
)  # fmt: skip
"""Test files that depend on code and data of this repository alone. Those that depend on how the system runs
processes run always, and so do the first commands that a user gives: they try the installation."""

COSTS = HERE / "data" / "costs.json"
ALL = (INTERPRETED, COMPILED, JUDGED)
