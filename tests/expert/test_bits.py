"""Bits that are taken for other numbers, ``view(dtype)``: read in registers, and written through."""

from __future__ import annotations

import pytest
import torch

from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program, written
from tests.ledgers import INTERPRETED

CACHE = "self.register_buffer('cache', torch.zeros(blocks, 4, n, dtype=torch.{dtype}))"
GIVEN = "x = torch.randn(count, n); at = torch.randperm(4 * blocks)[:count]"
SIZES = {"blocks": 30, "n": 48, "count": 50}


def check(source: str, arguments: list[int], inputs: list[torch.Tensor]) -> str:
    """That the file computes the program's results, bit for bit; the file's own part."""
    text = written(source)

    def compare() -> None:
        space: dict[str, type[torch.nn.Module]] = {}
        exec(source, space)
        model = space["Model"](*arguments)
        parameters = {"arguments": arguments, "state": model.state_dict()}
        made = harness.execute(text + RUN, [x.clone() for x in inputs], parameters)
        wanted = model(*inputs)
        for ours, right in zip(made, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            assert ours.dtype == right.dtype
            assert torch.equal(ours.float(), right.float())

    INTERPRETED.once(compare, source, text, arguments, [str(x.shape) for x in inputs])
    return text.split("class ModelNew")[1]


@pytest.mark.parametrize(
    ("dtype", "bits", "shown"),
    [
        ("float8_e4m3fn", "uint8", "view(-1, x.shape[1]).view(torch.uint8)"),
        ("uint8", "float8_e4m3fn", "view(torch.float8_e4m3fn).view(-1, x.shape[1])"),
        ("bfloat16", "int16", "view(torch.int16).flatten(0, 1)"),
    ],
)
def test_rows_are_stored_in_their_slots_through_other_bits(dtype: str, bits: str, shown: str) -> None:
    """The pass that computes the rows stores them, and nothing else of the cache is read or written."""
    rows = "x.to(torch.float8_e4m3fn)" if "8" in dtype + bits and dtype != "bfloat16" else "x.bfloat16()"
    put = f"self.cache.{shown}[at] = ({rows}).view(torch.{bits})\n"
    forward = f"{put}return self.cache.view(torch.{'int16' if bits == 'int16' else 'uint8'}) + 1"
    source = program(forward, GIVEN, CACHE.format(dtype=dtype), "n, blocks", **SIZES)
    body = check(source, [48, 3], [normal(5, 48), torch.tensor([7, 0, 11, 3, 4])])
    assert ".view(torch.uint8)" not in body.replace("# ", "")
    assert "index_put" not in body


def test_a_part_is_copied_through_other_bits():
    forward = (
        "y = torch.zeros_like(x)\ny.view(torch.int32)[:, 4:8].copy_(x.view(torch.int32)[:, 4:8])\n"
        "y.view(torch.int32)[:, 9:].fill_(1 << 29)\nreturn y, (x.view(torch.int32) >> 23) & 255"
    )
    source = program(forward, "x = torch.randn(count, n)", count=50, n=48)
    body = check(source, [], [normal(5, 32)])
    assert ".view(torch.int32)" not in body
