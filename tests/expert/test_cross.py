"""Products of vectors in space, in the pass around them."""

from __future__ import annotations

import pytest

from tests.expert.elsewhere import check, normal, program, written


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.cross(x, y.unsqueeze(-1).expand_as(x), dim=1) * 0.5",
        "return torch.linalg.cross(x.transpose(1, 2), y.unsqueeze(1)).sum(1)",
    ],
    ids=["in the middle", "one for all"],
)
def test_a_cross_product_is_part_of_a_pass(forward: str):
    given = "x = torch.randn(edges, 3, 16); y = torch.randn(edges, 3)"
    source = program(forward, given, "self.none = 0", "", edges=64)
    assert "Left to PyTorch" not in written(source)
    check(source, [], [normal(9, 3, 16), normal(9, 3)])
