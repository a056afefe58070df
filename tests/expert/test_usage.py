"""What a graph says of its use: sizes told apart, arguments free or fixed, modes, least sizes."""

from __future__ import annotations

import pytest

from egg.core.domain import Mode, ValueInput
from egg.core.source import Task
from egg.expert.graph import Graph, Origin
from egg.expert.reading.capture import capture
from tests.expert.captured import check, program, resized


def _built(task: Task, signature: str, given: str = "") -> Task:
    """With a constructor that takes arguments."""
    source = task.source.replace("__init__(self)", f"__init__(self, {signature})")
    return Task(task.name, source.replace("return []", f"return [{given}]"))


def _shapes(graph: Graph) -> dict[str, list[str]]:
    leaves = (value for value in graph.values.values() if value.origin is not Origin.NODE)
    return {value.path: [str(size) for size in value.shape] for value in leaves}


def _arguments(graph: Graph) -> dict[str, object]:
    return {a.name: "any" if a.free else a.value for a in graph.usage.arguments}


# -- sizes -----------------------------------------------------------------------------------------------

ATTENTION = """
B, T, C = x.shape
q, k, v = self.qkv(x).view(B, T, 3, 4, C // 4).permute(2, 0, 3, 1, 4)
a = (q @ k.transpose(-2, -1) / math.sqrt(C // 4)).masked_fill(mask[:, None, None] == 0, float("-inf"))
return (a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C)
""".strip().replace("\n", ";")


def test_small_literals_of_masked_attention_become_sizes() -> None:
    inputs = "torch.randn(4, 6, 24), torch.ones(4, 6)"
    task = program(ATTENTION, inputs, "self.qkv = nn.Linear(24, 72)", "", "x, mask")
    graph = capture(task)
    assert _shapes(graph)["x"] == ["batch_size", "length", "24"]
    assert _shapes(graph)["mask"] == ["batch_size", "length"]
    check(graph, resized(task, inputs, "torch.randn(7, 5, 24), torch.ones(7, 5)"))


def test_a_batch_and_a_width_of_one_literal_are_two_sizes() -> None:
    layers = "self.fc = nn.Linear(width, width)"
    task = _built(program("self.fc(x)", "torch.randn(512, 512)", layers, ""), "width", "512")
    graph = capture(task)
    batch, width = _shapes(graph)["x"]
    assert batch != width
    assert _shapes(graph)["fc.weight"] == [width, width]
    assert _arguments(graph) == {"width": "any"}


def test_sides_of_a_square_come_apart() -> None:
    graph = capture(program("x.sum(2)", "torch.randn(N, *size)", "pass", "N = 8\nsize = (32, 32)"))
    assert len(set(_shapes(graph)["x"])) == 3


def test_names_of_the_source_are_kept_where_a_dimension_moves_alone() -> None:
    task = program("a @ b", "torch.randn(N, N), torch.randn(N, N)", "pass", "N = 64", "a, b")
    shapes = _shapes(capture(task))
    assert shapes["a"][0] == "N"
    assert shapes["a"][1] == shapes["b"][0]
    assert len({*shapes["a"], *shapes["b"]}) == 3


def test_a_dimension_that_has_no_rule_does_not_bind_the_others() -> None:
    """How often the loop runs is no size of a graph; the batch is."""
    forward = "y = x;for _ in range(x.shape[1]): y = y * 1.1 + x;return y"
    graph = capture(program(forward, "torch.randn(6, 5)", "pass", ""))
    assert _shapes(graph)["x"] == ["rows", "5"]


def test_transposed_convolutions_have_one_number_of_channels() -> None:
    layers = "self.a = nn.ConvTranspose2d(channels, 8, 3)"
    task = program("self.a(x)", "torch.randn(4, 32, 9, 9)", layers, "channels = 32")
    shapes = _shapes(capture(task))
    assert shapes["x"][1] == shapes["a.weight"][0]


def test_an_expanded_input_is_captured_as_a_tensor_of_its_own() -> None:
    task = program("x * 2", "torch.randn(1, C).expand(B, C), torch.randn(C, B).t()", "pass", arguments="x, y")
    graph = capture(task)
    assert graph.value("x").contiguous
    assert [str(s) for s in graph.value("y").stride] == ["1", _shapes(graph)["y"][0]]


# -- arguments of the constructor ------------------------------------------------------------------------


def test_a_slope_is_read_from_the_module() -> None:
    layers = "self.act = nn.LeakyReLU(slope);self.scale = scale;self.residual = residual"
    forward = "y = self.act(x) / self.scale;return y + x if self.residual else y"
    task = program(forward, "torch.randn(B, C)", layers)
    task = _built(task, "slope=0.01, scale=2.0, residual=False")
    graph = capture(task)
    assert _arguments(graph) == {"slope": "any", "scale": "any", "residual": False}
    assert graph.symbols["act_negative_slope"] == "self.act.negative_slope"
    assert "1.0 / self.scale" in graph.symbols.values()
    check(graph, Task("other", task.source.replace("return []", "return [0.2, 3.0]")))


def test_numbers_of_the_structure_are_fixed() -> None:
    layers = "self.a = nn.LayerNorm(width, eps=eps);self.p = nn.MaxPool1d(kernel)"
    task = program("self.p(self.a(x))", "torch.randn(B, W)", layers, "B, W = 8, 64")
    graph = capture(_built(task, "width, kernel, eps=1e-3", "W, 3"))
    assert _arguments(graph) == {"width": "any", "kernel": 3, "eps": 1e-3}


def test_a_number_that_switches_something_off_is_fixed() -> None:
    forward = "y = x * 2;return torch.tanh(y / self.cap) * self.cap if self.cap > 0 else y"
    task = program(forward, "torch.randn(B, C)", "self.cap = cap")
    assert _arguments(capture(_built(task, "cap", "30.0"))) == {"cap": 30.0}


def test_arguments_of_one_literal_are_told_apart() -> None:
    layers = "self.fc = nn.Linear(wide, out)"
    graph = capture(_built(program("self.fc(x)", "torch.randn(40, 64)", layers, ""), "wide, out", "64, 64"))
    wide, out = _shapes(graph)["x"][1], _shapes(graph)["fc.weight"][0]
    assert wide != out
    assert _arguments(graph) == {"wide": "any", "out": "any"}


def test_arguments_that_nothing_tells_apart_are_fixed() -> None:
    """A number of rounds has no name in a graph: it must not pass for the width that it happens to equal."""
    forward = "for _ in range(self.rounds): x = x * 1.5\n        return x.view(-1, self.width)"
    layers = "self.width = width;self.rounds = rounds"
    task = program(forward, "torch.randn(40, 32)", layers, "")
    graph = capture(_built(task, "width, rounds", "32, 32"))
    assert _arguments(graph)["rounds"] == 32


def test_numbers_within_a_list_may_be_any_where_they_varied() -> None:
    task = program("x + self.bias", "torch.randn(B, C, H, W)", "self.bias = nn.Parameter(torch.ones(shape))")
    graph = capture(_built(task, "shape, names=('a',)", "(C, 1, 1)"))
    assert _arguments(graph) == {"shape": ["any", 1, 1], "names": ["a"]}


def test_arguments_that_no_literal_holds_are_told_by_their_text() -> None:
    task = program("x.to(self.dtype)", "torch.randn(B, C)", "self.dtype = dtype;self.act = act")
    graph = capture(_built(task, "dtype, act=nn.ReLU()", "torch.float16"))
    assert _arguments(graph) == {"dtype": "repr:torch.float16", "act": "repr:ReLU()"}


def test_a_constructor_that_uses_numpy_is_captured() -> None:
    pytest.importorskip("numpy")
    layers = "import numpy as np;self.register_buffer('w', torch.from_numpy(np.ones((16, 4), 'float32')))"
    graph = capture(program("x @ self.w", "torch.randn(B, C)", layers))
    assert _shapes(graph)["w"] == ["16", "4"]


# -- arguments of forward --------------------------------------------------------------------------------


def test_optional_arguments_that_the_task_leaves_out_are_absent() -> None:
    forward = "out, _ = self.lstm(x, None if h0 is None else (h0, c0));return out"
    layers = "self.lstm = nn.LSTM(16, 32)"
    graph = capture(program(forward, "torch.randn(5, 4, 16)", layers, "", "x, h0=None, c0=None"))
    assert graph.usage.values == (ValueInput("h0"), ValueInput("c0"))


def test_states_that_a_recurrent_layer_is_given_are_read() -> None:
    inputs = "torch.randn(5, 4, 16), torch.randn(1, 4, 32), torch.randn(1, 4, 32)"
    layers = "self.lstm = nn.LSTM(16, 32)"
    graph = capture(program("self.lstm(x, (h, c))[0]", inputs, layers, "", "x, h, c"))
    node = next(node for node in graph if node.op == "recurrent")
    assert {"h", "c"} <= set(node.inputs)
    assert _shapes(graph)["h"][1] == _shapes(graph)["x"][1]


def test_numbers_that_forward_is_given_are_read_by_name() -> None:
    task = program("x * k", "torch.randn(B, C), 0.5", arguments="x, k, flag=True")
    graph = capture(task)
    assert graph.usage.values == (ValueInput("k", free=True), ValueInput("flag", True))
    assert "k" in graph.symbols.values()


def test_a_number_that_decides_the_structure_is_fixed() -> None:
    task = program("x.sum(dim)", "torch.randn(B, C, H), 1", arguments="x, dim")
    assert capture(task).usage.values == (ValueInput("dim", 1),)


def test_further_keywords_are_captured_as_none() -> None:
    graph = capture(program("x * 2", "torch.randn(B, C)", arguments="x, **more"))
    assert (graph.arguments, graph.usage.values) == (("x",), ())


def test_any_number_of_arguments_is_the_number_of_the_captured_call() -> None:
    inputs = "torch.randn(B, C), torch.randn(B, C), 0.5, torch.randn(C)"
    task = program("x * more[0] * more[1] + more[2] * e", inputs, arguments="x, *more, e=2.0")
    graph = capture(task)
    assert graph.arguments == ("x", "more_0", None, "more_2")
    assert graph.usage.values == (ValueInput("more_1", free=True), ValueInput("e", 2.0))


def test_numbered_arguments_do_not_take_the_name_of_another() -> None:
    task = program("x_0 + x[0]", "torch.randn(B, C), torch.randn(B, C)", arguments="x_0, *x")
    assert capture(task).arguments == ("x_0", "x__0")


# -- modes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "modes", "modal", "frozen"),
    [
        ("self.a = nn.Dropout(0.3)", [Mode.TRAIN], ("a",), ()),
        ("self.a = nn.Dropout(0.0)", [Mode.TRAIN, Mode.EVAL], (), ()),
        ("self.a = nn.BatchNorm1d(16);self.eval()", [Mode.EVAL], ("a",), ()),
        ("self.a = nn.BatchNorm1d(16, track_running_stats=False)", [Mode.TRAIN, Mode.EVAL], (), ()),
        ("self.a = nn.BatchNorm1d(16).eval()", [Mode.TRAIN], (), ("a",)),
        ("self.a = nn.ReLU()", [Mode.TRAIN, Mode.EVAL], (), ()),
    ],
)
def test_modes(layers: str, modes: list[Mode], modal: tuple[str, ...], frozen: tuple[str, ...]) -> None:
    usage = capture(program("self.a(x)", "torch.randn(B, C)", layers)).usage
    assert (list(usage.modes), usage.modal, usage.frozen) == (modes, modal, frozen)


def test_a_model_that_reads_its_own_mode_is_named() -> None:
    usage = capture(program("F.dropout(x, 0.2, self.training)", "torch.randn(B, C)")).usage
    assert (usage.modes, usage.modal) == ((Mode.TRAIN,), ("",))


# -- sizes that change the program -----------------------------------------------------------------------


def test_a_size_of_one_that_is_squeezed_away_is_kept_out() -> None:
    graph = capture(program("x.squeeze().sum(-1)", "torch.randn(6, 5)", "pass", ""))
    assert set(graph.usage.least.values()) == {2}


@pytest.mark.parametrize(
    "forward",
    [
        "x * 2 if x.shape[1] > 40 else torch.tanh(x)",
        "x * (0.5 if x.shape[1] > self.most else 1.0)",
        "x[:, : min(x.shape[1], 40)]",
        "torch.tanh(x) if x.shape[1] % 2 else x * 2",
    ],
)
def test_a_size_that_the_program_asks_for_stays_what_it_is(forward: str) -> None:
    graph = capture(program(forward, "torch.randn(6, 32)", "self.most = 40", ""))
    assert _shapes(graph)["x"] == ["rows", "32"]
    assert "x_1" not in str(graph.symbols)


def test_plain_use_has_no_bounds() -> None:
    usage = capture(program("torch.relu(x)", "torch.randn(B, C)")).usage
    assert (usage.arguments, usage.values, usage.least) == ((), (), {})


def test_an_argument_that_decides_by_equality_is_fixed() -> None:
    """A block that adds its input only where it has as many channels as it makes."""
    forward = "y = self.fc(x);return y + x if self.wide == self.out else y"
    layers = "self.fc = nn.Linear(wide, out);self.wide, self.out = wide, out"
    task = program(forward, "torch.randn(B, C)", layers, "B, C, D = 8, 64, 48")
    fixed = _arguments(capture(_built(task, "wide, out", "C, D")))
    assert 48 in fixed.values() or 64 in fixed.values()


def test_a_size_that_another_input_is_twice_of_is_free() -> None:
    task = program("torch.cat([x, x], 1) + y", "torch.randn(B, C), torch.randn(B, 2 * C)", arguments="x, y")
    shapes = _shapes(capture(task))
    assert shapes == {"x": ["B", "C"], "y": ["B", "C * 2"]}


def test_a_column_stays_a_column_and_a_batch_of_one_does_not() -> None:
    task = program("x @ y", "torch.randn(1, 6, 8), torch.randn(8, 1)", "pass", "", "x, y")
    shapes = _shapes(capture(task))
    assert shapes["x"][0] == "batch_size"
    assert shapes["y"][1] == "1"


def test_a_size_that_a_pool_rounds_stays_what_it_is() -> None:
    layers = "self.fc = nn.Linear(7 * 3, 10)"
    forward = "self.fc(F.max_pool1d(x, 32).flatten(1))"
    shapes = _shapes(capture(program(forward, "torch.randn(B, 3, 224)", layers, "B = 8")))
    assert shapes["x"] == ["B", "3", "224"]
