"""The steps of random programs: each adds lines to a program where it fits, and returns whether it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.domain.builder import Builder

MOST_ELEMENTS = 3000
UNARY = (
    "torch.relu(x)",
    "torch.tanh(x)",
    "torch.sigmoid(x)",
    "F.gelu(x)",
    "F.silu(x)",
    "x.abs()",
    "torch.exp(-x.abs())",
    "x * x",
    "F.softplus(x)",
    "F.leaky_relu(x, 0.1)",
    "F.elu(x)",
    "F.hardtanh(x)",
    "torch.clamp(x, -0.5, 0.75)",
    "torch.sqrt(x.abs() + 0.1)",
    "torch.sin(x)",
    "-x",
    "x * 2.0 + 1.0",
    "1.0 / (1.0 + x * x)",
    "torch.where(x > 0, x, x * 0.5)",
    "x.masked_fill(x < 0, 0.25)",
    "F.mish(x)",
    "torch.log1p(x.abs())",
)
REDUCTIONS = ("sum", "mean", "amax", "amin", "var", "std", "norm", "logsumexp")


def embedding(b: Builder, shape: list[int]) -> None:
    width = b.random.choice(b.pool)
    name = b.argument("width", b.size(width, "width"))
    b.input(shape, "index")
    b.made.append(f"self.table = nn.Embedding(4, {name})")
    b.add("x = self.table(x)", [*shape, width])
    b.dtype = "float32"


def _unary(b: Builder) -> bool:
    return b.add(f"x = {b.one(UNARY)}")


def _binary(b: Builder) -> bool:
    if len(b.inputs) >= 3:
        return False
    other = b.input(b.broadcast())
    return b.add(f"x = {b.one(('x + {}', 'x * {}', 'torch.maximum(x, {})', '{} - x')).format(other)}")


def _slope(b: Builder) -> bool:
    value = b.one(("0.2", "0.5", "0.01"))
    name = b.argument("slope", value, b.one(("0.01", "0.2")) if b.chance(0.6) else None)
    return b.add(f"x = F.leaky_relu(x, self.{name})")


def _scale(b: Builder) -> bool:
    name = b.argument("scale", b.one(("0.5", "2.0", "3")), "1.0" if b.chance(0.6) else None)
    return b.add(f"x = x * self.{name}")


def _flag(b: Builder) -> bool:
    name = b.argument("residual", b.one(("True", "False")), b.one(("True", "False")))
    return b.add(f"x = torch.tanh(x) + x if self.{name} else torch.tanh(x)")


def _mask(b: Builder) -> bool:
    if "mask=None" in b.optional or len(b.inputs) >= 3:
        return False
    b.optional.insert(0, "mask=None")
    if b.chance(0.5):
        shape = ", ".join(map(str, b.broadcast()))
        b.given.insert(0, f"torch.rand({shape}) < 0.6" if shape else "None")
    else:
        b.given.insert(0, "None")
    b.lines.append("if mask is not None:")
    return b.add("    x = x.masked_fill(mask, 0.0)")


def _number(b: Builder) -> bool:
    if b.optional:
        return False
    b.optional.append("alpha=1.0")
    b.given.append(b.one(("0.5", "2.0", "1.0")))
    return b.add("x = x * alpha")


def _dims(b: Builder) -> list[int]:
    count = b.random.randint(1, len(b.shape))
    return sorted(b.random.sample(range(len(b.shape)), count))


def _reduced(b: Builder, dims: Sequence[int], keep: bool) -> list[int]:
    return [1 if at in dims else n for at, n in enumerate(b.shape) if keep or at not in dims]


def _reduce(b: Builder) -> bool:
    if not b.shape:
        return False
    dims, keep, name = _dims(b), b.chance(0.4), b.one(REDUCTIONS)
    if name in ("var", "std") and b.elements([b.shape[d] for d in dims]) < 2:
        return False
    shown = [d - len(b.shape) if b.chance(0.4) else d for d in dims]
    where = f"dim={shown[0] if len(shown) == 1 else tuple(shown)}"
    if name == "norm":
        return b.add(f"x = torch.linalg.vector_norm(x, {where}, keepdim={keep})", _reduced(b, dims, keep))
    return b.add(f"x = x.{name}({where}, keepdim={keep})", _reduced(b, dims, keep))


def _reduce_one(b: Builder) -> bool:
    if not b.shape:
        return False
    dim, keep = b.random.randrange(len(b.shape)), b.chance(0.4)
    match b.one(("argmax", "max", "min", "cumsum", "prod")):
        case "cumsum":
            return b.add(f"x = torch.cumsum(x, dim={dim})")
        case "argmax":
            b.add(f"x = torch.argmax(x, dim={dim}, keepdim={keep}).float()", _reduced(b, [dim], keep))
            b.dtype = "float32"
            return True
        case "prod":
            return b.add(
                f"x = torch.prod(x * 0.5 + 1.0, dim={dim}, keepdim={keep})", _reduced(b, [dim], keep)
            )
        case name:
            return b.add(f"x = torch.{name}(x, dim={dim}, keepdim={keep})[0]", _reduced(b, [dim], keep))


def _softmax(b: Builder) -> bool:
    if not b.shape:
        return False
    dim = b.random.randrange(-len(b.shape), len(b.shape))
    return b.add(f"x = {b.one(('F.softmax', 'F.log_softmax'))}(x, dim={dim})")


def _half(b: Builder) -> str:
    """What a module of a program in half precision is cast to."""
    return "" if b.dtype == "float32" else f".to(torch.{b.dtype})"


def _norm(b: Builder) -> bool:
    if not b.shape:
        return False
    match b.one(("layer", "rms", "normalize", "by hand")):
        case "layer":
            name = b.argument("features", b.size(b.shape[-1], "features"))
            b.made.append(f"self.norm{len(b.made)} = nn.LayerNorm({name}){_half(b)}")
            return b.add(f"x = self.norm{len(b.made) - 1}(x)")
        case "rms":
            return b.add("x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)")
        case "normalize":
            dim = b.random.randrange(len(b.shape))
            return b.add(f"x = F.normalize(x, dim={dim})")
    dim = b.random.randrange(len(b.shape))
    return b.add(
        f"x = (x - x.mean({dim}, keepdim=True)) / (x.std({dim}, keepdim=True, unbiased=False) + 0.1)"
    )


def _group_norm(b: Builder) -> bool:
    if len(b.shape) < 2 or b.shape[1] % 2 or b.elements(b.shape[2:]) * b.shape[1] < 4:
        return False
    name = b.argument("channels", b.size(b.shape[1], "channels"))
    b.made.append(f"self.norm{len(b.made)} = nn.GroupNorm(2, {name}){_half(b)}")
    return b.add(f"x = self.norm{len(b.made) - 1}(x)")


def _batch_norm(b: Builder) -> bool:
    if len(b.shape) not in (2, 3, 4) or b.elements() == b.shape[1] or b.shape[0] == 1:
        return False
    kind = "2d" if len(b.shape) == 4 else "1d"
    name = b.argument("channels", b.size(b.shape[1], "channels"))
    b.made.append(f"self.norm{len(b.made)} = nn.BatchNorm{kind}({name}){_half(b)}")
    return b.add(f"x = self.norm{len(b.made) - 1}(x)")


def _dropout(b: Builder) -> bool:
    name = b.argument("p", b.one(("0.3", "0.0")), "0.5")
    return b.add(f"x = F.dropout(x, self.{name}, self.training)")


def _linear(b: Builder) -> bool:
    if not b.shape:
        return False
    out = b.random.choice(b.pool)
    names = [b.argument("features", b.size(n, "features")) for n in (b.shape[-1], out)]
    bias = b.chance(0.6)
    b.made.append(f"self.layer{len(b.made)} = nn.Linear({names[0]}, {names[1]}, bias={bias}){_half(b)}")
    return b.add(f"x = self.layer{len(b.made) - 1}(x)", [*b.shape[:-1], out])


def _matmul(b: Builder) -> bool:
    if len(b.shape) < 2 or len(b.inputs) >= 3:
        return False
    if b.chance(0.3):
        lead = b.shape[:-2]
        other = b.input([*lead, b.shape[-1], width := b.random.choice(b.pool)])
    else:
        other = b.input([b.shape[-1], width := b.random.choice(b.pool)])
    return b.add(f"x = torch.matmul(x, {other})", [*b.shape[:-1], width])


def _gram(b: Builder) -> bool:
    if len(b.shape) < 2:
        return False
    return b.add("x = x @ x.transpose(-1, -2)", [*b.shape[:-1], b.shape[-2]])


def _parameter(b: Builder) -> bool:
    if not b.shape:
        return False
    name = b.argument("features", b.size(b.shape[-1], "features"))
    b.made.append(f"self.weight{len(b.made)} = nn.Parameter(torch.randn({name}))")
    b.dtype = "float32"
    return b.add(f"x = x {b.one(('*', '+'))} self.weight{len(b.made) - 1}")


def _conv(b: Builder) -> bool:
    if len(b.shape) not in (3, 4) or b.dtype != "float32":
        return False
    kernel = b.random.choice((1, 2, 3))
    stride, padding = b.random.choice((1, 1, 2)), b.random.choice((0, 1))
    sizes = [(n + 2 * padding - kernel) // stride + 1 for n in b.shape[2:]]
    if min(sizes) < 1:
        return False
    out = b.random.choice(b.pool)
    names = [b.argument("channels", b.size(n, "channels")) for n in (b.shape[1], out)]
    options = f"{kernel}, stride={stride}, padding={padding}, bias={b.chance(0.6)}"
    kind = len(b.shape) - 2
    b.made.append(f"self.conv{len(b.made)} = nn.Conv{kind}d({names[0]}, {names[1]}, {options})")
    return b.add(f"x = self.conv{len(b.made) - 1}(x)", [b.shape[0], out, *sizes])


def _pool(b: Builder) -> bool:
    if len(b.shape) not in (3, 4):
        return False
    kind = len(b.shape) - 2
    if b.chance(0.25):
        return b.add(f"x = F.adaptive_avg_pool{kind}d(x, 1)", [*b.shape[:2], *[1] * kind])
    sizes = [n // 2 for n in b.shape[2:]]
    if min(sizes) < 1:
        return False
    return b.add(f"x = F.{b.one(('max', 'avg'))}_pool{kind}d(x, 2)", [*b.shape[:2], *sizes])


def _cat(b: Builder) -> bool:
    if not b.shape or 2 * b.elements() > MOST_ELEMENTS:
        return False
    dim = b.random.randrange(len(b.shape))
    shape = list(b.shape)
    if b.chance(0.5) or len(b.inputs) >= 3:
        shape[dim] *= 2
        return b.add(f"x = torch.cat([x, {b.one(('x', '-x', 'x * 2'))}], dim={dim})", shape)
    other = list(b.shape)
    other[dim] = b.random.choice(b.pool)
    shape[dim] += other[dim]
    return b.add(f"x = torch.cat([x, {b.input(other)}], dim={dim})", shape)


def _slice(b: Builder) -> bool:
    if not b.shape:
        return False
    dim = b.random.randrange(len(b.shape))
    n, shape = b.shape[dim], list(b.shape)
    before = ":, " * dim
    match b.one(("half", "step", "rest", "first", "last", "flip", "roll", "chunk")):
        case "half" if n >= 2:
            shape[dim] = n // 2
            return b.add(f"x = x[{before}: x.shape[{dim}] // 2]", shape)
        case "step":
            shape[dim] = (n + 1) // 2
            return b.add(f"x = x[{before}::2]", shape)
        case "rest" if n >= 2:
            shape[dim] = n - 1
            return b.add(f"x = x[{before}1:]", shape)
        case "first":
            return b.add(f"x = x[{before}0]", shape[:dim] + shape[dim + 1 :])
        case "last":
            return b.add(f"x = x[{before}-1]", shape[:dim] + shape[dim + 1 :])
        case "flip":
            return b.add(f"x = torch.flip(x, [{dim}])")
        case "roll":
            return b.add(f"x = torch.roll(x, 1, {dim})")
        case "chunk" if n % 2 == 0:
            shape[dim] = n // 2
            b.lines.append(f"left, right = x.chunk(2, dim={dim})")
            return b.add("x = left * torch.sigmoid(right)", shape)
    return False


def _view(b: Builder) -> bool:
    shape = list(b.shape)
    match b.one(("transpose", "permute", "flatten", "unsqueeze", "split", "join", "fixed")):
        case "transpose" if len(shape) >= 2:
            i, j = b.random.sample(range(len(shape)), 2)
            shape[i], shape[j] = shape[j], shape[i]
            return b.add(f"x = x.transpose({i}, {j})", shape)
        case "permute" if len(shape) >= 3:
            order = b.random.sample(range(len(shape)), len(shape))
            return b.add(f"x = x.permute({', '.join(map(str, order))})", [shape[at] for at in order])
        case "flatten" if len(shape) >= 2:
            return b.add("x = x.flatten(1)", [shape[0], b.elements(shape[1:])])
        case "unsqueeze" if len(shape) <= 3:
            dim = b.random.randint(0, len(shape))
            return b.add(f"x = x.unsqueeze({dim})", [*shape[:dim], 1, *shape[dim:]])
        case "split" if shape and shape[-1] % 2 == 0 and len(shape) <= 3:
            return b.add("x = x.reshape(*x.shape[:-1], 2, -1)", [*shape[:-1], 2, shape[-1] // 2])
        case "join" if len(shape) >= 2:
            return b.add(
                "x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])", [shape[0] * shape[1], *shape[2:]]
            )
        case "fixed" if len(shape) >= 2:
            return b.add(f"x = x.reshape(-1, {shape[-1]})", [b.elements(shape[:-1]), shape[-1]])
    return False


def _triangle(b: Builder) -> bool:
    if len(b.shape) < 2:
        return False
    if b.chance(0.5):
        return b.add(f"x = torch.{b.one(('tril', 'triu'))}(x)")
    b.lines.append("lower = torch.ones(x.shape[-2], x.shape[-1], device=x.device, dtype=torch.bool).tril()")
    return b.add(f"x = x.masked_fill({b.one(('~', ''))}lower, {b.one(('-1.0', '0.0'))})")


def _where(b: Builder) -> bool:
    if len(b.inputs) >= 3:
        return False
    mask = b.input(b.broadcast(), "mask")
    return b.add(f"x = torch.where({mask}, x, {b.one(('-x', 'x * 0.5', '0.5'))})")


def _residual(b: Builder) -> bool:
    b.lines.append("before = x")
    b.add(f"x = {b.one(UNARY)}")
    return b.add("x = x + before")


Step = Callable[[Builder], bool]
STEPS: tuple[tuple[float, Step], ...] = (
    (5, _unary),
    (4, _binary),
    (2, _slope),
    (2, _scale),
    (2, _flag),
    (1.5, _mask),
    (1.5, _number),
    (5, _reduce),
    (2, _reduce_one),
    (2.5, _softmax),
    (3, _norm),
    (1, _group_norm),
    (1.5, _batch_norm),
    (1.5, _dropout),
    (3, _linear),
    (2.5, _matmul),
    (1, _gram),
    (1.5, _parameter),
    (2, _conv),
    (1.5, _pool),
    (2, _cat),
    (3, _slice),
    (3, _view),
    (1, _triangle),
    (1.5, _where),
    (1.5, _residual),
)
