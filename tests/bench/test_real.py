"""The bundled suite real: what every program in it promises."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from egg.bench.suites import load
from egg.core.source import Task
from tests.bench import bundled

SUITE = load("real")
NAMES = list(SUITE.by_key)
MODELS = re.compile(
    r"ResNet-50|EfficientNet-B4|ConvNeXt-B|MobileNetV2|ViT-L/14|Swin-B|SegFormer-B2|R-CNN|YOLOv8|RetinaNet"
    r"|U-Net|CenterNet|Deformable DETR|SDXL|DiT-XL/2|FLUX\.1|BERT-large|Llama-[23]|Qwen3|Qwen2\.5|DeepSeek-V2"
    r"|Mixtral|Mamba|MiniMax-01|RWKV-6|T5-large|NLLB|BART|GPT-2|Falcon|OPT-13B|Whisper|wav2vec 2\.0|HiFi-GAN"
    r"|Conformer|EnCodec|GraphSAGE|GATv2|SchNet|DLRM|Deep Interest Network|DCN-v2|MoCo|NeRF|AlphaFold|FNO"
)


def task(name: str) -> Task:
    return SUITE.by_key[name]


def test_it_is_large_and_mixed():
    assert len(NAMES) >= 50
    halves = [name for name in NAMES if bundled.HALF.search(task(name).source)]
    assert len(halves) > len(NAMES) / 2
    rare = ("channels_last", ".eval()", "index_add", "grid_sample", "topk", "stft", "weight_norm", "dict[")
    for word in rare:
        assert any(word in task(name).source for name in NAMES), word
    families = Counter(name.split("_")[0] for name in NAMES)
    assert min(families[name] for name in ("vision", "language", "diffusion", "audio", "quant")) >= 5
    assert min(families[name] for name in ("graph", "recommend", "science")) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_each_names_the_model_its_sizes_come_from(name):
    bundled.names_a_model(task(name), MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_at_full_size_it_is_worth_a_launch_and_fits_a_gpu(name):
    bundled.is_worth_a_launch_and_fits_a_gpu(task(name))


@pytest.mark.parametrize("name", NAMES)
def test_small_it_runs_is_repeatable_and_has_an_exact_answer(name):
    bundled.runs_is_repeatable_and_has_an_exact_answer(bundled.tiny(task(name)), widened=True)


@pytest.mark.parametrize("name", NAMES)
def test_its_audit_finds_it_sound(name):
    bundled.has_a_sound_audit(bundled.tiny(task(name)))
