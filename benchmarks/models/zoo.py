"""Whole models at realistic sizes, from configurations with random weights: nothing is downloaded.

Each model is a function of a ``scale``: 1 is the size by which the published model is known, a larger number
divides widths, depths and inputs, for a dry run on a machine without a GPU. It returns the module and the
arguments of one call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

MANY = 8
"""Layers of a dry run's model at least: fewer would not repeat."""


@dataclass(frozen=True)
class Example:
    """A module with one call of it; one that ``trains`` returns an object with a ``loss``."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    trains: bool = False

    def outputs(self, called: Callable[..., Any]) -> Any:
        return called(*self.args, **self.kwargs)


Call = Callable[[], Any]


def on_device(name: str, scale: int) -> Example:
    """A model and its arguments, on the GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    made = MODELS[name](scale)
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to(device), (made.args, made.kwargs))
    return Example(made.module.to(device), args, kwargs, made.trains)


def call_of(example: Example, called: Callable[..., Any]) -> Call:
    """One call of the model, or one step up to the gradients."""

    def infer() -> Any:
        with torch.no_grad():
            return example.outputs(called)

    def train() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        example.module.zero_grad(set_to_none=True)
        loss = example.outputs(called).loss
        loss.backward()
        return loss

    return train if example.trains else infer


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


Make = Callable[[int], Example]
MODELS: dict[str, Make] = {}


def transformers() -> Any:
    """Hugging Face's library, which a machine that runs this must have."""
    return importlib.import_module("transformers")


def model(make: Make) -> Make:
    MODELS[make.__name__] = make
    return make


def _layers(count: int, scale: int) -> int:
    return count if scale == 1 else min(count, MANY)


def _tokens(vocabulary: int, batch: int, length: int, scale: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, max(length // scale, 8)))


def _llama(scale: int) -> nn.Module:
    """The sizes of Llama 3.2 1B."""
    config = transformers().LlamaConfig(
        vocab_size=128256 // scale,
        hidden_size=2048 // scale,
        intermediate_size=8192 // scale,
        num_hidden_layers=_layers(16, scale),
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=max(64 // scale, 16),
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        tie_word_embeddings=True,
    )
    return transformers().LlamaForCausalLM(config).to(torch.bfloat16).eval()


@model
def llama_1b_prefill(scale: int) -> Example:
    ids = _tokens(128256 // scale, 1, 2048, scale)
    return Example(_llama(scale), (ids,), {"use_cache": False, "logits_to_keep": 1})


class Decoding(nn.Module):
    """One token for each sequence, with a cache of fixed size that is half full and stays so."""

    def __init__(self, language: nn.Module, batch: int, length: int) -> None:
        super().__init__()
        self.language, self.batch, self.length = language, batch, length
        self.cache = self._filled()

    def _apply(self, fn: Any, recurse: bool = True) -> Decoding:
        """Tensors of a cache are no buffers: another one is made where the weights are."""
        super()._apply(fn, recurse)
        self.cache = self._filled()
        return self

    def _filled(self) -> Any:
        config, weight = self.language.config, next(self.language.parameters())
        cache = transformers().StaticCache(config=config, max_cache_len=self.length)
        sizes = (self.batch, config.num_key_value_heads, config.head_dim)
        cache.early_initialization(*sizes, weight.dtype, weight.device)
        generator = torch.Generator().manual_seed(0)
        for layer in cache.layers:
            if hasattr(layer, "cumulative_length"):  # earlier versions go by ``cache_position`` alone
                layer.cumulative_length.fill_(self.length // 2)
            for kept in (layer.keys, layer.values):
                drawn = torch.randn(kept.shape[1:], generator=generator).to(torch.bfloat16)
                kept.copy_(drawn.expand_as(kept))
        return cache

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        logits = self.language(
            ids, past_key_values=self.cache, position_ids=position[None], cache_position=position
        ).logits
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.sub_(1)
        return logits


@model
def llama_1b_decode(scale: int) -> Example:
    batch, length = 8, 2048 // scale
    module = Decoding(_llama(scale), batch, length)
    ids = torch.randint(0, 128256 // scale, (batch, 1))
    return Example(module, (ids, torch.tensor([length // 2])), {})


@model
def qwen3_600m_prefill(scale: int) -> Example:
    """The sizes of Qwen3 0.6B."""
    config = transformers().Qwen3Config(
        vocab_size=151936 // scale,
        hidden_size=1024 // scale,
        intermediate_size=3072 // scale,
        num_hidden_layers=_layers(28, scale),
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=max(128 // scale, 16),
        tie_word_embeddings=True,
    )
    module = transformers().Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    ids = _tokens(151936 // scale, 4, 1024, scale)
    return Example(module, (ids,), {"use_cache": False, "logits_to_keep": 1})


def _bert(scale: int, dtype: torch.dtype) -> Example:
    """The sizes of BERT large."""
    config = transformers().BertConfig(
        vocab_size=30522 // scale,
        hidden_size=1024 // scale,
        num_hidden_layers=_layers(24, scale),
        num_attention_heads=16,
        intermediate_size=4096 // scale,
    )
    module = transformers().BertModel(config, add_pooling_layer=False).to(dtype).eval()
    return Example(module, (_tokens(30522 // scale, 16, 512, scale),), {})


@model
def bert_large(scale: int) -> Example:
    return _bert(scale, torch.float16)


@model
def bert_large_fp32(scale: int) -> Example:
    return _bert(scale, torch.float32)


@model
def vit_large(scale: int) -> Example:
    """The sizes of ViT-L/16 at 224 pixels."""
    config = transformers().ViTConfig(
        hidden_size=1024 // scale,
        num_hidden_layers=_layers(24, scale),
        num_attention_heads=16,
        intermediate_size=4096 // scale,
        image_size=224,
        patch_size=16,
    )
    module = transformers().ViTModel(config, add_pooling_layer=False).to(torch.bfloat16).eval()
    return Example(module, (torch.randn(max(32 // scale, 1), 3, 224, 224, dtype=torch.bfloat16),), {})


@model
def whisper_encoder(scale: int) -> Example:
    """The encoder of Whisper large v3."""
    config = transformers().WhisperConfig(
        num_mel_bins=128,
        d_model=1280 // scale,
        encoder_layers=_layers(32, scale),
        encoder_attention_heads=20,
        encoder_ffn_dim=5120 // scale,
        decoder_layers=1,
        decoder_attention_heads=20,
        max_source_positions=1500 // scale,
    )
    module = transformers().WhisperModel(config).encoder.to(torch.float16).eval()
    return Example(module, (torch.randn(4, 128, 2 * (1500 // scale), dtype=torch.float16),), {})


def _resnet(scale: int) -> nn.Module:
    sizes = [size // scale for size in (256, 512, 1024, 2048)]
    config = transformers().ResNetConfig(
        embedding_size=64 // scale, hidden_sizes=sizes, depths=[3, 4, 6, 3], num_labels=1000
    )
    return transformers().ResNetForImageClassification(config).to(memory_format=torch.channels_last)


def _images(count: int, side: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(count, 3, side, side, dtype=dtype).to(memory_format=torch.channels_last)


@model
def resnet50(scale: int) -> Example:
    return Example(_resnet(scale).half().eval(), (_images(max(64 // scale, 1), 224, torch.float16),), {})


@model
def resnet50_fp32(scale: int) -> Example:
    return Example(_resnet(scale).eval(), (_images(max(64 // scale, 1), 224, torch.float32),), {})


@model
def convnext_base(scale: int) -> Example:
    config = transformers().ConvNextConfig(
        depths=[3, 3, 27 if scale == 1 else 3, 3],
        hidden_sizes=[size // scale for size in (128, 256, 512, 1024)],
    )
    module = transformers().ConvNextModel(config).to(torch.bfloat16, memory_format=torch.channels_last).eval()
    return Example(module, (_images(max(32 // scale, 1), 224, torch.bfloat16),), {})


class DiTBlock(nn.Module):
    """A block of a diffusion transformer with adaptive layer norms, as in DiT-XL/2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        normed = self.first(x) * (1 + scale) + shift
        batch, length, width = normed.shape
        q, k, v = self.qkv(normed).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + gate * self.out(mixed.reshape(batch, length, width))
        return x + gate2 * self.mlp(self.second(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DiTBlock(width, heads) for _ in range(depth))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, condition)
        return x


@model
def dit_xl(scale: int) -> Example:
    width, batch = 16 * max(72 // scale, 8), max(16 // scale, 1)
    module = DiT(width, 16, _layers(28, scale)).to(torch.bfloat16).eval()
    x = torch.randn(batch, 256 // min(scale, 4), width, dtype=torch.bfloat16)
    return Example(module, (x, torch.randn(batch, width, dtype=torch.bfloat16)), {})


@model
def mamba2_130m(scale: int) -> Example:
    """Mamba-2, whose scan is a chain of products over chunks; that of the first Mamba is a loop over tokens,
    of which torch.compile makes a graph of a hundred thousand nodes."""
    config = transformers().Mamba2Config(
        vocab_size=50280 // scale,
        hidden_size=768 // scale,
        num_hidden_layers=_layers(24, scale),
        num_heads=24,
        head_dim=64 // scale,
        state_size=128 // scale,
        n_groups=1,
        use_cache=False,
    )
    module = transformers().Mamba2Model(config).to(torch.float16).eval()
    return Example(module, (_tokens(50280 // scale, 4, 1024, scale),), {"use_cache": False})


@model
def gpt2_training(scale: int) -> Example:
    """A step of GPT-2 small without dropout: the loss, and a gradient for every parameter."""
    config = transformers().GPT2Config(
        vocab_size=50257 // scale,
        n_embd=768 // scale,
        n_layer=_layers(12, scale),
        n_head=12,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    ids = _tokens(50257 // scale, 8, 1024, scale)
    return Example(
        transformers().GPT2LMHeadModel(config).to(torch.bfloat16).train(),
        (ids,),
        {"labels": ids},
        trains=True,
    )


@model
def resnet50_training(scale: int) -> Example:
    labels = torch.randint(0, 1000, (max(64 // scale, 2),))
    images = _images(len(labels), 224, torch.float32)
    return Example(_resnet(scale).train(), (images,), {"labels": labels}, trains=True)
