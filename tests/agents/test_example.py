"""The example every prompt shows keeps the rules every prompt states: the judge itself says so."""

from __future__ import annotations

import ast

from egg.agents.prompting import prompt_file
from egg.core.evaluation import Accepted
from egg.core.policy import Level, LibraryCalls, Policy
from egg.engine.tunables import read_space


def test_the_judge_accepts_the_example_under_the_strictest_terms(judged):
    strict = Policy(library_calls=LibraryCalls.FORBID, level=Level.QUICK)
    evaluation = judged(prompt_file("example_task.py"), prompt_file("example_kernel.py"), strict)
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict
    assert dict(evaluation.verdict.provenance.kernels) == {"affine_softmax": 1}


def test_every_kernel_of_the_example_says_what_it_computes():
    tree = ast.parse(prompt_file("example_kernel.py"))
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert kernels
    assert all(ast.get_docstring(k) for k in kernels)


def test_the_tunables_of_the_example_can_be_swept():
    space = read_space(prompt_file("example_kernel.py"))
    assert space is not None
    assert space.size == 12
    assert dict(space.current) == {"ROWS": 4, "NUM_WARPS": 4}
