"""Programs that take lists and dictionaries, and programs that return named tuples."""

from __future__ import annotations

import torch

from egg.core.domain import Domain
from egg.expert.containers import filled, flattened, subscripted, whole_texts
from egg.expert.reading.capture import capture
from tests.expert.captured import program
from tests.expert.scenarios import run, source

PYRAMID = program(
    "logits, boxes = given['logits'], given['boxes']; levels = [torch.relu(x) * scale for x in features];"
    " return {'scores': logits.sigmoid() + levels[0], 'boxes': boxes * levels[1].sum(1, keepdim=True)}",
    "[torch.randn(B, C), torch.randn(B, H)], {'logits': torch.randn(B, C), 'boxes': torch.randn(B, 4)}, 2.0",
    knobs="B, C, H = 48, 16, 20",
    arguments="features, given, scale",
)
NAMED = program(
    "hidden = torch.relu(x); return Found(hidden * 2.0, [hidden.sum(-1)])",
    "torch.randn(B, C)",
    knobs="""
from typing import NamedTuple


class Found(NamedTuple):
    hidden: torch.Tensor
    sums: list


B, C = 48, 16""",
)


def test_arguments_in_containers_are_arguments_by_themselves() -> None:
    x, y = torch.ones(2), torch.ones(3)
    given = [("levels", [x, (y, 1)]), ("levels_0", x), ("held", {"a-b": y})]
    flat = flattened(given, {"held_a_b"})
    assert [name for name, _ in flat.arguments] == [
        "levels_0_",
        "levels_1_0",
        "levels_1_1",
        "levels_0",
        "held_a_b_",
    ]
    assert filled([value for _, value in given], iter(range(5))) == [[0, (1, 2)], 3, {"a-b": 4}]
    texts = whole_texts(flat.paths, flat.containers)
    assert texts == ["[levels_0_, (levels_1_0, levels_1_1)]", "levels_0", "{'a-b': held_a_b_}"]
    assert (
        flat.containers[1].differs("levels[1]") == "not isinstance(levels[1], tuple) or len(levels[1]) != 2"
    )
    assert subscripted("held", flat.paths["held_a_b_"][1:]) == "held['a-b']"


def test_sizes_in_containers_are_the_callers() -> None:
    graph = capture(PYRAMID)
    assert graph.arguments == ("features_0", "features_1", "given_logits", "given_boxes", None)
    shapes = {str(name): graph.value(str(name)).shape for name in graph.arguments[:4]}
    assert shapes["features_0"] == shapes["given_logits"]
    assert shapes["features_1"][0] == shapes["given_boxes"][0]
    assert graph.symbols[shapes["given_boxes"][0].code()] == "features_1.shape[0]"
    assert [value.free for value in graph.usage.values] == [True]


def test_a_file_takes_containers_as_the_program_does() -> None:
    text = source(PYRAMID)
    assert Domain.of_source(text) is None
    run(
        text,
        PYRAMID,
        """
theirs, ours = made()
def alike(theirs, ours, *given):
    torch.testing.assert_close(ours(*given), theirs(*given))
def call(rows, columns=16):
    x = [torch.randn(rows, columns), torch.randn(rows, 24)]
    return x, {"logits": torch.randn(rows, columns), "boxes": torch.randn(rows, 4)}, 3.0
with torch.no_grad():
    alike(theirs, ours, *call(48))
    alike(theirs, ours, *call(5, 7))
    features, given, scale = call(6)
    alike(theirs, ours, features, {key: x.t().contiguous().t() for key, x in given.items()}, scale)
    raises(ValueError, "features is something else", ours, tuple(features), given, scale)
    raises(ValueError, "a list of 2", ours, features[:1], given, scale)
    raises(ValueError, "a dictionary of logits, boxes", ours, features, {"logits": given["logits"]}, scale)
    fewer = {**given, "boxes": torch.randn(3, 4)}
    raises(ValueError, "given_boxes has the shape", ours, features, fewer, scale)
    raises(TypeError, "given_boxes is None", ours, features, {**given, "boxes": None}, scale)
features[1].requires_grad_()
assert ours(features, given, scale)["boxes"].requires_grad
assert not ours(*call(4))["boxes"].requires_grad
""",
    )


def test_a_file_returns_named_tuples_of_the_task() -> None:
    text = source(NAMED)
    run(
        text,
        NAMED,
        """
theirs, ours = made()
x = torch.randn(5, 16)
with torch.no_grad():
    made_here = ours(x)
    assert type(made_here).__name__ == "Found" and type(made_here.sums) is list
    torch.testing.assert_close([made_here.hidden, *made_here.sums], [theirs(x).hidden, *theirs(x).sums])
tied = ours(x.requires_grad_())
assert tied.hidden.requires_grad and tied.sums[0].requires_grad
""",
    )
