"""Rotary factors on all tokens but the first few, as vision transformers with registers have them."""

from __future__ import annotations

from tests.expert.elsewhere import check, normal, program, written

LAYERS = "self.both = nn.Linear(32, 64, bias=False)"
FORWARD = """
two = self.both(x).view(x.shape[0], x.shape[1], 2, 4, 8)
one, other = (t.transpose(1, 2) for t in torch.unbind(two, 2))
first, rest = one[:, :, :5], one[:, :, 5:]
half, behind = rest.chunk(2, dim=-1)
rest = rest * cos + torch.cat([-behind, half], dim=-1) * cos.flip(0)
return torch.cat((first, rest), dim=2) * 0.5, other.sum(1)
"""


def test_tokens_that_are_not_turned_are_read_where_they_lie():
    given = "x = torch.randn(batch, tokens, 32); cos = torch.randn(tokens - 5, 8)"
    source = program(FORWARD, given, LAYERS, batch=3, tokens=37)
    assert "views" not in written(source).split('"""')[1]
    check(source, [], [normal(2, 45, 32), normal(40, 8)])
