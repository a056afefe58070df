"""Tasks at other sizes: what counts as a knob, what it costs, how far it is turned."""

from __future__ import annotations

import textwrap
import time

import pytest
import torch

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task import rescale as module_under_test
from egg.evaluator.task.knobs import rewritten
from egg.evaluator.task.program import Program, outputs_of
from egg.evaluator.task.rescale import CannotRescale, OutOfTime, cost_of, find_knobs, rescale

BUDGET = {"max_flops": 3e8, "max_elements": 10_000_000}


def task(source: str, name: str = "sample") -> Task:
    return Task(name, "import torch\nimport torch.nn as nn\n" + textwrap.dedent(source))


def runs(rescaled: Task) -> list[torch.Size]:
    cpu = torch.device("cpu")
    with Program.load(rescaled) as program:
        value = program.run(program.build(0, cpu, Precision.MATCH), program.inputs(0, cpu, Precision.MATCH))
    return [v.shape for _, v in outputs_of(value) if isinstance(v, torch.Tensor)]


PRODUCT = task(
    """
    class Model(nn.Module):
        def forward(self, a, b):
            return a @ b
    M = 1024 * 4
    K, N = 2048, 1 << 12  # the inner size, the columns
    def get_inputs():
        return [torch.rand(M, K), torch.rand(K, N)]
    def get_init_inputs():
        return []
    """
)

GROUPED = task(
    """
    class Model(nn.Module):
        def __init__(self, channels, groups, size):
            super().__init__()
            self.conv = nn.Conv2d(channels, channels, 3, padding=1)
            self.norm = nn.GroupNorm(groups, channels)
            self.bias = nn.Parameter(torch.zeros(channels, *size))
        def forward(self, x):
            return self.norm(self.conv(x) + self.bias)
    batch_size = 64
    channels = 256
    groups = 16
    size = (128, 128)
    def get_inputs():
        return [torch.rand(batch_size, channels, *size)]
    def get_init_inputs():
        return [channels, groups, size]
    """
)


def test_knobs_are_module_level_integers_and_input_literals():
    sample = task(
        """
        class Model(nn.Module):
            def forward(self, x):
                return x * 100
        width: int = 2 * 512
        doubled = width * 2
        rate = 0.5
        flag = True
        negative = -64
        shape = [3, 224, 224]
        layers = [1024] * 8
        rows, columns = 7, 9 - 1
        def get_inputs():
            return [torch.rand(4, 48)]
        def get_init_inputs():
            return [48]
        """
    )
    knobs = {k.name: k.value for k in find_knobs(sample.source)}
    assert knobs == {
        "width": 1024,
        "shape[0]": 3,
        "shape[1,2]": 224,
        "layers[0]": 1024,
        "rows": 7,
        "columns": 8,
        "literal 48": 48,
    }
    literal = next(k for k in find_knobs(sample.source) if k.name == "literal 48")
    assert len(literal.spans) == 2


def test_cost_counts_the_product_exactly_and_all_elements():
    cost = cost_of(PRODUCT)
    assert cost.flops == 2 * 4096 * 2048 * 4096
    assert cost.elements == 4096 * 2048 + 2048 * 4096 + 4096 * 4096
    assert cost.shapes == ((4096, 2048), (2048, 4096), (4096, 4096))


def test_views_and_in_place_operators_make_no_elements():
    sample = task(
        """
        class Model(nn.Module):
            def forward(self, x):
                return x.view(-1).relu_().reshape(8, 4).transpose(0, 1)
        def get_inputs():
            return [torch.rand(4, 8)]
        def get_init_inputs():
            return []
        """
    )
    assert cost_of(sample).elements == 32


def test_a_task_within_the_budget_is_left_alone():
    same = rescale(PRODUCT, max_flops=1e12, max_elements=10**9)
    assert same.changes == {}
    assert same.task.source == PRODUCT.source


def test_a_product_shrinks_in_all_its_sizes_and_keeps_the_rest_of_its_source():
    small = rescale(PRODUCT, **BUDGET)
    assert small.cost.flops <= BUDGET["max_flops"]
    assert small.cost.elements <= BUDGET["max_elements"]
    values = {name: new for name, (_, new) in small.changes.items()}
    assert set(values) == {"M", "K", "N"}
    assert max(values.values()) <= 2 * min(values.values())
    assert all(old % new == 0 for old, new in small.changes.values())
    assert "# the inner size, the columns" in small.task.source
    assert runs(small.task) == [torch.Size([values["M"], values["N"]])]


def test_the_batch_goes_first_and_alone_if_that_is_enough():
    cost = cost_of(GROUPED)
    small = rescale(GROUPED, max_flops=cost.flops / 10, max_elements=cost.elements)
    assert small.changes == {"batch_size": (64, 4)}
    with pytest.raises(CannotRescale):
        rescale(GROUPED, **BUDGET, batch_only=True)


def test_divisibility_survives_and_small_integers_are_left_alone():
    small = rescale(GROUPED, **BUDGET)
    assert small.changes["batch_size"] == (64, 2)
    assert "groups" not in small.changes
    assert small.changes.get("channels", (256, 256))[1] % 16 == 0
    [shape] = runs(small.task)
    assert shape[2] == shape[3]


def test_sizes_written_as_literals_change_together():
    sample = task(
        """
        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.linear = nn.Linear(width, 64)
            def forward(self, x):
                return self.linear(x)
        def get_inputs():
            return [torch.rand(4096, 8192)]
        def get_init_inputs():
            return [8192]
        """
    )
    small = rescale(sample, max_flops=1e8, max_elements=1_000_000)
    assert set(small.changes) >= {"literal 8192"}
    assert runs(small.task)


def test_a_constructor_that_looks_at_data_is_built_for_real():
    sample = task(
        """
        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                rates = [r.item() for r in torch.linspace(0, 0.5, 3)]
                self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in rates))
                nn.init.trunc_normal_(self.layers[0].weight)
                nn.init.trunc_normal_(self.layers[1].weight, mean=2.0, a=-1.0, b=1.0)
                self.register_buffer("scale", torch.empty(width).normal_())
                assert self.scale.isfinite().all()
            def forward(self, x):
                return self.layers(x) * self.scale
        batch_size = 1024
        width = 2048
        def get_inputs():
            return [torch.rand(batch_size, width)]
        def get_init_inputs():
            return [width]
        """
    )
    small = rescale(sample, **BUDGET)
    assert small.cost.elements <= BUDGET["max_elements"]
    assert runs(small.task)


RECURRENT = task(
    """
    class Model(nn.Module):
        def __init__(self, inputs, hidden):
            super().__init__()
            self.lstm = nn.LSTM(inputs, hidden, num_layers=2, bidirectional=True, batch_first=True)
            self.gru = nn.GRU(2 * hidden, hidden)
        def forward(self, x):
            y, (h, c) = self.lstm(x)
            z, _ = self.gru(y)
            return z, h, c
    batch_size = 8
    steps = 512
    inputs = 64
    hidden = 32
    def get_inputs():
        return [torch.rand(batch_size, steps, inputs)]
    def get_init_inputs():
        return [inputs, hidden]
    """
)


def test_recurrent_layers_are_costed_whole_and_fast():
    started = time.process_time()
    cost = cost_of(RECURRENT)
    assert time.process_time() - started < 2.0
    first, second = 2 * (4 * 32 * 64 + 4 * 32 * 32), 2 * (4 * 32 * 64 + 4 * 32 * 32)
    gru = 3 * 32 * 64 + 3 * 32 * 32
    assert cost.flops == 2 * 8 * 512 * (first + second + gru)
    assert cost.shapes[-3:] == ((8, 512, 32), (4, 8, 32), (4, 8, 32))
    assert runs(RECURRENT) == [torch.Size(s) for s in cost.shapes[-3:]]


def test_a_long_python_loop_is_cut_until_it_can_be_measured(monkeypatch):
    sample = task(
        """
        class Model(nn.Module):
            def forward(self, x):
                state = torch.zeros_like(x[0])
                for step in x:
                    state = torch.tanh(state + step)
                return state
        steps = 1 << 15
        def get_inputs():
            return [torch.rand(steps, 4)]
        def get_init_inputs():
            return []
        """
    )
    with pytest.raises(OutOfTime):
        cost_of(sample, seconds=0.1)
    monkeypatch.setattr(module_under_test, "cost_of", lambda t: cost_of(t, seconds=0.1))
    small = rescale(sample, **BUDGET)
    assert small.changes["steps"][1] <= 1 << 14


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return x.reshape(-1)[torch.arange(int(x.sum()))]", "does not run on meta tensors"),
        ("return x @ torch.rand(1 << 13, 1 << 13)", "sizes tried, best n=16"),
    ],
)
def test_what_cannot_be_rescaled_says_what_was_tried(body, message):
    sample = task(
        f"""
        class Model(nn.Module):
            def forward(self, x):
                {body}
        n = 16
        def get_inputs():
            return [torch.rand(n, 1 << 13)]
        def get_init_inputs():
            return []
        """
    )
    with pytest.raises(CannotRescale, match=message) as caught:
        rescale(sample, max_flops=1e6, max_elements=10**6, keep_at_least=16)
    assert isinstance(caught.value, TaskError)


def test_a_task_without_knobs_says_so():
    sample = task(
        """
        class Model(nn.Module):
            def forward(self, x):
                return x @ x
        def get_inputs():
            return [torch.rand(2**12, 2**12)]
        def get_init_inputs():
            return []
        """
    )
    with pytest.raises(CannotRescale, match="no integers"):
        rescale(sample, **BUDGET)


@pytest.mark.parametrize("odd", ["\x0c", "\u2028", "\x1c", "\x85"])
def test_a_character_that_only_some_call_a_line_end_moves_nothing(odd: str) -> None:
    source = f'note = "a{odd}b"\nbatch = 128\n'
    knobs = find_knobs(source)
    assert rewritten(source, [(knobs[0], 2)]) == f'note = "a{odd}b"\nbatch = 2\n'


def test_no_tensor_loses_all_its_elements():
    """A table of ``width // group`` rows is looked up without data at any size; with data it needs a row."""
    sample = task(
        """
        width = 4096
        group = 128
        class Model(nn.Module):
            def __init__(self, width, group):
                super().__init__()
                self.register_buffer("scales", torch.rand(width // group, width))
                self.register_buffer("groups", torch.arange(width) // group)
            def forward(self, x):
                return x @ self.scales[self.groups]
        def get_inputs():
            return [torch.rand(64, width)]
        def get_init_inputs():
            return [width, group]
        """
    )
    small = rescale(sample, max_flops=3e7, max_elements=40_000)
    sizes = {name: after for name, (_, after) in small.changes.items()}
    assert sizes["width"] < 4096
    assert sizes["width"] >= sizes.get("group", 128)
    assert runs(small.task) == [torch.Size([sizes.get("literal 64", 64), sizes["width"]])]
