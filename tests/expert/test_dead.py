"""Dead values: computed, never read, and not in a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from egg.expert.writing.dead import without_dead
from tests.expert import elsewhere

KERNEL = """@triton.jit
def kernel(x_ptr, count_ptr, BLOCK: tl.constexpr):
    summed: tl.constexpr = 9 * BLOCK
    at = tl.arange(0, BLOCK)
    qw = at % 7
    qh = (
        qw
        // 7
    )
    before = tl.atomic_add(count_ptr, 1)
    seen = other(at)
    for k in range(4):
        t = k // 2
    tl.store(x_ptr + at, at)
"""


def test_only_what_does_nothing_goes() -> None:
    gone = ("summed", "qw", "qh", "        qw", "        // 7", "    )")
    kept = [
        line for line in KERNEL.split("\n") if not line.strip().startswith(tuple(g.strip() for g in gone))
    ]
    assert without_dead(KERNEL).split("\n") == kept
    assert "before = tl.atomic_add" in without_dead(KERNEL)


SAMPLE = {
    "packed": elsewhere.program(
        "return torch.relu(self.conv(x))",
        "x = torch.rand(2, 3, 32, 32)",
        "self.conv = nn.Conv2d(3, 64, 7, stride=2, padding=3)",
    ),
    "pointwise": elsewhere.program(
        "return torch.relu(self.conv(x))", "x = torch.rand(2, 32, 8, 8)", "self.conv = nn.Conv2d(32, 64, 1)"
    ),
    "transposed": elsewhere.program(
        "return torch.tanh(self.conv(x))",
        "x = torch.rand(2, 8, 6, 6)",
        "self.conv = nn.ConvTranspose2d(8, 16, 3, stride=2)",
    ),
    "depthwise": elsewhere.program(
        "return self.conv(x)", "x = torch.rand(2, 8, 12, 12)", "self.conv = nn.Conv2d(8, 8, 3, groups=8)"
    ),
    "rows": elsewhere.program(
        "return torch.softmax(self.norm(x), -1)", "x = torch.rand(4, 33)", "self.norm = nn.LayerNorm(33)"
    ),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a linter has to say about unused names and imports, of all files at once."""
    folder: Path = tmp_path_factory.mktemp("dead")
    for name, source in SAMPLE.items():
        (folder / f"{name}.py").write_text(elsewhere.written(source))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F"]
    ran = subprocess.run(
        [*command, "--output-format", "concise", str(folder)], capture_output=True, text=True
    )
    assert ran.returncode in (0, 1), ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", SAMPLE)
def test_a_file_has_no_dead_values(name: str, reports: str) -> None:
    assert [line for line in reports.split("\n") if f"{name}.py:" in line] == []
