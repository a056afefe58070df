"""The bundled suite llm-ops: what every task in it promises."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from egg.bench.suites import load
from egg.core.source import Task
from tests.bench import bundled

SUITE = load("llm-ops")
NAMES = list(SUITE.by_key)
MODELS = re.compile(
    r"Llama-3|Qwen2\.5|Qwen3|Mixtral|DeepSeek-V3|Mamba|SDXL|ViT-L/14|Whisper|BERT|DiT-XL|BLOOM|Phi-3|Gemma-2"
    r"|CLIP|Granite|GPT-2|E5-large"
)


def task(name: str) -> Task:
    return SUITE.by_key[name]


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
    bundled.names_a_model(task(name), MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_at_full_size_it_is_worth_a_launch_and_fits_a_gpu(name):
    bundled.is_worth_a_launch_and_fits_a_gpu(task(name))


@pytest.mark.parametrize("name", NAMES)
def test_small_it_runs_is_repeatable_and_has_an_exact_answer(name):
    bundled.runs_is_repeatable_and_has_an_exact_answer(bundled.tiny(task(name)))


@pytest.mark.parametrize("name", NAMES)
def test_its_audit_finds_it_sound(name):
    bundled.has_a_sound_audit(bundled.tiny(task(name)))
