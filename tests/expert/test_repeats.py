"""Repeated blocks of ``forward`` as a loop: it computes what the blocks compute one by one."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.policy import LibraryCalls
from egg.evaluator.static import findings
from egg.expert.writing import repeats
from egg.expert.writing.repeats import rolled
from tests.expert import elsewhere, harness

Blocks = list[tuple[str, list[str]]]


class _Layers:
    """``self`` of a made-up module: whatever is read from it is the text of its path."""

    def __init__(self, path: str = "self") -> None:
        self._path = path

    def __getattr__(self, name: str) -> _Layers:
        return _Layers(f"{self._path}.{name}")

    def __getitem__(self, number: int) -> _Layers:
        return _Layers(f"{self._path}[{number}]")


def _result(lines: list[str], returned: str) -> Any:
    """What ``forward`` returns and what it calls, in which order and with which arguments."""
    calls: list[str] = []

    def called(name: str) -> Any:
        def call(*given: Any) -> str:
            calls.append(f"{name}({', '.join(getattr(g, '_path', str(g)) for g in given)})")
            return f"<{len(calls)}>"

        return call

    space: dict[str, Any] = {name: called(name) for name in ("f", "g", "h")}
    text = "\n".join(["def forward(self, x, y, rows):", *lines, f"        return {returned}"])
    exec(text, space)
    return space["forward"](_Layers(), "x", "y", "rows"), calls


def _text(blocks: Blocks, results: list[str]) -> tuple[list[str], str]:
    rows, names = rolled(blocks, results, {"x", "y", "rows", "f", "g", "h"})
    return [line for row in rows for line in row], ", ".join(names.get(name, name) for name in results)


@st.composite
def _networks(draw: st.DrawFn) -> tuple[Blocks, list[str]]:
    """Layers of one form, some of which read or do something else, and what is returned of them."""
    period, passes = draw(st.integers(1, 3)), draw(st.integers(2, 6))
    made = ["x", "y"]
    reads = [draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)) for _ in range(period)]
    blocks: Blocks = []
    for number in range(passes * period):
        layer, place = divmod(number, period)
        odd = draw(st.integers(0, 9)) == 0
        back = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)) if odd else reads[place]
        values = [made[max(0, len(made) - step)] for step in back]
        size = draw(st.sampled_from(["rows", "8", str(8 * layer), "16"])) if odd else str(8 * (layer + place))
        name = f"value_{number}"
        function = draw(st.sampled_from("fgh")) if odd else "fgh"[place]
        path = f"self.layers[{layer}].part_{place}.weight"
        blocks.append((f"Layer {number}.", [f"{name} = {function}({', '.join([*values, path, size])})"]))
        made.append(name)
    return blocks, [made[-1], *draw(st.lists(st.sampled_from(made[2:]), max_size=1))]


@settings(max_examples=80, deadline=None)
@given(_networks())
def test_a_loop_calls_what_the_blocks_called_in_their_order(network: tuple[Blocks, list[str]]) -> None:
    blocks, results = network
    plain = [f"        {line}" for _, lines in blocks for line in lines]
    lines, returned = _text(blocks, results)
    assert _result(lines, returned) == _result(plain, ", ".join(results))


def _chain(passes: int, **other: str) -> Blocks:
    """Two calls for each layer, the second with the layer's input."""
    blocks: Blocks = []
    for number in range(passes):
        before = f"out_{number - 1}" if number else "x"
        first = f"in_{number} = f({before}, self.layers[{number + 1}].weight, self.layers[{number + 1}].bias)"
        blocks.append(("Into the layer.", [other.get(f"in_{number}", first)]))
        blocks.append(("Out of the layer.", [f"out_{number} = g(in_{number}, {before}, size=rows)"]))
    return blocks


def test_layers_of_one_container_are_counted() -> None:
    lines, returned = _text(_chain(6), ["out_5"])
    assert [line.strip() for line in lines] == [
        "out_0 = x",
        "for layer in (self.layers[at] for at in range(1, 7)):",
        "# Into the layer.",
        "in_0 = f(out_0, layer.weight, layer.bias)",
        "",
        "# Out of the layer.",
        "out_0 = g(in_0, out_0, size=rows)",
    ]
    assert returned == "out_0"


@pytest.mark.parametrize(
    ("blocks", "results"),
    [
        (_chain(2), ["out_1"]),
        (_chain(6), [f"out_{n}" for n in range(6)]),
        (_chain(5, in_2="in_2 = [f(x, layer) for layer in self.layers]"), ["out_4"]),
        (_chain(5, in_2="self.kept = in_2 = f(out_1)"), ["out_4"]),
    ],
    ids=["two of them", "all returned", "another scope", "assigns to self"],
)
def test_what_is_no_loop_stays_as_it_is(blocks: Blocks, results: list[str]) -> None:
    lines, returned = _text(blocks, results)
    assert not any(line.lstrip().startswith("for ") for line in lines)
    assert returned == ", ".join(results)


LAYERS = """
self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
"""
FORWARD = """
for layer, norm in zip(self.layers, self.norms):
    x = x + torch.tanh(norm(layer(x)))
return x
"""


def test_the_loop_in_a_file_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    source = elsewhere.program(FORWARD, "x = torch.randn(batch, width)", LAYERS, "width", batch=6, width=32)
    looped = elsewhere.written(source)
    monkeypatch.setattr(repeats, "FEWEST", 1000)
    spelled = elsewhere.written(source, "program ")
    assert re.search(r"for .*layer.* in", looped)
    assert len(looped.split("\n")) < len(spelled.split("\n"))
    assert not list(findings(looped, LibraryCalls.ALLOW))
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    torch.manual_seed(3)
    held = {"arguments": [32], "state": space["Model"](32).state_dict()}
    for batch in (6, 1, 11):
        x = torch.randn(batch, 32)
        one, other = (harness.execute(text + elsewhere.RUN, [x], held)[0] for text in (looped, spelled))
        assert torch.equal(one, other)
