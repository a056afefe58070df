"""Files of programs whose ``forward`` takes any number of arguments, or some by keyword alone."""

from __future__ import annotations

from egg.core.evaluation import Accepted
from egg.core.source import Task
from tests.conftest import JudgeFunction
from tests.expert.captured import program
from tests.expert.scenarios import run, source

STEP = program(
    "p, q, g, h, m, n = given; m, n = m * beta + g * (1 - beta), n * beta + h * (1 - beta);"
    "return p - 0.1 * m, m, q - 0.1 * n, n",
    "torch.randn(B, C), torch.randn(C), torch.randn(B, C), torch.randn(C), torch.randn(B, C), torch.randn(C)",
    knobs="B, C = 6, 40",
    arguments="*given, beta=0.9, **more",
)
FUNCTIONAL = Task(STEP.name, STEP.source.replace("**more", "scale=1.0"))


def test_the_count_of_a_call_is_part_of_the_domain() -> None:
    text = source(STEP)
    assert "def forward(self, *given, beta=0.9, **more):" in text
    assert '"given_5": {"dtypes": ["float32"]' in text
    run(
        text,
        STEP,
        """
theirs, ours = made()
given = [torch.rand(5, 24), torch.rand(24)] * 3
alike(theirs, ours, *given)
alike(theirs, ours, torch.rand(24, 5).t(), *given[1:])
raises(ValueError, "*given has 5 arguments, and these kernels are for 6", ours, *given[:5])
raises(ValueError, "*given has 7 arguments", ours, *given, given[0])
raises(ValueError, "forward is given ['alpha']", ours, *given, alpha=1)
raises(ValueError, "beta is 0.5", ours, *given, beta=0.5)
raises(TypeError, "given_3 is None", ours, *given[:3], None, *given[4:])
""",
    )


def test_the_judge_accepts_any_number_of_arguments(judged: JudgeFunction) -> None:
    evaluation = judged(STEP, source(STEP), target="H200")
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict


def test_a_graph_writes_several_results_of_a_function_in_place() -> None:
    text = source(FUNCTIONAL, None, "set file replay True")
    assert (
        "def launches(self, given_0, given_1, given_2, given_3, given_4, given_5, beta, scale, into=None):"
        in (" ".join(text.split()).replace("( self", "(self").replace("=None, )", "=None)"))
    )
    assert "return self.launches(*given, beta, scale)" in text
    assert "def filled(" not in text, "no result is copied"
