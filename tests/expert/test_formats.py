"""Results lie in memory as the reference's do, whatever the layout of the inputs is."""

from __future__ import annotations

import pytest

from egg.core.domain import Domain, Format, Output
from egg.core.domain_words import words_of
from tests.expert.captured import program
from tests.expert.scenarios import graph, run, source

IMAGES = program(
    "return torch.relu(x) * y, torch.relu(self.conv(x)), self.norm(x), F.max_pool2d(x, 2), F.softmax(x, 1)",
    "torch.randn(B, 4, H, W), torch.randn(B, 4, H, W)",
    "self.conv = nn.Conv2d(4, 5, 3); self.norm = nn.BatchNorm2d(4); self.eval()",
    "B, H, W = 3, 6, 10",
    arguments="x, y",
)
ROWS = program(
    "return torch.sigmoid(x) + 1, self.norm(x), self.layer(x)",
    "torch.randn(B, L, C)",
    "self.norm = nn.LayerNorm(C); self.layer = nn.Linear(C, 7)",
    "B, L, C = 3, 5, 16",
)
LAID = """
def lies_alike(theirs, ours, *given):
    alike(theirs, ours, *given)
    with torch.no_grad():
        for a, b in zip(theirs(*given), ours(*given), strict=True):
            assert a.stride() == b.stride(), (a.stride(), b.stride())

"""


def test_channels_last_and_transposed_images() -> None:
    run(
        source(IMAGES),
        IMAGES,
        LAID
        + """
theirs, ours = (module.eval() for module in made())
x, y = torch.rand(3, 4, 6, 10), torch.rand(3, 4, 6, 10)
last = x.to(memory_format=torch.channels_last)
assert ours(last, y)[0].is_contiguous(memory_format=torch.channels_last)
lies_alike(theirs, ours, x, y)
lies_alike(theirs, ours, last, y)
lies_alike(theirs, ours, x, y.to(memory_format=torch.channels_last))
lies_alike(theirs, ours, x.mT.contiguous().mT, y.mT.contiguous().mT)
lies_alike(theirs, ours, x.transpose(0, 1).contiguous().transpose(0, 1), y)
lies_alike(theirs, ours, torch.rand(3, 4, 6, 20)[..., ::2], y)
lies_alike(theirs, ours, x[:1].expand(3, 4, 6, 10), y)
with torch.enable_grad():
    result = ours(last.requires_grad_(), y)[0]
    assert result.requires_grad and result.is_contiguous(memory_format=torch.channels_last)
""",
    )


def test_transposed_rows() -> None:
    run(
        source(ROWS),
        ROWS,
        LAID
        + """
theirs, ours = made()
x = torch.rand(3, 5, 16)
lies_alike(theirs, ours, x)
lies_alike(theirs, ours, x.mT.contiguous().mT)
lies_alike(theirs, ours, x.permute(2, 0, 1).contiguous().permute(1, 2, 0))
lies_alike(theirs, ours, torch.rand(3, 10, 16)[:, ::2])
""",
    )


def test_a_file_states_the_formats_of_its_results() -> None:
    domain = Domain.of_source(source(IMAGES))
    assert domain is not None
    following = Output(Format.CHANNELS_LAST, "x")
    assert domain.outputs == (Output(Format.PRESERVED, "x"), following, following, following, Output())
    assert "output laid out as x; output channels-last where x is" in words_of(domain)
    assert Domain.of_literal(domain.literal()) == domain


@pytest.mark.parametrize(
    ("forward", "inputs", "wanted"),
    [
        ("self.layer(x)", "torch.randn(B, C)", Output()),
        ("x + y", "torch.randn(B, 1), torch.randn(B, C)", Output(Format.PRESERVED, "y")),
        ("torch.relu(x).t()", "torch.randn(B, C)", Output(Format.UNSTATED)),
        ("torch.relu(x).view(-1)", "torch.randn(B, C)", Output()),
        ("x.relu_()", "torch.randn(B, C)", Output(Format.UNSTATED)),
        ("torch.relu(x)", "torch.randn(B, C).t()", Output(Format.UNSTATED)),
    ],
)
def test_only_a_rule_that_explains_every_layout_is_stated(forward: str, inputs: str, wanted: Output) -> None:
    arguments = "x, y" if ", torch" in inputs else "x"
    task = program(forward, inputs, "self.layer = nn.Linear(C, 7)", "B, C = 12, 16", arguments)
    assert graph(task).usage.outputs == (wanted,)
