"""Programs whose results are in dictionaries or nested, and files that return them alike."""

from __future__ import annotations

import pytest
import torch

from egg.expert.nesting import form_of, places, whole_text
from tests.expert import harness
from tests.expert.elsewhere import normal, program, written

NESTED = program(
    'hidden = torch.relu(x)\nreturn {"logits": hidden * 2.0, "levels": [x + 1.0, (hidden.sum(dim=-1),)]}',
    "x = torch.randn(batch_size, dim)",
    "self.scale = nn.Parameter(torch.ones(1))",
    batch_size=32,
    dim=64,
)
RETURNED = """

def forward(self, *inputs):
    model = ModelNew()
    with torch.enable_grad():
        made = model(inputs[0].clone().requires_grad_())
    assert list(made) == ["logits", "levels"]
    assert type(made["levels"]) is list and type(made["levels"][1]) is tuple
    flat = [made["logits"], made["levels"][0], made["levels"][1][0]]
    assert all(result.requires_grad for result in flat)
    return [result.detach() for result in flat]
"""


def leaf(item: object) -> bool:
    return isinstance(item, str)


@pytest.mark.parametrize(
    ("results", "form"),
    [
        ("a", "tensor"),
        (("a", "b"), "tuple"),
        (["a"], "list"),
        ({"x": "a", "y-z": ["b", ("c",)]}, "{{\"x\": {0}, 'y-z': [{1}, ({2},)]}}"),
        ({1: "a", "{": "b"}, "{{1: {0}, '{{': {1}}}"),
    ],
)
def test_the_form_says_where_each_result_goes(results, form):
    found, leaves = form_of(results, leaf)
    assert found == form
    assert eval(whole_text(found, [repr(name) for name in leaves])) == results
    assert [eval(f"results{place}", {"results": results}) for place in places(found, len(leaves))] == leaves


def test_other_things_than_results_have_no_form():
    with pytest.raises(ValueError, match="NoneType"):
        form_of({"x": None}, leaf)


def test_a_file_returns_dictionaries_as_the_program_does():
    x = normal(5, 7)
    logits, more, total = harness.execute(written(NESTED) + RETURNED, [x], {})
    hidden = torch.relu(x)
    torch.testing.assert_close(logits, hidden * 2.0)
    torch.testing.assert_close(more, x + 1.0)
    torch.testing.assert_close(total, hidden.sum(dim=-1))
