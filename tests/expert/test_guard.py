"""Files that hold their own: inside the domain right in any layout, outside it an error, never a silence.

Every scenario runs in the interpreter's process, as text behind the file: it builds the task's module and the
file's with the same weights, and compares.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from egg.core.domain import Argument, Domain, Layout, Mode, Size, TensorInput, ValueInput
from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator import static
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.graph import Graph, Node, Origin, Usage, Value, contiguous_stride
from egg.expert.moves import Recipe, parsed
from egg.expert.sizes import ONE, named
from egg.expert.writing.domain import domain_of
from egg.expert.writing.guard import Guard, Names
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import program

LINEAR = Task(
    "linear",
    """import torch
from torch import nn

batch_size, inner, outer = 32, 24, 40


class Model(nn.Module):
    \"\"\"A layer; its slope is for one forward pass.\"\"\"

    def __init__(self, inner, outer, slope=0.01, *, residual=False):
        \"\"\"Any widths.\"\"\"
        # the layer
        super().__init__()
        self.layer = nn.Linear(inner, outer)
        self.activation = nn.LeakyReLU(slope)
        if residual:
            pass

    def forward(self, x, mask=None):
        y = self.activation(self.layer(x))
        return y if mask is None else y * mask


def get_inputs():
    return [torch.rand(batch_size, inner)]


def get_init_inputs():
    return [inner, outer]
""",
)
NORMS = program(
    "return self.a(self.norm(x)), self.b(x)",
    "torch.randn(B, C)",
    "self.norm = nn.BatchNorm1d(C); self.a = nn.Dropout(0.0); self.b = nn.ReLU()",
    "B, C = 8, 16",
)
ASKED = '''

import copy
import pickle


def made(*arguments, **options):
    """The task's module and the file's, with the same weights."""
    space = {"__name__": "task"}
    exec(TASK, space)
    torch.manual_seed(0)
    theirs = space["Model"](*arguments, **options)
    torch.manual_seed(0)
    return theirs, ModelNew(*arguments, **options)


def raises(kind, words, call, *given, **options):
    try:
        call(*given, **options)
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"{words}: no error")


def alike(theirs, ours, *given):
    want, got = theirs(*given), ours(*given)
    for a, b in zip(want, got, strict=True) if isinstance(want, tuple) else ((want, got),):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert b.is_contiguous() or a.stride() == b.stride()
        torch.testing.assert_close(a.detach(), b.detach())
    return got


def forward(self, *given):
    with torch.enable_grad():
        scenario()
    return [torch.zeros(1)]


def scenario():
'''


@cache
def graph(task: Task) -> Graph:
    return graph_of(task)


def source(task: Task, usage: Usage | None = None, *moves: str) -> str:
    known = replace(graph(task), usage=usage) if usage is not None else graph(task)
    return kernel_file(task, known, Recipe().after(*map(parsed, moves)), resolve("H200")).source


def run(text: str, task: Task, scenario: str) -> None:
    lines = "\n".join(f"    {line}" for line in scenario.strip("\n").split("\n"))
    harness.execute(f"{text}\n\nTASK = {task.source!r}{ASKED}{lines}\n", [], {})


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
with torch.autocast("cpu", dtype=torch.bfloat16):
    raises(ValueError, "autocast is enabled", ours, torch.rand(6, 24))
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


# -- the file ----------------------------------------------------------------------------------------------


def test_the_file_states_its_domain_and_both_static_checks_take_it() -> None:
    text = source(LINEAR, Usage(arguments=(Argument("slope", 0.01), Argument("residual", False))))
    assert not static.findings(text, LibraryCalls.FORBID).items
    domain = Domain.of_source(text)
    assert domain is not None
    assert domain.inputs == (TensorInput("x", ("float32",), ("batch_size", "inner"), Layout.ANY),)
    assert domain.sizes == (Size("batch_size"), Size("inner", module=True))
    code = "\n".join(line.split("#")[0] for line in text.split("\n"))
    assert "pass" not in code.replace("passes", "").split()
    assert "its slope is for one forward run." in code
    start = text.index("def __init__(self, inner, outer, slope=0.01")
    assert text.index('"""Any widths."""', start) < text.index("if slope != 0.01:", start)
    assert text.index("if slope != 0.01:", start) < text.index("# the layer", start)


def test_a_size_that_follows_from_another_input_is_no_choice_of_its_own() -> None:
    """What is added to a pooled tensor has its size: the guard asks for that, and the domain says it."""
    batch, height, pooled = named("B", (3, 4)), named("H", (16, 9)), named("y_1", (7, 4))
    shapes = {"x": (batch, height), "y": (batch, pooled), "pool": (batch, pooled), "add": (batch, pooled)}
    origins = {"x": Origin.INPUT, "y": Origin.INPUT}
    values = {
        name: Value(name, shape, "float32", contiguous_stride(shape), origins.get(name, Origin.NODE), name)
        for name, shape in shapes.items()
    }
    window = {"kernel": (3,), "stride": (2,), "padding": (0,), "dilation": (1,), "fn": "max"}
    values = {n: replace(v, shape=(ONE, *v.shape), stride=(ONE, *v.stride)) for n, v in values.items()}
    nodes = (
        Node("pool", ("x",), ("pool",), window),
        Node("pointwise", ("pool", "y"), ("add",), {"fn": "add", "scalars": ()}),
    )
    symbols = {"B": "x.shape[1]", "y_1": "y.shape[2]", "H": "x.shape[2]"}
    known = Graph(values, nodes, ("x", "y"), ("add",), "tensor", symbols)
    domain = domain_of(known)
    assert [given.shape for given in domain.inputs if isinstance(given, TensorInput)] == [
        (1, "B", "H"),
        (1, "B", "(H - 1) // 2"),
    ]
    assert [size.name for size in domain.sizes] == ["B", "H"]
    text = "\n".join(Guard(known, "def forward(self, x, y):", Names()).methods())
    assert text.index("H = x.shape[2]") < text.index("y_1 = (H - 1) // 2")
    assert 'check_shape("y", y, (1, B, y_1))' in text


def test_a_written_input_is_taken_as_it_lies() -> None:
    task = program("x.add_(1); return x * 2", "torch.rand(B, C)", knobs="B, C = 4, 16")
    run(
        source(task),
        task,
        """
theirs, ours = made()
with torch.no_grad():
    x, y = torch.ones(4, 16), torch.ones(4, 16)
    torch.testing.assert_close(theirs(x), ours(y))
    assert torch.equal(x, y)
    raises(ValueError, "x has gaps", ours, torch.ones(16, 4).t())
""",
    )


def test_values_are_not_called_like_built_in_functions() -> None:
    task = program("x.max(1, keepdim=True)[0] + x.sum(1, keepdim=True) * x.min()", "torch.rand(B, C)")
    text = source(task)
    for name in ("max", "sum", "min"):
        assert f"        {name} = " not in text[text.index("    def forward(") :]


def test_a_constructor_may_compute_with_numpy() -> None:
    task = Task(
        "numpy",
        LINEAR.source.replace("import torch\n", "import numpy as np\nimport torch\n", 1).replace(
            "nn.Linear(inner, outer)", "nn.Linear(inner, int(np.prod((outer, 1))))"
        ),
    )
    text = source(task)
    assert "import numpy as np\nimport torch\n" in text
    assert not static.findings(text, LibraryCalls.FORBID).items
    run(text, task, "alike(*made(24, 40), torch.rand(3, 24))")
    kept = text.replace("self.layer = nn", "self.root = np.sqrt\n        self.layer = nn", 1)
    assert static.findings(kept, LibraryCalls.ALLOW).items
    used = text.replace("x = x.contiguous()", "x = np.sqrt(x)", 1)
    assert static.findings(used, LibraryCalls.ALLOW).items
