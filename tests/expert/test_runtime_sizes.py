"""Which sizes a kernel is compiled for: those of the module, and of the caller's only where it pays; and how
far offsets of 32 bits may lead.
"""

from __future__ import annotations

import re

import pytest
import torch

from egg.expert.emit.triton.plain_sizes import with_caller_sizes
from egg.expert.fusion.runtime_sizes import is_free, is_leading, specialization_tells
from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program, written

LAYERS = {
    "self.norm = nn.LayerNorm(dim)": "return self.norm(x)",
    "self.norm = nn.BatchNorm1d(length)": "return self.norm(x)",
    "self.fc = nn.Linear(dim, 48)": "return torch.relu(self.fc(x))",
    "self.conv = nn.Conv1d(length, 32, 3)": "return self.conv(x)",
    "pass": "return torch.softmax(x, dim=1) + x.mean(dim=(0, 2), keepdim=True)",
    "self.pool = nn.MaxPool1d(3)": "return self.pool(x)",
    "self.p = 1": "return F.scaled_dot_product_attention(x, x, x)",
    "self.p = 2": "return torch.cumsum(x, dim=1).argmax(dim=2)",
}


@pytest.mark.parametrize("layer", LAYERS)
def test_no_kernel_is_compiled_for_one_batch_size(layer: str) -> None:
    source = program(
        LAYERS[layer],
        "x = torch.randn(batch_size, length, dim)",
        layer,
        "dim, length",
        batch_size=96, length=64, dim=128,
    )  # fmt: skip
    text = written(source)
    assert "@triton.jit" in text
    assert not re.search(r"\bbatch_size: tl\.constexpr", text)


KERNEL = """\
@triton.jit
def kernel(x_ptr, n: tl.constexpr, m: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) // tl.cdiv(n, BLOCK)
    at = tl.arange(0, BLOCK)
    inside = at < n * m
    x = tl.load(x_ptr + row * n + at % m, mask=inside)
"""


def test_what_divides_vectors_stays_known() -> None:
    assert "n, m: tl.constexpr" in with_caller_sizes(KERNEL, {"n": True, "m": True})


def test_what_stands_in_addresses_stays_known_unless_it_leads() -> None:
    assert with_caller_sizes(KERNEL, {"n": False}) == KERNEL
    assert "n, m: tl.constexpr" in with_caller_sizes(KERNEL.replace("row * n", "row"), {"n": True})
    bound = KERNEL.replace("row * n + ", "").replace("tl.cdiv(n, BLOCK)", "BLOCK")
    assert "n, m: tl.constexpr" in with_caller_sizes(bound, {"n": False})


def test_the_caller_chooses_what_is_read_off_an_argument() -> None:
    assert is_free("x.shape[1]")
    assert is_free("(x.shape[2] - 3) // 2")
    assert not is_free("self.fc.weight.shape[0]")
    assert not is_free("height * 2")
    assert is_leading("x.shape[0] // 4")
    assert not is_leading("x.shape[1]")
    assert [specialization_tells(value) for value in (1024, 7, 20)] == [True, True, False]


TWICE = program("return x * 2", "x = torch.randn(batch_size, dim)", batch_size=128, dim=4096)


def test_more_elements_than_32_bits_count_are_refused() -> None:
    many = torch.empty(1, 1).expand(2**16, 2**16)
    with pytest.raises(harness.Failed, match=r"4294967296 elements, .* fewer than 2\*\*31"):
        harness.execute(written(TWICE) + RUN, [many], {"arguments": [], "state": {}})
    (twice,) = harness.execute(written(TWICE) + RUN, [normal(3, 5)], {"arguments": [], "state": {}})
    assert torch.equal(twice, normal(3, 5) * 2)


def test_a_program_of_huge_tensors_counts_in_64_bits() -> None:
    huge = program("return x * 2", "x = torch.randn(batch_size, dim)", batch_size=2**17, dim=2**15)
    text = written(huge)
    assert "tl.program_id(0).to(tl.int64)" in text
    assert "check_reach" not in text


PRODUCT = program(
    "return self.fc(x)",
    "x = torch.randn(batch_size, features)",
    "self.fc = nn.Linear(features, hidden)",
    "features, hidden",
    batch_size=4096, features=4096, hidden=4096,
)  # fmt: skip
CONVOLUTION = program(
    "return self.conv(x)",
    "x = torch.randn(batch_size, channels, height, width)",
    "self.conv = nn.Conv2d(channels, 64, 3, padding=1)",
    "channels",
    batch_size=16, channels=64, height=128, width=96,
)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        (PRODUCT, ["batch_size * features", "batch_size * 2 * (features + 128)"]),
        (CONVOLUTION, ["batch_size * height * width * 2", "(height + 2)"]),
    ],
)
def test_files_state_what_their_offsets_must_reach(source: str, counts: list[str]) -> None:
    """Rows of a packed operand are filled up to whole blocks, and there are two halves of each."""
    text = " ".join(written(source).split())
    (given,) = re.findall(r"[^f] check_reach\((.*?)\) (?:check_|if |held =)", text)
    assert all(count in given for count in counts), given
