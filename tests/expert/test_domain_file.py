"""What a file says it is for, and that both static checkers take what it says."""

from __future__ import annotations

from dataclasses import replace

from egg.core.domain import Argument, Domain, Layout, Size, TensorInput
from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator import static
from egg.expert.graph import Graph, Node, Origin, Usage, Value, contiguous_stride
from egg.expert.sizes import ONE, named
from egg.expert.writing.domain import domain_of
from egg.expert.writing.guard import Guard, Names
from tests.expert.captured import program
from tests.expert.scenarios import LINEAR, run, source


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
