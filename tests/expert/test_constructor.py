"""What a kernel file takes over from its task builds the same module, and nothing else is taken over."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch

from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator.static import findings
from egg.expert.emit.names import attributes, taken_from_outside
from egg.expert.parts import Unfit
from egg.expert.writing.constructor import Constructor, constructor
from egg.expert.writing.tidy import tidied

ENDING = """

def get_inputs():
    return [torch.rand(rows, 8)]


def get_init_inputs():
    return [8]
"""
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 4
"""


def task(body: str, head: str = HEAD) -> Task:
    return Task("small", head + textwrap.dedent(body) + ENDING)


def file_of(built: Constructor) -> str:
    imports = dict.fromkeys(["import torch", "from torch import nn", *built.imports])
    model = f"{built.model}\n\n    {built.forward}\n        return None\n"
    return "\n\n\n".join(["\n".join(imports), *built.definitions, model])


def both(given: Task) -> tuple[Any, Any, str]:
    """The task's module and the file's, under one seed, and the file."""
    text = file_of(constructor(given))
    theirs: dict[str, Any] = {"__name__": "task"}
    exec(compile(given.source, "task", "exec", dont_inherit=True), theirs)
    ours: dict[str, Any] = {"__name__": "kernels"}
    exec(compile(text, "kernels", "exec", dont_inherit=True), ours)
    made = []
    for space, name in ((theirs, "Model"), (ours, "ModelNew")):
        torch.manual_seed(5)
        made.append(space[name](*theirs["get_init_inputs"]()))
    return made[0], made[1], text


def assert_same(given: Task) -> str:
    model, new, text = both(given)
    before, after = model.state_dict(), new.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert list(vars(model)) == list(vars(new))
    refused = [f for f in findings(text, LibraryCalls.ALLOW) if f.code != "static.no_kernel"]
    assert not refused
    return text


def test_layers_keep_their_constructors_and_lose_their_forward() -> None:
    text = assert_same(
        task("""
        WIDTH = 16
        UNUSED = 17

        def odd(n):
            return 2 * half(n) + 1

        def half(n):
            return n // 2

        def only_in_forward(x):
            return F.relu(x)

        class Block(nn.Module):
            '''Two layers.'''
            expansion = 2

            def __init__(self, width, activation=F.gelu):
                super(Block, self).__init__()
                # the first layer
                self.first = nn.Linear(width, WIDTH)  # wide
                self.second = nn.Linear(WIDTH, odd(width))
                self.activation = activation
                self.register_buffer("scale", torch.rand(3))

            def forward(self, x):
                return only_in_forward(self.second(self.first(x)))

        class Model(nn.Module):
            def __init__(self, width):
                super(Model, self).__init__()
                self.layers = self._make(Block, width)
                self.apply(self._reset)

            def _make(self, block, width):
                return nn.Sequential(*[block(width) for _ in range(block.expansion)])

            def _reset(self, module):
                if isinstance(module, nn.Linear):
                    nn.init.zeros_(module.bias)

            def helper_of_forward(self, x):
                return x

            def forward(self, x: torch.Tensor, again=None) -> torch.Tensor:
                return self.helper_of_forward(self.layers[0](x))
        """)
    )
    assert "super(ModelNew, self)" in text
    assert "# the first layer" in text
    assert "# wide" in text
    assert "Keeps the parameters of Block" in text
    assert "def forward(self, x: torch.Tensor, again=None) -> torch.Tensor:" in text
    assert text.count("def forward") == 1
    for dropped in ("UNUSED", "only_in_forward", "helper_of_forward", "get_inputs", "rows", "Two layers"):
        assert dropped not in text


def test_configurations_inheritance_and_nested_classes_come_along() -> None:
    text = assert_same(
        task(
            """
            @dataclass
            class Config:
                width: int = 8
                depth: Optional[int] = None

            CONFIG = {"depth": 2}
            CONFIG["depth"] = 3

            class Base(nn.Module):
                class Inner(nn.Module):
                    def __init__(self, n):
                        super().__init__()
                        self.weight = nn.Parameter(torch.randn(n))

                def __init__(self, config: Config):
                    super().__init__()
                    self.inner = Base.Inner(config.width)
                    self.scale = math.sqrt(config.width)

                def forward(self, x):
                    return x

            class Model(Base):
                def __init__(self, width):
                    super().__init__(Config(width))
                    self.stack = nn.ModuleList(nn.Linear(width, width) for _ in range(CONFIG["depth"]))
            """,
            HEAD.replace(
                "rows",
                "import math\nfrom dataclasses import dataclass\nfrom typing import Any, Optional\n\nrows",
            ),
        )
    )
    assert "from typing import Optional" in text
    assert "Any" not in text
    assert 'CONFIG["depth"] = 3' in text


def test_a_class_that_derives_from_a_layer_keeps_what_it_overrides() -> None:
    text = assert_same(
        task("""
        class Tied(nn.Linear):
            def reset_parameters(self):
                nn.init.ones_(self.weight)

            def forward(self, x):
                return F.linear(x, self.weight)

        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.tied = Tied(width, width, bias=False)

            def forward(self, x):
                return self.tied(x)
        """)
    )
    assert "reset_parameters" in text


def test_a_constructor_that_runs_its_layers_keeps_their_forward() -> None:
    text = assert_same(
        task("""
        class Features(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.fc = nn.Linear(width, 5)

            def forward(self, x):
                return torch.cat([self.fc(x), x], dim=1)

        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.features = Features(width)
                self.out = nn.Linear(self.features(torch.zeros(1, width)).shape[1], 2)

            def forward(self, x):
                return self.out(self.features(x))
        """)
    )
    assert text.count("def forward") == 2


def test_indentation_quotes_and_one_line_classes_are_made_regular() -> None:
    source = "class Marker(nn.Module): pass\n\nclass Model(nn.Module):\n  def __init__(self, n):\n"
    source += "    super().__init__()\n    self.kind = 'plain'   \n    self.marker = Marker()\n"
    source += "    if n:\n        self.fc = nn.Linear(n,\n                            n)\n"
    source += "  def forward(self, x):\n    return x\n"
    text = assert_same(Task("small", HEAD + source + ENDING))
    assert '        self.kind = "plain"\n' in text
    assert "Keeps its place among the layers" in text


def test_layers_without_parameters_of_other_packages_are_stood_in_for() -> None:
    given = task(
        """
        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.layers = nn.Sequential(Rearrange("a b -> b a"), nn.Linear(width, width))

            def forward(self, x):
                return rearrange(self.layers(x), "a b -> b a")
        """,
        HEAD.replace(
            "rows", "from einops import rearrange\nfrom einops.layers.torch import Rearrange\n\nrows"
        ),
    )
    text = file_of(constructor(given))
    assert "einops" not in text
    space: dict[str, Any] = {"__name__": "kernels"}
    exec(text, space)
    assert list(space["ModelNew"](8).state_dict()) == ["layers.1.weight", "layers.1.bias"]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("import scipy as np\nimport torch\nfrom torch import nn\nrows = 4\n", "scipy"),
        ("import torch\nfrom torch import nn\nfrom math import *\nrows = 4\nnp = rows\n", None),
    ],
)
def test_imports_that_a_kernel_file_may_not_have(head: str, why: str | None) -> None:
    given = task(
        """
        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.size = np

            def forward(self, x):
                return x
        """,
        head,
    )
    if why is None:
        assert "np = rows" in file_of(constructor(given))
    else:
        with pytest.raises(Unfit, match=why):
            constructor(given)


def test_a_model_by_another_name() -> None:
    text = assert_same(
        task("""
        class Net(nn.Module):
            def __init__(self, width):
                super(Net, self).__init__()
                self.fc = nn.Linear(width, width)

            def forward(self, x):
                return self.fc(x)

        Model = Net
        """)
    )
    assert "Net" not in text


def test_names_that_code_takes_from_outside() -> None:
    import ast

    tree = ast.parse(
        "def f(a, b=K, *c, d: 'T' = None):\n"
        "    x = [y for y in a if y > LIMIT]\n"
        "    def g(z): return z + x[0] + outer\n"
        "    return g(b) + len(c), lambda u: u + free\n"
    )
    assert taken_from_outside(tree) == {"K", "T", "LIMIT", "outer", "len", "free"}
    assert attributes(ast.parse("a.b.c(getattr(d, 'e'))")) == {"b", "c", "e"}


def test_text_that_would_change_its_meaning_is_left_alone() -> None:
    broken = "x = 'a\n"
    assert tidied(broken) == broken
    kept = "x = '''a\n  b   \n'''\nif x:\n\ty = \"it's\"\n"
    assert tidied(kept) == "x = '''a\n  b   \n'''\nif x:\n    y = \"it's\"\n"


CHECK = ["if slope != 0.1:", '    raise ValueError("slope")']


@pytest.mark.parametrize(
    "text",
    [
        """
        class Model(nn.Module):
            def __init__(self, width, slope=0.1, *, more=None): super().__init__(); self.more = more

            def forward(self, x):
                return x
        """,
        """
        class Base(nn.Module):
            def __init__(self, width, slope=0.1, *, more=None):
                super().__init__()
                self.more = more

        class Model(Base):
            def forward(self, x):
                return x
        """,
        """
        class Model(nn.Module):
            def __init__(self, width, slope=0.1, *, more=None):
                '''With a docstring.'''
                # and a comment
                super().__init__()
                self.more = more

            def forward(self, x):
                return x
        """,
    ],
)
def test_statements_at_the_start_of_a_constructor(text: str) -> None:
    built = constructor(task(text, HEAD)).beginning(CHECK)
    space: dict[str, Any] = {"__name__": "kernels"}
    exec(file_of(built), space)
    assert space["ModelNew"](3, 0.1, more=4).more == 4
    with pytest.raises(ValueError, match="slope"):
        space["ModelNew"](3, slope=0.2)
