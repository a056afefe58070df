"""Loading tasks, building models and inputs, precision switches, and other distributions."""

from __future__ import annotations

import inspect
import math
import sys
import textwrap

import pytest
import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.distributions import DISTRIBUTIONS, redraw, rerandomise, rescaled
from egg.evaluator.task.precision import precision_scope
from egg.evaluator.task.program import Program, map_tensors, outputs_of, to_double

CPU = torch.device("cpu")
HEADER = "import torch\nimport torch.nn as nn\n"
LINEAR = """
    class Model(nn.Module):
        def __init__(self, width, scale=1.0):
            super().__init__()
            self.linear = nn.Linear(width, width)
            self.norm = nn.BatchNorm1d(width)
            self.scale = scale
        def forward(self, x, index):
            return self.norm(self.linear(x)) * self.scale
    def get_inputs():
        return [torch.rand(6, 4).t(), torch.arange(4)]
    def get_init_inputs():
        return [6]
    """


def task(source: str, name: str = "sample") -> Task:
    return Task(name, HEADER + textwrap.dedent(source))


@pytest.fixture
def linear():
    with Program.load(task(LINEAR)) as program:
        yield program


def test_load_gives_a_module_that_inspect_can_read(linear):
    model = linear.build(0, CPU, Precision.MATCH)
    assert "self.linear = nn.Linear" in inspect.getsource(type(model))
    assert sys.modules[linear.module.__name__] is linear.module


def test_two_loads_share_nothing_and_unload_forgets():
    one, two = Program.load(task(LINEAR)), Program.load(task(LINEAR))
    assert one.module.__name__ != two.module.__name__
    one.unload()
    assert one.module.__name__ not in sys.modules
    assert two.module.__name__ in sys.modules
    two.unload()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (LINEAR + "\n    raise ValueError('broken on purpose')", "broken on purpose"),
        (LINEAR + "\n    import no_such_package_anywhere", "no_such_package_anywhere"),
        (LINEAR + "\n    import sys\n    sys.exit(0)", "SystemExit"),
        (LINEAR + "\n    get_inputs = 3", "get_inputs is not callable"),
    ],
)
def test_source_that_does_not_run_is_a_task_error(source, message):
    before = set(sys.modules)
    with pytest.raises(TaskError, match=message):
        Program.load(task(source))
    assert not [m for m in set(sys.modules) - before if m.startswith("egg_task_")]


def test_build_is_kernelbench_seeding_and_training_mode(linear):
    built = linear.build(7, CPU, Precision.MATCH)
    torch.manual_seed(7)
    expected = nn.Linear(6, 6)
    assert torch.equal(built.linear.weight, expected.weight)
    assert built.training


def test_half_precision_casts_floats_and_never_integers(linear):
    model = linear.build(0, CPU, Precision.BF16)
    x, index = linear.inputs(0, CPU, Precision.BF16)
    assert model.linear.weight.dtype == model.norm.running_mean.dtype == x.dtype == torch.bfloat16
    assert model.norm.num_batches_tracked.dtype == index.dtype == torch.int64


@pytest.mark.parametrize("precision", [Precision.MATCH, Precision.FP16])
def test_inputs_keep_the_strides_the_task_gave_them(linear, precision):
    x, _ = linear.inputs(3, CPU, precision)
    assert (x.shape, x.stride()) == ((4, 6), (1, 4))


def test_expanded_and_sliced_inputs_keep_their_layout_when_cast():
    source = LINEAR.replace(
        "torch.rand(6, 4).t(), torch.arange(4)", "torch.rand(6).expand(4, 6), torch.rand(8, 6)[::2, 1:5]"
    )
    with Program.load(task(source)) as program:
        full = program.inputs(3, CPU, Precision.MATCH)
        half = program.inputs(3, CPU, Precision.BF16)
    assert [t.stride() for t in half] == [t.stride() for t in full] == [(0, 1), (12, 1)]
    for wide, narrow in zip(full, half, strict=True):
        assert torch.equal(wide.bfloat16(), narrow)


def test_inputs_depend_on_the_seed_alone(linear):
    first, again, other = (linear.inputs(seed, CPU, Precision.MATCH)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_inputs_on_a_device_that_get_inputs_cannot_use_are_moved():
    source = LINEAR.replace(
        "torch.rand(6, 4).t()", "torch.rand(6, 4, generator=torch.Generator('cpu'), device='cpu')"
    )
    with Program.load(task(source)) as program:
        x, index = program.inputs(0, torch.device("meta"), Precision.MATCH)
    assert x.device.type == index.device.type == "meta"


@pytest.mark.parametrize(
    ("returned", "args", "kwargs"),
    [
        ("[6]", [6], {}),
        ("[[6], {'scale': 2.0}]", [6], {"scale": 2.0}),
        ("{'width': 6}", [], {"width": 6}),
        ("[[6], {'unknown': 1}]", [[6], {"unknown": 1}], {}),
    ],
)
def test_constructor_arguments(returned, args, kwargs):
    with Program.load(task(LINEAR.replace("return [6]", f"return {returned}"))) as program:
        assert program.init_arguments() == (args, kwargs)


def test_wrong_constructor_arguments_are_named():
    with (
        Program.load(task(LINEAR.replace("return [6]", "return [6, 1.0, 'extra']"))) as program,
        pytest.raises(TaskError, match=r"Model\(6, 1.0, 'extra'\) does not fit Model\(width, scale=1.0\)"),
    ):
        program.build(0, CPU, Precision.MATCH)


def test_a_failing_forward_names_its_line(linear):
    model = linear.build(0, CPU, Precision.MATCH)
    with pytest.raises(TaskError, match=r"Model\.forward failed at line \d+"):
        linear.run(model, [torch.rand(4, 5), None])


def test_golden_is_fp64_and_touches_nothing(linear):
    model, inputs = linear.build(0, CPU, Precision.MATCH), linear.inputs(1, CPU, Precision.MATCH)
    before = [t.clone() for t in (*model.state_dict().values(), inputs[0])]
    golden = linear.golden(model, inputs)
    assert golden.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32
    after = [*model.state_dict().values(), inputs[0]]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    error = (golden - linear.run(model, inputs)).abs().max()
    assert 0 < error < 1e-5


def test_golden_covers_tensors_made_by_forward_and_held_as_attributes():
    source = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.held = torch.full((3, 3), 0.1)
            def forward(self, x):
                return torch.matmul(x, self.held) + torch.matmul(x, torch.ones(3, 3))
        def get_inputs():
            return [torch.rand(2, 3)]
        def get_init_inputs():
            return []
        """
    with Program.load(task(source)) as program:
        model, inputs = program.build(0, CPU, Precision.MATCH), program.inputs(0, CPU, Precision.MATCH)
        assert program.golden(model, inputs).dtype == torch.float64
        assert model.held.dtype == torch.float32


def test_to_double_leaves_integers_and_layout(linear):
    model, inputs = linear.build(0, CPU, Precision.MATCH), linear.inputs(0, CPU, Precision.MATCH)
    double, (x, index) = to_double(model, inputs)
    assert double.norm.num_batches_tracked.dtype == index.dtype == torch.int64
    assert (x.dtype, x.stride()) == (torch.float64, inputs[0].stride())
    assert index.data_ptr() != inputs[1].data_ptr()


def test_outputs_have_stable_names():
    one = torch.ones(1)
    assert [name for name, _ in outputs_of(one)] == ["0"]
    assert [name for name, _ in outputs_of((one, [one, 2.0]))] == ["0", "1.0", "1.1"]
    assert [name for name, _ in outputs_of({"loss": 1.0, "a": (one, one)})] == ["loss", "a.0", "a.1"]
    with pytest.raises(TaskError, match=r"str at 'a.1'"):
        outputs_of({"a": (one, "text")})


def test_map_tensors_keeps_sharing():
    shared = torch.ones(2)
    first, second, rest = map_tensors([shared, shared, ("x", 3)], torch.clone)
    assert first is second
    assert first is not shared
    assert rest == ("x", 3)


def switches() -> tuple[bool, bool, str]:
    return (
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
    )


@pytest.mark.parametrize(
    ("precision", "held"),
    [
        (Precision.FP32, (False, False, "highest")),
        (Precision.TF32, (True, True, "high")),
        (Precision.MATCH, (False, True, "highest")),
        (Precision.BF16, (False, True, "highest")),
        (Precision.FP16, (False, True, "highest")),
    ],
)
def test_precision_scope_sets_and_restores(precision, held):
    before = switches()
    with precision_scope(precision):
        assert switches() == held
    assert switches() == before


def test_precision_scope_nests_and_restores_after_an_error():
    before = switches()
    with precision_scope(Precision.TF32):
        with pytest.raises(ZeroDivisionError), precision_scope(Precision.FP32):
            _ = 1 / (0 if switches()[:2] == (False, False) else 1)
        assert switches()[:2] == (True, True)
    assert switches() == before


def test_precision_scope_survives_the_newer_interface():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with precision_scope(Precision.FP32):
            assert switches()[:2] == (False, False)
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.allow_tf32 = False
        matmul.fp32_precision = before
    assert switches() == (False, True, "highest")


@pytest.mark.parametrize("name", [d for d in DISTRIBUTIONS if d != "task"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_redraw_keeps_everything_but_the_values(name, dtype):
    index, flag = torch.arange(3), torch.tensor(True)
    inputs = [torch.rand(64, 33).to(dtype).t(), index, flag, 7, torch.rand(5).to(dtype).expand(4, 5)]
    drawn = redraw(inputs, name, 1)
    for old, new in ((inputs[0], drawn[0]), (inputs[4], drawn[4])):
        assert (new.shape, new.stride(), new.dtype) == (old.shape, old.stride(), old.dtype)
        assert not torch.equal(old, new)
    assert drawn[1] is index
    assert drawn[2] is flag
    assert drawn[3] == 7
    assert torch.equal(redraw(inputs, name, 1)[0], drawn[0])
    assert not torch.equal(redraw(inputs, name, 2)[0], drawn[0])


def test_redraw_has_the_named_shape_of_distribution():
    def draw(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return redraw([torch.zeros(200, 500, dtype=dtype)], name, 3)[0].double()

    assert math.isclose(float(draw("normal").std()), 1.0, rel_tol=0.02)
    assert -1 <= float(draw("uniform").min()) < -0.99 < 0.99 < float(draw("uniform").max()) < 1
    assert math.isclose(float(draw("tiny").std()), 1e-4, rel_tol=0.02)
    assert math.isclose(float(draw("large").std()), 1e2, rel_tol=0.02)
    assert math.isclose(float(draw("large", torch.float16).std()), 8.0, rel_tol=0.02)
    assert math.isclose(float((draw("sparse") == 0).double().mean()), 0.9, abs_tol=0.01)
    assert 20 < float(draw("heavy").abs().max()) <= 1e3
    assert float(draw("heavy", torch.float16).abs().max()) <= 64
    assert math.isclose(float((draw("heavy").abs() > 3.182).double().mean()), 0.05, abs_tol=0.005)


def test_redraw_task_is_the_inputs_and_unknown_names_are_refused():
    inputs = [torch.rand(3)]
    assert redraw(inputs, "task", 1) is inputs
    with pytest.raises(ValueError, match="unknown distribution"):
        redraw(inputs, "gamma", 1)


class Zoo(nn.Module):
    """Weights of every kind that initialisation leaves special."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)
        self.batch = nn.BatchNorm1d(64)
        self.scale = nn.Parameter(torch.ones(64))
        self.shift = nn.Parameter(torch.zeros(64))
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))


def test_rerandomise_leaves_nothing_special():
    torch.manual_seed(0)
    zoo = Zoo()
    spread = float(zoo.linear.weight.detach().std())
    zoo.batch.num_batches_tracked.fill_(5)
    rerandomise(zoo, 1)
    assert math.isclose(float(zoo.linear.weight.detach().std()), spread, rel_tol=0.1)
    for gain in (zoo.norm.weight, zoo.batch.weight, zoo.scale):
        assert 0.7 < float(gain.detach().mean()) < 1.3
        assert 0.15 < float(gain.detach().std()) < 0.45
    for bias in (zoo.linear.bias, zoo.norm.bias, zoo.batch.running_mean, zoo.shift):
        assert 0.15 < float(bias.detach().std()) < 0.45
    assert float(zoo.batch.running_var.min()) >= 0.5
    assert zoo.batch.num_batches_tracked == 5
    assert torch.equal(zoo.mask, torch.tril(torch.ones(8, 8)))


def test_borders_stay_in_order_when_drawn_anew():
    module = torch.nn.Module()
    module.register_buffer("borders", torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5]))
    module.register_buffer("scales", (torch.rand(4, 4) + 0.5).to(torch.float8_e4m3fn))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    rerandomise(module, 1)
    assert bool((module.borders.diff() > 0).all())
    assert all(not torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_rerandomise_leaves_what_no_state_dict_hands_over():
    """Rotary frequencies: the other side makes them in its constructor, and would keep the old ones."""
    module = nn.Module()
    module.register_buffer("inv_freq", torch.arange(4.0), persistent=False)
    module.register_buffer("kept", torch.arange(4.0))
    rerandomise(module, 1)
    assert torch.equal(module.get_buffer("inv_freq"), torch.arange(4.0))
    assert not torch.equal(module.get_buffer("kept"), torch.arange(4.0))


def test_rerandomise_is_a_function_of_the_seed_and_keeps_tying():
    torch.manual_seed(0)
    one, two, three = Zoo(), Zoo(), Zoo()
    two.load_state_dict(one.state_dict())
    three.load_state_dict(one.state_dict())
    one.tied = one.linear
    for zoo, seed in ((one, 1), (two, 1), (three, 2)):
        rerandomise(zoo, seed)
    assert torch.equal(one.linear.weight, two.linear.weight)
    assert not torch.equal(one.linear.weight, three.linear.weight)
    assert one.tied.weight is one.linear.weight


def test_a_table_at_another_scale_repeats_what_it_repeated() -> None:
    half = torch.linspace(-2.0, 2.0, 17)
    table = torch.cat([half, half, -half])
    other = rescaled(table, 3)
    assert torch.equal(other[:17], other[17:34])
    assert torch.equal(other[:17], -other[34:])
    assert other[8] == 0.0
    share = (other / table)[table != 0.0]
    assert bool(((share > 0.6) & (share < 0.9)).all())
    assert float(share.max() - share.min()) > 0.01  # one element does not tell the scale of the others


def test_masks_and_integers_are_not_put_at_another_scale() -> None:
    for table in (torch.tensor([0.0, -torch.inf, 0.0]), torch.arange(5), torch.ones(3, dtype=torch.bool)):
        assert torch.equal(rescaled(table, 3), table)
