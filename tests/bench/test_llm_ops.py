"""The bundled suite: what every task in it promises."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest
import torch

from egg.bench.suites import load
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.audit import audit
from egg.evaluator.task.distributions import DISTRIBUTIONS
from egg.evaluator.task.knobs import SIZE, find_knobs, rewritten
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import cost_of

SUITE = load("llm-ops")
NAMES = list(SUITE.by_key)
MODELS = re.compile(
    r"Llama-3|Qwen2\.5|Qwen3|Mixtral|DeepSeek-V3|Mamba|SDXL|ViT-L/14|Whisper|BERT|DiT-XL|BLOOM|Phi-3|Gemma-2"
    r"|CLIP|Granite|GPT-2|E5-large"
)
CPU = torch.device("cpu")


def task(name: str) -> Task:
    return SUITE.by_key[name]


def tiny(name: str) -> Task:
    """Every size a sixteenth, large ones a sixty-fourth: all tasks run in a few seconds."""
    source = task(name).source
    sizes = [(k, k.value // (64 if k.value >= 1024 else 16)) for k in find_knobs(source) if k.value >= SIZE]
    return Task(name, rewritten(source, sizes))


def test_it_is_large_and_mixed():
    assert len(NAMES) >= 28
    dtypes = {name: set(re.findall(r"torch\.(\w+)", task(name).source)) for name in NAMES}
    halves = [name for name in NAMES if dtypes[name] & {"bfloat16", "float16"}]
    assert len(halves) > len(NAMES) / 2
    assert {"int8", "uint8", "float8_e4m3fn", "bfloat16", "float16"} <= set.union(*dtypes.values())
    families = Counter(name.split("_")[0] for name in NAMES)
    assert families["attention"] >= 6
    assert families["norm"] >= 5
    assert families["quant"] >= 4
    assert families["moe"] >= 3


@pytest.mark.parametrize("name", NAMES)
def test_each_names_the_model_its_sizes_come_from(name):
    said = ast.get_docstring(ast.parse(task(name).source))
    assert said
    assert MODELS.search(said)


@pytest.mark.parametrize("name", NAMES)
def test_at_full_size_it_is_worth_a_launch_and_fits_a_gpu(name):
    """Bounds on an H200: every element written and read once in fp32 at 4 TB/s, products at 50 TFLOP/s at
    least (fp32 without TF32) if they are in fp32; nothing of what is made ever freed, in fp32, in 20 GB."""
    cost = cost_of(task(name), 10.0)
    assert cost.elements * 4 <= 20e9
    halves = re.search(r"torch\.(bfloat16|float16)", task(name).source)
    slowest = cost.elements * 8 / 4e12 + cost.flops / (4e14 if halves else 5e13)
    assert slowest <= 20e-3
    assert slowest >= 0.02e-3


@pytest.mark.parametrize("name", NAMES)
def test_small_it_runs_is_repeatable_and_has_an_exact_answer(name):
    small = tiny(name)
    with Program.load(small) as program:
        reference = Reference(program, Precision.MATCH, CPU)
        assert not reference.stochastic
        once, again, other = (program.inputs(seed, CPU, Precision.MATCH) for seed in (1, 1, 2))
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(once, other, strict=True))
        for kind in DISTRIBUTIONS:
            case = reference.case("drawn", kind)
            for (_, made), (_, exact) in zip(case.outputs, case.golden, strict=True):
                assert torch.isfinite(made).all(), kind
                assert torch.isfinite(exact).all(), kind
                assert made.shape == exact.shape
        assert reference.warnings == []


@pytest.mark.parametrize("name", NAMES)
def test_its_audit_finds_it_sound(name):
    found = audit(tiny(name), Precision.MATCH, CPU, rescaled=False)
    assert found.passing == ()
    assert not found.stochastic
    assert not found.constant_inputs
