"""Files that hold their own: inside the domain right in any layout, outside it an error, never a silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.core.domain import Argument, Mode, ValueInput
from egg.core.source import Task
from egg.expert.graph import Usage
from egg.expert.writing.domain import domain_of
from tests.expert.captured import program
from tests.expert.scenarios import LINEAR, graph, run, source

NORMS = program(
    "return self.a(self.norm(x)), self.b(x)",
    "torch.randn(B, C)",
    "self.norm = nn.BatchNorm1d(C); self.a = nn.Dropout(0.0); self.b = nn.ReLU()",
    "B, C = 8, 16",
)
# -- layouts, sizes, dtypes ----------------------------------------------------------------------------


def test_any_layout_is_right_and_everything_else_an_error() -> None:
    run(
        source(LINEAR),
        LINEAR,
        """
theirs, ours = made(24, 40)
alike(theirs, ours, torch.rand(6, 24))
alike(theirs, ours, torch.rand(24, 7).t())
alike(theirs, ours, torch.rand(5, 48)[:, ::2])
alike(theirs, ours, torch.rand(1, 24).expand(9, 24))
alike(theirs, ours, torch.rand(100)[3:51].view(2, 24))
raises(ValueError, "x is bfloat16, and these kernels are for float32", ours, torch.rand(6, 24).bfloat16())
raises(ValueError, "x has the shape (6, 23), and these kernels are for (6, 24)", ours, torch.rand(6, 23))
raises(ValueError, "x has 3 dimensions", ours, torch.rand(2, 6, 24))
raises(ValueError, "is 0, and these kernels are for 1 or more", ours, torch.rand(0, 24))
raises(TypeError, "x is None", ours.admit, None, None, None)
torch.set_autocast_enabled(True)
raises(ValueError, "autocast is enabled", ours, torch.rand(6, 24))
torch.set_autocast_enabled(False)
""",
    )


def test_admissions_are_bounded_and_forgotten_when_weights_may_be_others() -> None:
    run(
        source(LINEAR),
        LINEAR,
        """
theirs, ours = made(24, 40)
x = torch.rand(6, 24)
alike(theirs, ours, x)
for size in range(1, 1001):
    ours.admit((size,), x, None)
    assert len(ours.admitted) <= 256
assert list(ours.state_dict()) == list(theirs.state_dict())
other, third = copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))
alike(theirs, other, x)
alike(theirs, third, x)
other.to(torch.float64)
raises(ValueError, "layer.weight is torch.float64", other, x)
ours.load_state_dict({k: v.double() for k, v in ours.state_dict().items()}, assign=True)
raises(ValueError, "layer.weight is torch.float64", ours, x)
third.layer.weight = nn.Parameter(third.layer.weight.t().contiguous().t())
third.to(x.device)
raises(ValueError, "layer.weight has the strides (1, 40), and these kernels are for contiguous", third, x)
""",
    )


CHANNELS = program(
    "return torch.relu(x), x.permute(0, 2, 1, 3) + 1, x.mT @ x",
    "torch.randn(B, 5, H, 9).to(memory_format=torch.channels_last)",
    knobs="B, H = 3, 10",
)


def test_results_lie_in_memory_as_pytorch_has_them() -> None:
    run(
        source(CHANNELS),
        CHANNELS,
        """
theirs, ours = made()
x = torch.randn(3, 5, 10, 9)
with torch.no_grad():
    turned = x.transpose(2, 3).contiguous().mT
    for given in (x, x.to(memory_format=torch.channels_last), x[:, :, ::2], turned):
        want, got = theirs(given.to(memory_format=torch.channels_last)), ours(given)
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
""",
    )


# -- gradients -------------------------------------------------------------------------------------------


def test_a_gradient_is_refused_and_never_lost() -> None:
    run(
        source(LINEAR),
        LINEAR,
        """
theirs, ours = made(24, 40)
x = torch.rand(6, 24, requires_grad=True)
y = alike(theirs, ours, x)
assert y.requires_grad
y += 1
y.sum().item()
raises(RuntimeError, "forward only", y.sum().backward)
raises(RuntimeError, "forward only", torch.autograd.grad, ours(x).sum(), x, allow_unused=True)
for parameter in ours.parameters():
    parameter.requires_grad_(False)
raises(RuntimeError, "forward only", ours(x).sum().backward)
assert not ours(x.detach()).requires_grad
with torch.no_grad():
    assert not ours(x).requires_grad
with torch.inference_mode():
    assert ours(x).is_inference()
alike(theirs, ours, x.detach())
""",
    )


SEVERAL = program(
    "y = self.norm(self.fc(x)); return y, y.argmax(1)",
    "torch.randn(B, C)",
    "self.fc = nn.Linear(C, C); self.norm = nn.BatchNorm1d(C)",
    "B, C = 8, 16",
)


@pytest.mark.parametrize("replay", ["True", "False"])
def test_every_floating_result_has_a_gradient_to_refuse_and_buffers_move_once(replay: str) -> None:
    text = source(SEVERAL, None, f"set file replay {replay}")
    assert ("torch.cuda.graph(" in text) == (replay == "True")
    run(
        text,
        SEVERAL,
        """
theirs, ours = made()
x = torch.randn(8, 16)
for _ in range(3):
    y, place = alike(theirs, ours, x)
assert y.requires_grad and not place.requires_grad
raises(RuntimeError, "forward only", y.sum().backward)
torch.testing.assert_close(theirs.norm.running_mean, ours.norm.running_mean)
torch.testing.assert_close(theirs.norm.running_var, ours.norm.running_var)
alike(theirs, ours, torch.randn(16, 8).t())
ours.norm.eval()
raises(ValueError, "a layer is in eval mode, and these kernels are for train mode", ours, x)
ours.train()
ours(x)
""",
    )


# -- modes, values, arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize("modal", [("norm", "a"), ("", "norm", "a")])
def test_a_layer_that_is_switched_alone_is_seen(modal: tuple[str, ...]) -> None:
    run(
        source(NORMS, Usage(modes=(Mode.TRAIN,), modal=modal)),
        NORMS,
        """
theirs, ours = made()
x = torch.randn(8, 16)
ours(x)
for layer in (ours.norm, ours.a):
    layer.eval()
    raises(ValueError, "eval mode", ours, x)
    layer.train()
    ours(x)
other = copy.deepcopy(ours)
other.norm.eval()
ours(x)
raises(ValueError, "eval mode", other, x)
""",
    )


def test_fixed_values_and_arguments_are_held_to() -> None:
    usage = Usage(
        values=(ValueInput("mask", None),),
        arguments=(
            Argument("inner", free=True),
            Argument("outer", free=True),
            Argument("slope", 0.01),
            Argument("residual", False),
        ),
    )
    text = source(LINEAR, usage)
    assert "slope = 0.01 only; residual = False only" in " ".join(text.split())
    run(
        text,
        LINEAR,
        """
theirs, ours = made(24, 40)
x = torch.rand(6, 24)
alike(theirs, ours, x, None)
raises(ValueError, "mask is tensor", ours, x, torch.rand(6, 40))
raises(ValueError, "mask is 3, and these kernels are for None", ours, x, mask=3)
alike(*made(24, 40, 0.01), x)
alike(*made(24, outer=8, slope=0.01, residual=False), x)
raises(ValueError, "slope is 0.2, and these kernels are for 0.01", ModelNew, 24, 40, 0.2)
raises(ValueError, "residual is True, and these kernels are for False", ModelNew, 24, 40, residual=True)
""",
    )


def test_what_the_capture_found_free_is_right_and_what_it_saw_once_is_held_to() -> None:
    run(
        source(LINEAR),
        LINEAR,
        """
x = torch.randn(6, 24)
alike(*made(24, 40, 0.2), x)
alike(*made(24, outer=33, slope=-1.5), x)
raises(ValueError, "residual is True, and these kernels are for False", ModelNew, 24, 40, residual=True)
raises(ValueError, "mask is tensor", ModelNew(24, 40), x, torch.rand(6, 40))
""",
    )


STATES = """h0 = torch.zeros(1, x.size(0), 8) if h0 is None else h0
        c0 = torch.zeros(1, x.size(0), 8) if c0 is None else c0
        return self.lstm(x, (h0, c0))[0]"""


@pytest.mark.parametrize("given", ["", ", torch.randn(1, B, 8), torch.randn(1, B, 8)"])
def test_states_of_a_recurrent_layer_are_never_ignored(given: str) -> None:
    task = program(
        STATES, f"torch.randn(B, T, 4){given}", "self.lstm = nn.LSTM(4, 8, batch_first=True)", "B, T = 3, 5",
        "x, h0=None, c0=None",
    )  # fmt: skip
    states = "torch.randn(1, 3, 8), torch.randn(1, 3, 8)"
    right = f"alike(theirs, ours, x, {states})" if given else "alike(theirs, ours, x)"
    wrong = "ours, x" if given else f"ours, x, {states}"
    kind = "TypeError" if given else "ValueError"
    run(
        source(task),
        task,
        f"""
theirs, ours = made()
x = torch.randn(3, 5, 4)
{right}
raises({kind}, "h0 is ", {wrong})
""",
    )


def test_dropout_in_training_is_not_that_of_evaluation() -> None:
    task = program("self.drop(x) * 2", "torch.randn(B, C)", "self.drop = nn.Dropout(0.5)", "B, C = 8, 16")
    run(
        source(task),
        task,
        """
_, ours = made()
ours(torch.ones(8, 16))
raises(ValueError, "eval mode", ours.eval(), torch.ones(8, 16))
""",
    )


NUMBERS = Task(
    "numbers",
    program("x * scale + mask", "torch.rand(4, 8), 2.0, torch.rand(4, 8)", arguments="x, scale, mask").source,
)


def test_a_number_that_is_free_is_a_number() -> None:
    run(
        source(NUMBERS),
        NUMBERS,
        """
theirs, ours = made()
x = torch.rand(4, 8)
alike(theirs, ours, x, 2.0, x)
alike(theirs, ours, x, 3.5, x)
alike(theirs, ours, x, -1, x)
raises(ValueError, "scale is tensor(2.), and these kernels are for a number", ours, x, torch.tensor(2.0), x)
raises(ValueError, "scale is None", ours, x, None, x)
""",
    )


def test_a_number_that_was_captured_is_the_only_one() -> None:
    usage = Usage(values=(ValueInput("scale", 2.0),))
    assert domain_of(replace(graph(NUMBERS), usage=usage)).inputs[1] == ValueInput("scale", 2.0)
    run(
        source(NUMBERS, usage),
        NUMBERS,
        """
theirs, ours = made()
x = torch.rand(4, 8)
alike(theirs, ours, x, 2.0, x)
raises(ValueError, "scale is 3.0, and these kernels are for 2.0", ours, x, 3.0, x)
raises(ValueError, "scale is tensor(2.)", ours, x, torch.tensor(2.0), x)
raises(TypeError, "mask is None", ours, x, 2.0, None)
raises(ValueError, "mask has the shape (4, 7)", ours, x, 2.0, x[:, :7])
""",
    )


# -- sizes that the constructor ties -----------------------------------------------------------------------

POSITIONS = program(
    "torch.cat((x.flatten(2).mT, self.first.expand(x.shape[0], -1, -1)), 1) + self.place",
    "torch.randn(B, C, H, H)",
    "self.first, self.place = (nn.Parameter(torch.randn(1, n, C)) for n in (1, H * H + 1))",
    "B, C, H = 3, 16, 8",
)
"""One position for each place of the image, and one more: the number of positions ties the image's size."""


def test_a_size_that_a_parameter_ties_is_as_constructed_and_guarded() -> None:
    domain = domain_of(graph(POSITIONS))
    assert [size.name for size in domain.sizes if size.module] == ["C", "H"]
    run(
        source(POSITIONS),
        POSITIONS,
        """
theirs, ours = made()
alike(theirs, ours, torch.rand(2, 16, 8, 8))
raises(ValueError, "these kernels are for 101, H * H + 1", ours, torch.rand(2, 16, 10, 10))
""",
    )
