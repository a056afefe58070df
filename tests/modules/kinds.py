"""Modules of many kinds, each with the arguments of one call."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Call = tuple[nn.Module | Callable[..., Any], tuple[Any, ...], dict[str, Any]]
KINDS: dict[str, Callable[[], Call]] = {}
REFUSED: dict[str, tuple[Callable[[], Call], str]] = {}


def kind(make: Callable[[], Call]) -> Callable[[], Call]:
    KINDS[make.__name__] = make
    return make


def refused(words: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    def keep(make: Callable[[], Call]) -> Callable[[], Call]:
        REFUSED[make.__name__] = (make, words)
        return make

    return keep


def from_function(forward: Callable[..., Any], **held: Any) -> nn.Module:
    """A module with these parts whose forward is ``forward(self, ...)``."""

    class Block(nn.Module):
        pass

    Block.forward = forward  # type: ignore[method-assign]
    made = Block()
    for name, value in held.items():
        if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
            made.register_buffer(name, value)
        else:
            setattr(made, name, value)
    return made


X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(2))
Pair = namedtuple("Pair", "first second")


@dataclass
class Answer:
    hidden: torch.Tensor
    scores: torch.Tensor | None = None
    count: int = 0


@kind
def linear_gelu() -> Call:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU()), (X,), {}


@kind
def keyword_arguments() -> Call:
    return (
        from_function(lambda self, x, *, scale=1.0, shift: x * scale + shift),
        (X,),
        {"scale": 3.0, "shift": X},
    )


@kind
def optional_argument_left_out() -> Call:
    return from_function(lambda self, x, mask=None: x if mask is None else x * mask + 1), (X, X > 0), {}


@kind
def dictionary_in() -> Call:
    return from_function(lambda self, batch: batch["a"] @ batch["b"].t()), ({"a": X, "b": X + 1},), {}


@kind
def lists_in() -> Call:
    return from_function(lambda self, xs: torch.cat(xs, -1).relu()), ([X, X * 2, X * 3],), {}


@kind
def dataclass_in() -> Call:
    return from_function(lambda self, a: a.hidden * a.count + a.scores), (Answer(X, X, 3),), {}


@kind
def dictionary_out() -> Call:
    return from_function(lambda self, x: {"a": x + 1, "b": x.sum(-1), "same": x, "none": None}), (X,), {}


@kind
def named_tuple_out() -> Call:
    return from_function(lambda self, x: Pair(x.exp(), [x.sin(), 7])), (X,), {}


@kind
def dataclass_out() -> Call:
    return from_function(lambda self, x: Answer(x.tanh(), count=2)), (X,), {}


@kind
def several_outputs_one_twice() -> Call:
    def forward(self: Any, x: torch.Tensor) -> Any:
        y = x.sigmoid()
        return y, x * 2, y

    return from_function(forward), (X,), {}


@kind
def numbers_and_texts() -> Call:
    def forward(self: Any, x: torch.Tensor, power: int, how: str, flag: bool) -> Any:
        return x.pow(power).sum(-1, keepdim=flag) if how == "sum" else x

    return from_function(forward), (X, 3, "sum", True), {}


@kind
def input_changed_in_place() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    return from_function(forward), (X,), {}


@kind
def cache_written_by_rows() -> Call:
    def forward(self: Any, x: torch.Tensor, cache: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0], device=x.device)
        cache[rows, :, position] = x[:, None]
        return cache.sum(2)

    cache = torch.zeros(len(X), 2, 6, X.shape[1])
    return from_function(forward), (X, cache, torch.arange(len(X)) % 6), {}


@kind
def cache_written_and_nothing_returned() -> Call:
    def forward(self: Any, x: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        cache.index_copy_(0, slots, x * 2)

    return from_function(forward), (X, torch.zeros(64, X.shape[1]), torch.randperm(64)[: len(X)]), {}


@kind
def input_returned() -> Call:
    return from_function(lambda self, x: (x, x.cos())), (X,), {}


@kind
def buffer_updated_in_place() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.mean(0))
        return x - self.seen

    return from_function(forward, seen=torch.zeros(8)), (X,), {}


@kind
def buffer_not_in_state_dict() -> Call:
    made = from_function(lambda self, x: x * self.table)
    made.register_buffer("table", torch.linspace(0, 1, 8), persistent=False)
    return made, (X,), {}


@kind
def tensor_in_a_plain_attribute() -> Call:
    made = from_function(lambda self, x: x * self.scale)
    made.__dict__["scale"] = torch.linspace(1, 2, 8)
    return made, (X,), {}


@kind
def literal_tensor() -> Call:
    return from_function(lambda self, x: x[:, :3] * torch.tensor([1.0, 2.0, 4.0])), (X,), {}


@kind
def weight_norm() -> Call:
    return parametrizations.weight_norm(nn.Linear(8, 4)), (X,), {}


@kind
def spectral_norm() -> Call:
    return parametrizations.spectral_norm(nn.Linear(8, 4)).eval(), (X,), {}


@kind
def lazy_linear() -> Call:
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU()), (X,), {}


@kind
def sequential_with_numbered_children() -> Call:
    class Numbered(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            for part in self:
                x = part(x) + x
            return x

    return Numbered(nn.Linear(8, 8), nn.LayerNorm(8)), (X,), {}


@kind
def module_list_and_dict() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        return self.named["out"](x)

    parts = nn.ModuleList([nn.Linear(8, 8), nn.Tanh()])
    return from_function(forward, parts=parts, named=nn.ModuleDict({"out": nn.Linear(8, 2)})), (X,), {}


@kind
def parameter_list() -> Call:
    held = nn.ParameterList([nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))])
    return from_function(lambda self, x: x * self.held[0] + self.held[1], held=held), (X,), {}


@kind
def vmap_inside() -> Call:
    return from_function(lambda self, x: torch.vmap(lambda row: row / row.norm())(x)), (X,), {}


@kind
def autocast_inside() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float() + x

    return from_function(forward, linear=nn.Linear(8, 8)), (X,), {}


@kind
def no_grad_inside() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().amax(-1, keepdim=True)
        return x / scale

    return from_function(forward), (X,), {}


@kind
def checkpointed() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda t: self.linear(t).relu(), x, use_reentrant=False)  # type: ignore[return-value]

    return from_function(forward, linear=nn.Linear(8, 8)), (X,), {}


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 2


@kind
def custom_autograd_function() -> Call:
    return from_function(lambda self, x: Twice.apply(x) + 1), (X,), {}


@kind
def tied_weights() -> Call:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second), (X,), {}


@kind
def branch_on_a_shape() -> Call:
    return from_function(lambda self, x: x * 2 if x.shape[0] > 3 else x - 1), (X,), {}


@kind
def multihead_attention() -> Call:
    return (
        nn.MultiheadAttention(16, 4, batch_first=True).eval(),
        (TOKENS, TOKENS, TOKENS),
        {"need_weights": False},
    )


@kind
def multihead_attention_with_weights() -> Call:
    return nn.MultiheadAttention(16, 2, batch_first=True), (TOKENS, TOKENS + 1, TOKENS - 1), {}


@kind
def transformer_encoder_layer() -> Call:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), (TOKENS,), {}


@kind
def transformer_decoder_layer() -> Call:
    return nn.TransformerDecoderLayer(16, 4, 32, batch_first=True).eval(), (TOKENS, TOKENS), {}


@kind
def scaled_dot_product_attention() -> Call:
    def forward(self: Any, q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    mask = torch.full((6, 6), -math.inf).triu(1)
    return from_function(forward), (TOKENS.view(2, 6, 4, 4).transpose(1, 2), mask), {}


@kind
def embedding_bag_of_tokens() -> Call:
    made = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 3))
    return made, (torch.tensor([[1, 5, 10], [0, 2, 2]]),), {}


@kind
def rotary_positions() -> Call:
    def forward(self: Any, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        angles = position_ids[..., None].float() * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    made = from_function(forward, frequencies=torch.logspace(0, -2, 8))
    return made, (TOKENS, torch.arange(6).expand(2, 6)), {}


@kind
def convolution_batch_norm() -> Call:
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval(), (IMAGE,), {}


@kind
def batch_norm_in_training() -> Call:
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)).train(), (IMAGE,), {}


@kind
def group_norm_pool_upsample() -> Call:
    made = nn.Sequential(
        nn.GroupNorm(2, 4), nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(2)
    )
    return made, (IMAGE,), {}


@kind
def channels_last_input() -> Call:
    return nn.Conv2d(4, 8, 1), (IMAGE.to(memory_format=torch.channels_last),), {}


@kind
def transposed_input() -> Call:
    return nn.Linear(4, 3), (X.t(),), {}


@kind
def lstm() -> Call:
    return nn.LSTM(16, 8, batch_first=True), (TOKENS,), {}


@kind
def cross_entropy() -> Call:
    return nn.CrossEntropyLoss(), (X, torch.tensor([0, 7, 3, 1])), {}


@kind
def half_precision_block() -> Call:
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).to(torch.bfloat16), (X.to(torch.bfloat16),), {}


@kind
def einsum_and_index() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum("bld,bmd->blm", x, x)
        y[:, 0] = 0
        return y[:, 1:, ::2].contiguous().view(2, -1)

    return from_function(forward), (TOKENS,), {}


@kind
def complex_numbers() -> Call:
    return from_function(lambda self, x: torch.fft.rfft(x).abs()), (X,), {}


@kind
def a_function() -> Call:
    return F.silu, (X,), {}


@kind
def forward_hooks() -> Call:
    made = nn.Sequential(nn.Linear(8, 8))
    made[0].register_forward_hook(lambda module, given, result: torch.mul(result, 3))  # type: ignore
    return made, (X,), {}


@kind
def dropout_in_evaluation() -> Call:
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).eval(), (X,), {}


@kind
def old_weight_norm() -> Call:
    return torch.nn.utils.weight_norm(nn.Linear(8, 4)), (X,), {}


# -- left alone --------------------------------------------------------------------------------------------


@refused("reads a number out of a tensor|cannot be captured")
def item() -> Call:
    return from_function(lambda self, x: x * x.sum().item()), (X,), {}


@refused("cannot be captured")
def branch_on_a_value() -> Call:
    return from_function(lambda self, x: x * 2 if x.sum() > 0 else x), (X,), {}


@refused("rebinds")
def rebound_state() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.hidden = x.tanh()
        return self.hidden

    made = from_function(forward)
    made.__dict__["hidden"] = X.clone()
    return made, (X,), {}


@refused("rebinds")
def counter() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls

    return from_function(forward, calls=0), (X,), {}


@refused("changes a list")
def list_that_grows() -> Call:
    def forward(self: Any, x: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        kept.append(x + 1)
        return x * 2

    return from_function(forward), (X, [X]), {}


@refused("cannot say what is in it")
def object_with_state() -> Call:
    return from_function(lambda self, x, thing: x + 1), (X, object()), {}


@refused("cannot be captured")
def nonzero_entries() -> Call:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        return found * 2 if found.shape[0] > 3 else found

    return from_function(forward), (X,), {}


@refused("computes no tensor")
def nothing_computed() -> Call:
    return from_function(lambda self, x: x), (X,), {}


@refused("cannot be captured")
def an_error_of_its_own() -> Call:
    return nn.Linear(3, 3), (X,), {}
