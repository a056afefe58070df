"""A ledger hashes what a file does, not how it is explained; where prose is data, it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.meaning import meaning, without_prose

CODE = '''"""A module."""

# A comment on its own line.
LIMIT = 3  # and one behind code
"""What the limit is for."""


def twice(x: str) -> str:
    """Doubles."""
    text = """# this
is data"""
    return f"{x}{x} # no comment" + "\\"" + text  # the end


def empty():
    """Nothing but prose."""
'''


def test_prose_is_left_out_and_the_rest_is_kept_to_the_letter() -> None:
    assert without_prose(CODE).splitlines() == [
        "LIMIT = 3",
        "def twice(x: str) -> str:",
        '    text = """# this',
        'is data"""',
        '    return f"{x}{x} # no comment" + "\\"" + text',
        "def empty():",
    ]
    assert '"""Doubles."""' in without_prose(CODE, docstrings=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = (\n    'a'\n)", "x = (\n    'b'\n)"),
        ("'a'.join(x)", "'b'.join(x)"),
        ("f'{call()}'", "f'{other()}'"),
        ("if x:\n    y\nz", "if x:\n    y\n    z"),
        ("'''a''' + b", "'''c''' + b"),
        ("x = [  # numbers\n    '''a''',  # one\n    '''b'''\n]", "x = [\n    '''a''',\n    '''c'''\n]"),
    ],
)
def test_every_other_change_shows(before: str, after: str) -> None:
    assert without_prose(before) != without_prose(after)


@pytest.mark.parametrize(
    ("place", "commented", "documented"),
    [
        ("src/egg/evaluator/gate.py", True, True),
        ("src/egg/expert/emit/triton.py", True, True),
        ("tests/expert/test_it.py", True, True),
        ("src/egg/cli/optimize.py", True, False),  # the help text
        ("src/egg/agents/contracts.py", True, False),  # the schema that a model reads
        ("src/egg/knowledge/skills/split-k/assets/pattern.py", False, False),
        ("src/egg/bench/real/vision.py", False, False),
        ("tests/corpus/honest/softmax.py", False, False),
        ("docs/runs.md", False, False),
    ],
)
def test_prose_counts_where_something_reads_it(
    place: str, commented: bool, documented: bool, tmp_path: Path
) -> None:
    def hashed(text: str) -> bytes:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return meaning(str(path))

    plain = hashed('def f():\n    """Old."""\n    return 1\n')
    assert (hashed('def f():\n    """Old."""\n    return 1  # why\n') == plain) is commented
    assert (hashed('def f():\n    """New."""\n    return 1\n') == plain) is documented
    assert hashed('def f():\n    """Old."""\n    return 2\n') != plain


def test_what_cannot_be_read_as_python_counts_whole(tmp_path: Path) -> None:
    path = tmp_path / "tests" / "broken.py"
    path.parent.mkdir()
    path.write_text("x = (  # never closed")
    assert meaning(str(path)) == b"x = (  # never closed"


def test_a_file_that_reads_docstrings_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "src" / "egg" / "engine" / "prints.py"
    path.parent.mkdir(parents=True)
    path.write_text('"""Shown."""\nprint(__doc__)\n')
    assert b"Shown" in meaning(str(path))
