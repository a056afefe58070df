"""Loads whose mask is a larger tile than their addresses: the addresses are repeated over the mask."""

from __future__ import annotations

import pytest

from egg.expert.emit.triton.tile_addresses import with_tile_addresses
from tests.expert.elsewhere import check, normal, program, written

KERNEL = """
def kernel(x_ptr, n, width: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    row = tl.arange(0, BLOCK)[:, None]
    column = (c * BLOCK + tl.arange(0, BLOCK))[None, :]
    above, along = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    live = (row < n) & (column < width)
    for at in range(3):
        x = tl.load({address}, mask={mask}, other=0)
        sums = tl.sum(x, axis=1)
"""


@pytest.mark.parametrize(
    ("address", "mask", "over"),
    [
        ("x_ptr + c + at", "(row + at < n)", "(row + at < n)"),
        ("x_ptr + column", "(column < width) & (row < n)", "(row < n)"),
        ("x_ptr + column", "live", "live"),
        ("x_ptr + tl.load(x_ptr + at).to(tl.int64)", "(column < n) & (row < n)", "(column < n) & (row < n)"),
        ("x_ptr + column", "(column < width) & (c < n)", ""),
        ("x_ptr + c", "(c < n)", ""),
        ("x_ptr + above", "(along < n)", "(along < n)"),
        ("x_ptr + row * width + column", "live", ""),
        ("x_ptr + sums", "live", ""),
    ],
)
def test_addresses_get_the_sides_of_their_mask(address: str, mask: str, over: str) -> None:
    text = KERNEL.format(address=address, mask=mask)
    wanted = address if not over else f"{address} + 0 * ({over.strip('()') if '&' not in over else over})"
    assert with_tile_addresses(text) == KERNEL.format(address=wanted, mask=mask)


@pytest.mark.parametrize(("channels", "size"), [(32, 24), (5, 24)])
def test_a_bias_inside_a_border_is_repeated_over_the_tile(channels: int, size: int) -> None:
    """Of channels that lie last, and of a plane for each of few channels."""
    source = program(
        "return self.depthwise(torch.relu(x + self.bias[:, None, None]))",
        "x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last)"
        if channels > 8 else "x = torch.randn(batch, channels, size, size)",
        "self.bias = nn.Parameter(torch.randn(channels))\n"
        "self.depthwise = nn.Conv2d(channels, channels, 3, 2, 1, groups=channels)",
        "channels", batch=2, channels=channels, size=size,
    )  # fmt: skip
    assert "+ 0 * (" in " ".join(written(source).split())
    check(source, [channels], [normal(2, channels, 9, 9)])
