"""Programs become graphs that compute the same, at the size they were captured at and at others."""

# ruff: noqa: E501 (tables of programs, one a line)

from __future__ import annotations

import pytest

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.dataless import Uncaptured
from egg.expert.algebra.simplify import simplify
from egg.expert.graph import Origin
from egg.expert.reading.capture import capture, capture_once
from tests.expert.captured import check, kinds, program, resized

KNOBS = "B, C, H, W = 4, 16, 18, 20"
OTHERS = "B, C, H, W = 3, 24, 23, 13"
IMAGE, ROWS = "torch.randn(B, C, H, W)", "torch.randn(B, C)"
TOKENS = "torch.randn(B, H, C)"

LAYERS = {
    "linear": ("self.a(x).relu()", ROWS, "self.a = nn.Linear(C, 3 * C)", {"matmul": 1, "relu": 1}),
    "linear of tokens": ("self.a(x) * 2", TOKENS, "self.a = nn.Linear(C, H, bias=False)", {"matmul": 1}),
    "bilinear": ("self.a(x, y)", f"{ROWS}, {ROWS}", "self.a = nn.Bilinear(C, C, H)", {"matmul": 1}),
    "conv": ("self.a(x)", IMAGE, "self.a = nn.Conv2d(C, 2 * C, 3, stride=2, padding=1)", {"conv": 1}),
    "conv same": ("self.a(x)", IMAGE, "self.a = nn.Conv2d(C, 8, (4, 3), padding='same', dilation=2)", {"conv": 1, "pad": 0}),
    "conv same, uneven": ("self.a(x)", IMAGE, "self.a = nn.Conv2d(C, 8, 4, padding='same')", {"conv": 1, "pad": 1}),
    "depthwise": ("self.a(x)", IMAGE, "self.a = nn.Conv2d(C, C, 3, groups=C)", {"conv": 1}),
    "grouped": ("self.a(x)", IMAGE, "self.a = nn.Conv2d(C, 2 * C, 3, groups=4)", {"conv": 1}),
    "transposed": ("self.a(x)", IMAGE, "self.a = nn.ConvTranspose2d(C, 6, 3, stride=2, padding=1, output_padding=1)", {"conv": 1}),
    "conv of one": ("self.a(x)", "torch.randn(C, H, W)", "self.a = nn.Conv2d(C, 6, 3)", {"conv": 1}),
    "conv1d": ("self.a(x)", "torch.randn(B, C, H)", "self.a = nn.Conv1d(C, 6, 3, dilation=2)", {"conv": 1}),
    "conv3d": ("self.a(x)", "torch.randn(B, 3, 5, H, W)", "self.a = nn.Conv3d(3, 4, 3)", {"conv": 1}),
    "batch norm": ("self.a(x)", IMAGE, "self.a = nn.BatchNorm2d(C)", {"norm": 1, "update": 3}),
    "batch norm, done": ("self.a(x)", IMAGE, "self.a = nn.BatchNorm2d(C).eval()", {"norm": 1, "update": 0}),
    "batch norm without statistics": ("self.a(x)", IMAGE, "self.a = nn.BatchNorm2d(C, track_running_stats=False)", {"norm": 1, "update": 0}),
    "layer norm": ("self.a(x)", TOKENS, "self.a = nn.LayerNorm(C)", {"norm": 1}),
    "rms norm": ("self.a(x)", TOKENS, "self.a = nn.RMSNorm(C, eps=1e-6)", {"norm": 1}),
    "group norm": ("self.a(x)", IMAGE, "self.a = nn.GroupNorm(8, C)", {"norm": 1}),
    "instance norm": ("self.a(x)", IMAGE, "self.a = nn.InstanceNorm2d(C, affine=True)", {"norm": 1}),
    "pools": ("self.b(self.a(x))", IMAGE, "self.a = nn.MaxPool2d(3, 2, 1); self.b = nn.AvgPool2d(2, count_include_pad=False)", {"pool": 2}),
    "pool with ceiling": ("self.a(x)", IMAGE, "self.a = nn.MaxPool2d(3, 2, ceil_mode=True)", {"pool": 1}),
    "global pools": ("F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, 1)", IMAGE, "pass", {"mean": 1, "max": 1}),
    "resized": ("F.interpolate(x / 255, size=(7, 9), mode='bilinear'), F.interpolate(x, size=x.shape[3], mode='bicubic', align_corners=True)", IMAGE, "pass", {"resample": 2}),
    "resized by whole factors": ("F.interpolate(x, scale_factor=3)", IMAGE, "pass", {"resample": 0, "library": 0}),
    "adaptive pool": ("F.adaptive_avg_pool2d(x, (3, 5))", IMAGE, "pass", {"pool": 1}),
    "attention": ("F.scaled_dot_product_attention(x, x, x, is_causal=True)", "torch.randn(B, 2, H, C)", "pass", {"attention": 1}),
    "multi-head attention": ("self.a(x, x, x, need_weights=False)[0]", TOKENS, "self.a = nn.MultiheadAttention(C, 2, batch_first=True)", {"attention": 1, "matmul": 2}),
    "gru": ("self.a(x)[0]", TOKENS, "self.a = nn.GRU(C, 8, 2, batch_first=True, bidirectional=True)", {"recurrent": 1}),
    "lstm": ("y, (h, c) = self.a(x); return y, h, c", "torch.randn(5, B, C)", "self.a = nn.LSTM(C, 8)", {"recurrent": 1}),
    "rnn cell": ("self.b(x, self.a(x, x))", ROWS, "self.a = nn.GRUCell(C, C); self.b = nn.RNNCell(C, C)", {"matmul": 4}),
    "lstm cell": ("self.a(x, (x, 2 * x))[1]", ROWS, "self.a = nn.LSTMCell(C, C)", {"matmul": 2}),
    "embedding": ("self.a(x)", "torch.randint(0, 10, (B, H))", "self.a = nn.Embedding(10, C)", {"gather": 1}),
    "dropout of nothing": ("F.dropout(x, 0.0) + F.dropout(x, 0.5, training=False)", ROWS, "pass", {"random": 0, "add": 1}),
    "buffer": ("x * self.scale + self.plain + self.many[1]", ROWS, "self.register_buffer('scale', torch.rand(C)); self.plain = torch.rand(C); self.many = [torch.rand(1), torch.rand(C)]", {"mul": 1}),
}  # fmt: skip

FUNCTIONS = {
    "numbers": ("(2 - x) * 3 / (x + 1) ** 2 - 1 / x", {"sub": 2, "pow": 1}),
    "activations": ("F.gelu(x) + F.gelu(x, approximate='tanh') + F.silu(x) + F.mish(x) + F.hardswish(x) + F.softplus(x, 2.0, 5.0)", {"gelu": 1, "gelu_tanh": 1}),
    "more activations": ("F.elu(x, 0.5) + F.selu(x) + F.celu(x, 2.0) + F.leaky_relu(x, 0.2) + F.hardtanh(x, -2, 3) + F.relu6(x) + F.hardsigmoid(x)", {"elu": 1}),
    "rare activations": ("F.softsign(x) + F.tanhshrink(x) + F.softshrink(x) + F.hardshrink(x) + F.threshold(x, 0.1, 2.0) + F.logsigmoid(x)", {}),
    "glu": ("F.glu(x, 1)", {"sigmoid": 1}),
    "bounds": ("x.clamp(-1, 1) + x.clamp(min=0.5) + torch.maximum(x, -x) + torch.min(x, torch.tensor(0.25))", {"clamp": 2}),
    "comparisons": ("torch.where((x > 0) & ~(x > 1), x, -x), (x == 0).sum(), torch.logical_or(x > 1, x < -1)", {"where": 1}),
    "masked": ("x.masked_fill(x < 0, float('-inf')).softmax(-1)", {"where": 1, "softmax": 1}),
    "casts": ("x.to(torch.int32).float() + x.long() + x.type_as(x)", {"cast": 3}),
    "remainders": ("x % 0.3 + torch.fmod(x, 0.7) + torch.div(x, 0.2, rounding_mode='floor')", {}),
    "fused names": ("torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x.abs() + 1) + torch.lerp(x, x * x, 0.3)", {}),
    "sums": ("x.sum(), x.mean((1, 2), keepdim=True), x.prod(-1), x.amax(1), x.amin((0, 2))", {"sum": 1, "mean": 1}),
    "extremes": ("torch.max(x, 1)[0], torch.max(x, 2)[1], torch.min(x, 1, keepdim=True)[0], x.argmin(1), x.argmax()", {"argmax": 3, "argmin": 2}),
    "moments": ("x.var(1), x.std((1, 2), unbiased=False), torch.var_mean(x, 2)[1]", {"var": 3}),
    "norms": ("x.norm(), torch.norm(x, p=1, dim=1), torch.linalg.norm(x, dim=1), x.norm(dim=(1, 2), p='fro', keepdim=True), F.normalize(x)", {}),
    "truth": ("(x > 0).any(1), (x > -9).all()", {"any": 1, "all": 1}),
    "log sums": ("torch.logsumexp(x, (1, 2)), F.log_softmax(x, 1)", {"logsumexp": 1, "softmax": 1}),
    "scans": ("x.cumsum(1), x.cumprod(2), torch.flip(torch.cumsum(x.flip(1), 1), (1,))", {"scan": 3}),
    "shapes": ("x.flatten(1).view(B, C, -1).squeeze().unsqueeze(1).movedim(1, -1), x.transpose(0, 1).reshape(-1)", {}),
    "slices": ("x[:, 1:-1], x[:, ::2, 3], x[..., -1], x.narrow(1, 2, 5), x.select(1, 4)", {"view": 9}),
    "pieces": ("a, b = x.chunk(2, 1); c, d, e = x.split([3, 4, C - 7], 1); return a * b, c.sum() + d.sum() + e.sum(), x[:, :4].unbind(1)[2]", {}),
    "joined": ("torch.cat([x, x[:, :3] * 2], 1), torch.stack([x, -x], 1)", {"cat": 2}),
    "padded": ("F.pad(x, (1, 2, 3, 0), value=0.5), F.pad(x, (-1, 2)), F.pad(x, (2, 1), mode='reflect'), F.pad(x, (2, 1), mode='circular'), F.pad(x, (1, 2), mode='replicate')", {}),
    "repeated": ("x.repeat(2, 1, 3), x.repeat_interleave(2, 1), x.roll(2, 1), x.roll((1, -2), (1, 2)), x[:, None].expand(-1, 4, -1, -1)", {}),
    "triangles": ("x.tril(), x.triu(1)", {"triangle": 2}),
    "made": ("x + torch.arange(H) * torch.ones(C, 1) + torch.eye(C, H) + torch.full_like(x, 2.0) + torch.zeros(H)", {}),
    "windows": ("x.unfold(1, 2, 2)", {}),
    "einsum": ("torch.einsum('bch,bdh->bcd', x, x), torch.einsum('bch,ch->bh', x, x[0]), torch.einsum('bch->hb', x), torch.einsum('...h,hk->...k', x, x[0].T)", {"matmul": 3}),
    "products": ("x @ x.transpose(1, 2), torch.bmm(x, x.mT), x[0] @ x[0, 0], x[0, 0].dot(x[0, 1]), x[0, 0] @ x[1, 0], F.linear(x[0, 0], x[1, 0], x[0, 0, 0]), torch.outer(x[0, 0], x[0, 1]), torch.tensordot(x, x, ([1, 2], [1, 2]))", {}),
    "sums of products": ("torch.addmm(x[0, :, 0], x[1], x[2].T[:, :C].expand(H, C), beta=0.5, alpha=2.0) if False else torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2.0)", {"matmul": 2}),
    "a size in a tensor": ("x / torch.full([], C**0.5) * torch.tensor(2.0) + torch.full([], H**0.5)", {"mul": 2, "div": 0}),
    "classes": ("F.one_hot(x.argmax(1), C)", {"eq": 1, "library": 0}),
    "gathers": ("x.index_select(1, torch.arange(3)), x.gather(1, torch.zeros(B, 2, H, dtype=torch.long)), x[:, torch.arange(4)]", {"gather": 3}),
    "written in place": ("y = x * 1.5; y += 1; y[:, 2:5] = 0; y.view(-1).mul_(2); z = y.transpose(1, 2); z[0] -= 3; return y, z", {"cat": 3}),
    "in order": ("torch.topk(x, 3, 1), torch.sort(x, 2)[0]", {"selection": 2, "library": 0}),
    "named by another's type": ("(x > 0).type(x.type()) * x", {"library": 0}),
    "columns": ("F.unfold(x[:, None], (3, 2), (2, 1), 1, (1, 2)), F.unfold(x, 4, stride=4).sum(1)", {"library": 0, "pad": 1}),
    "finite": ("torch.isfinite(1 / x.relu()), torch.isposinf(1 / x.relu()) | torch.isneginf(x), torch.nan_to_num(x / x.relu(), 0.5, posinf=9.0, neginf=-9.0)", {"library": 0}),
    "without nan": ("torch.nansum(x / x.relu() * x.relu(), 1), torch.nanmean(x / x.relu(), 2, keepdim=True)", {"library": 0}),
    "named functions": ("torch.special.entr(x), torch.special.ndtr(x), torch.lgamma(x), torch.erfinv(x.tanh()), torch.copysign(x, -x)", {"library": 0}),
    "differences": ("torch.diff(x, dim=1), torch.diff(x, 2, prepend=x[:, :, :1], append=x[:, :, -1:])", {"library": 0}),
    "turned": ("torch.rot90(x, 1, (1, 2)), x.rot90(2, (0, 2)), x.rot90(-1, (1, 2)), x.swapaxes(0, 2), x.swapdims(1, 2)", {"library": 0}),
    "taken along": ("torch.take_along_dim(x, x.argsort(1)[:, :2], 1), torch.take_along_dim(x, x[:1].argsort(2), 2), torch.take_along_dim(x, x.argmax())", {"library": 0}),
    "distances": ("torch.cdist(x[..., :3], x[:1, :5, :3]), torch.cdist(x[..., :2], x[..., 2:4], p=1.0), torch.cdist(x.mT, x.mT)", {"library": 0, "matmul": 0}),
    "distances of many": ("torch.cdist(x.repeat(1, 2, 1), x, p=2.0)", {"library": 0, "matmul": 1}),
    "out of autocast": ("a = torch.autocast(device_type=x.device.type, enabled=False); a.__enter__(); y = x.exp(); a.__exit__(None, None, None); return y * 2", {"exp": 1}),
    "complex numbers": ("z = torch.fft.rfft(x); y = z * torch.conj(z.flip(1)) - z / 2.0; return torch.fft.irfft(y / (y.abs() + 1.0), n=x.shape[-1]), z.angle(), -y.imag", {"hypot": 1, "atan2": 1}),
    "complex numbers of parts": ("z = torch.polar(x.exp(), x) + torch.complex(x, -x[:1]) * x[0]; return torch.view_as_real((z.conj() * 2.0).resolve_conj())", {"cos": 1, "sin": 1}),
    "numbers of pairs": ("z = torch.view_as_complex(x.reshape(B, -1, H, 2)); return torch.view_as_real(z * torch.polar(x[0, 0].exp(), x[0, 0, :1])).flatten(2)", {"cos": 1, "mul": 6}),
    "no normal form": ("torch.fft.rfft(x).square().abs(), torch.kthvalue(x, 2, 1)[0]", {"library": 2}),
}  # fmt: skip

DISTRIBUTIONS = {
    "normal": "D.Normal(x, y.exp()).log_prob(y).sum(-1), D.Normal(x, 1.0).entropy()",
    "categorical": "D.Categorical(logits=x).log_prob(y.argmax(1)), D.Categorical(logits=x).entropy()",
    "divergence": "D.kl_divergence(D.Normal(x, x.exp()), D.Normal(y, y.exp()))",
    "truth": "D.Bernoulli(logits=x).log_prob((y > 0).double())",
    "squashed": "D.TransformedDistribution(D.Normal(x, x.exp()), [D.TanhTransform()]).log_prob(y.tanh() * 0.9)",
    "heavy tails": "D.StudentT(3.0 + x.exp(), x, x.exp()).log_prob(y)",
}

LOSSES = {
    "mse": "F.mse_loss(x, y)",
    "l1 sum": "F.l1_loss(x, y, reduction='sum')",
    "smooth": "F.smooth_l1_loss(x, y, beta=0.5)",
    "huber": "F.huber_loss(x, y, delta=0.7)",
    "kl": "F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction='batchmean')",
    "kl of logs": "F.kl_div(F.log_softmax(x, 1), F.log_softmax(y, 1), reduction='sum', log_target=True)",
    "triplet": "F.triplet_margin_loss(x, y, x * y, swap=True)",
    "cross entropy": "F.cross_entropy(x, torch.ones(B, dtype=torch.long))",
    "cross entropy, ignoring": "F.cross_entropy(x, torch.ones(B, dtype=torch.long) * torch.arange(B), ignore_index=2)",
    "cross entropy of probabilities": "F.cross_entropy(x, F.softmax(y, 1))",
    "nll": "F.nll_loss(F.log_softmax(x, 1), torch.zeros(B, dtype=torch.long), reduction='sum')",
    "binary": "F.binary_cross_entropy(x.sigmoid(), y.sigmoid())",
    "binary logits": "F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.full((C,), 2.0))",
    "cosine": "F.cosine_similarity(x, y, dim=1)",
    "cosine embedding": "F.cosine_embedding_loss(x, y, torch.ones(B), margin=0.1)",
    "hinge": "F.hinge_embedding_loss(x, torch.where(y > 0, 1.0, -1.0))",
    "ranking": "F.margin_ranking_loss(x, y, torch.where(y > 0, 1.0, -1.0), margin=0.1)",
    "soft margin": "F.soft_margin_loss(x, torch.where(y > 0, 1.0, -1.0))",
    "distance": "F.pairwise_distance(x, y, p=3.0)",
}


def _at_two_sizes(task: Task, wanted: dict[str, int]) -> None:
    graph = capture(task)
    found = kinds(graph)
    assert {kind: found[kind] for kind in wanted} == wanted
    for version in (graph, simplify(graph)):
        check(version, task)
        check(version, resized(task, KNOBS, OTHERS))
    assert not graph.fixed


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    forward, inputs, layers, wanted = LAYERS[name]
    arguments = "x, y" if "y)" in forward.split(";")[0] and inputs.count("torch") > 1 else "x"
    _at_two_sizes(program(forward, inputs, layers, KNOBS, arguments), wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    forward, wanted = FUNCTIONS[name]
    _at_two_sizes(program(forward, "torch.randn(B, C, H)", "pass", KNOBS), wanted)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_do_not_look_at_values(name: str) -> None:
    """By default they raise where their arguments are out of range."""
    forward = f"D = torch.distributions; return {DISTRIBUTIONS[name]}"
    _at_two_sizes(program(forward, f"{ROWS}, {ROWS}", "pass", KNOBS, "x, y"), {"library": 0})


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_chains(name: str) -> None:
    task = program(LOSSES[name], f"{ROWS}, {ROWS}", "pass", KNOBS, "x, y")
    _at_two_sizes(task, {"library": 0})


def test_leaves_have_paths() -> None:
    layers = "self.net = nn.Sequential(nn.Linear(C, C)); self.table = torch.rand(C); self.register_buffer('mask', torch.ones(C))"
    graph = capture_once(
        program("self.net(x) + self.table * self.mask * n", f"{ROWS}, 3", layers, KNOBS, "x, n")
    )
    leaves = {value.path: value.origin for value in graph.values.values() if value.origin is not Origin.NODE}
    assert leaves == {
        "x": Origin.INPUT,
        "net.0.weight": Origin.PARAMETER,
        "net.0.bias": Origin.PARAMETER,
        "mask": Origin.PARAMETER,
        "table": Origin.CONSTANT,
    }
    assert graph.arguments == ("x", None)
    assert next(node for node in graph if node.op == "matmul").label == "net_0"


def test_what_is_drawn_stays_random() -> None:
    graph = simplify(capture_once(program("F.dropout(x, 0.25); return x + torch.rand_like(x)", ROWS)))
    assert kinds(graph)["random"] == 2


def test_state_that_forward_gives_a_new_tensor_is_a_write() -> None:
    task = program(
        "self.state = torch.tanh(self.state + x); return self.state * 2",
        ROWS,
        "self.state = torch.zeros(B, C)",
    )
    graph = capture_once(task)
    (update,) = [node for node in graph if node.op == "update"]
    assert graph.value(str(update.inputs[0])).path == "state"
    check(graph, task)


def test_an_argument_that_is_written_is_a_write() -> None:
    graph = capture_once(program("x.add_(1); return x * 2", ROWS))
    assert [node.op for node in graph if node.op == "update"] == ["update"]


@pytest.mark.parametrize(
    ("asked", "returned", "results"),
    [
        ("[True, True, False]", "g[0], g[1]", 2),
        ("[False, True, False]", "g[1]", 1),
        ("[True, False, True]", "g[2]", 2),
    ],
)
def test_a_call_that_returns_none_between_tensors_is_captured(
    asked: str, returned: str, results: int
) -> None:
    """As the backward of a convolution does for a gradient that is not asked for."""
    call = f"torch.ops.aten.convolution_backward(x, x, self.w, [C], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, {asked})"
    task = program(f"g = {call}; return {returned}", IMAGE, "self.w = nn.Parameter(torch.randn(C, C, 3, 3))")
    graph = capture_once(task)
    (node,) = [node for node in graph if node.op == "library"]
    assert len(node.outputs) == results
    check(graph, task)


def test_half_precision_is_captured_as_such() -> None:
    task = program("self.a(x).relu()", ROWS, "self.a = nn.Linear(C, C)")
    graph = capture_once(task, Precision.BF16)
    assert {value.dtype for value in graph.values.values()} == {"bfloat16"}


def test_nothing_is_computed_at_full_size() -> None:
    task = program(
        "self.a(x).softmax(-1)", "torch.randn(B, C)", "self.a = nn.Linear(C, C)", "B, C = 1000000, 400000"
    )
    assert capture(task).result(capture(task).nodes[-1]).shape[0].value == 1000000


@pytest.mark.parametrize(
    "forward",
    ["{'a': 3}", "x if x.sum() > 0 else -x", "(x, (x, None))"],
)
def test_what_a_graph_cannot_say_is_refused(forward: str) -> None:
    with pytest.raises(Exception, match=r"returns|traced|tracing"):
        capture_once(program(forward, ROWS))


def test_a_dropout_between_recurrent_layers_is_refused() -> None:
    with pytest.raises(Uncaptured, match="dropout"):
        capture_once(program("self.a(x)[0]", TOKENS, "self.a = nn.GRU(C, C, 2, dropout=0.5)"))
