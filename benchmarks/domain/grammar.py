"""Small PyTorch programs drawn at random: the task files that nobody thought of.

A program is a chain of steps on one running tensor ``x``; each step is a line of ``forward`` that fits the
shape that ``x`` has by then, with what it needs in the constructor and among the inputs. What makes captures
go wrong is drawn on purpose: sizes that are equal by accident, sizes of 1 and odd ones, numbers written into
``get_inputs`` or given a name, flags and factors with defaults, optional inputs, numbers as inputs, and
layers that know modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

POOLS = ((4, 4, 8), (2, 3, 5), (1, 4, 6), (8, 8, 8), (3, 3, 4), (5, 7, 16), (2, 6, 12), (1, 1, 9), (16, 4, 4))
"""Sizes of one program: few, so that many are equal."""
MOST_ELEMENTS = 3000
MOST_STEPS = 5
DTYPES = ("float32",) * 7 + ("bfloat16", "float16")

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


@dataclass
class Argument:
    """A constructor argument: how it is written, and what ``get_init_inputs`` gives; ``None`` its default."""

    name: str
    declared: str
    given: str | None


@dataclass
class Builder:
    """A program while it grows."""

    random: Random
    pool: tuple[int, ...] = ()
    dtype: str = "float32"
    shape: list[int] = field(default_factory=list)
    """Of the running tensor."""
    inputs: list[tuple[str, str]] = field(default_factory=list)
    """Name, and the expression that makes it in ``get_inputs``."""
    optional: list[str] = field(default_factory=list)
    """Parameters of ``forward`` behind the inputs, with defaults."""
    given: list[str] = field(default_factory=list)
    """What ``get_inputs`` gives for the first of those."""
    arguments: list[Argument] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    """Lines of the constructor."""
    lines: list[str] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    """Module-level sizes."""
    kept: list[str] = field(default_factory=list)

    # -- sizes and inputs ------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, choices: Sequence[str]) -> str:
        return choices[self.random.randrange(len(choices))]

    def size(self, number: int, hint: str = "size") -> str:
        """A size in the task's text: a number, or a name at module level."""
        if self.chance(0.5):
            return str(number)
        known = [name for name, value in self.names.items() if value == number]
        if known and self.chance(0.7):
            return known[0]
        name = f"{hint}_{len(self.names)}"
        self.names[name] = number
        return name

    def input(self, shape: Sequence[int], kind: str = "float") -> str:
        name = f"x{len(self.inputs)}" if self.inputs else "x"
        sizes = ", ".join(self.size(n, "batch_size" if at == 0 else "size") for at, n in enumerate(shape))
        match kind:
            case "mask":
                text = f"torch.rand({sizes}) < 0.6" if shape else "torch.tensor(True)"
            case "index":
                text = f"torch.randint(0, 4, ({sizes},))"
            case _:
                text = f"torch.randn({sizes})" if shape else "torch.randn(())"
                text += "" if self.dtype == "float32" else f".to(torch.{self.dtype})"
        self.inputs.append((name, text))
        return name

    def argument(self, stem: str, value: str, default: str | None = None) -> str:
        """A constructor argument, read back from ``self``: with a default it may be left at it."""
        name = f"{stem}{len(self.arguments) or ''}"
        if default is None:
            self.arguments.append(Argument(name, name, value))
        else:
            self.arguments.append(Argument(name, f"{name}={default}", value if self.chance(0.6) else None))
        self.made.append(f"self.{name} = {name}")
        return name

    def broadcast(self) -> list[int]:
        """A shape that broadcasts with the running one: its last dimensions, some of them 1."""
        start = self.random.randint(0, max(0, len(self.shape) - 1))
        return [1 if self.chance(0.3) else n for n in self.shape[start:]]

    def elements(self, shape: Sequence[int] | None = None) -> int:
        count = 1
        for n in self.shape if shape is None else shape:
            count *= n
        return count

    def add(self, line: str, shape: Sequence[int] | None = None) -> bool:
        self.lines.append(line)
        if shape is not None:
            self.shape = list(shape)
        return True

    # -- text --------------------------------------------------------------------------------------------

    def text(self) -> str:
        required = [a for a in self.arguments if "=" not in a.declared]
        rest = [a for a in self.arguments if "=" in a.declared]
        ordered = [*required, *rest]
        declared = ", ".join(["self", *(a.declared for a in ordered)])
        given = [a.given for a in required]
        named = [f'"{a.name}": {a.given}' for a in rest if a.given is not None]
        init = f"[{', '.join(map(str, given))}]"
        init = f"[{init}, {{{', '.join(named)}}}]" if named else init
        forward = ", ".join(["self", *(name for name, _ in self.inputs), *self.optional])
        results = ", ".join([*self.kept, "x"])
        return "\n".join(
            [
                "import torch",
                "import torch.nn as nn",
                "import torch.nn.functional as F",
                "",
                *(f"{name} = {value}" for name, value in self.names.items()),
                "",
                "class Model(nn.Module):",
                f"    def __init__({declared}):",
                "        super().__init__()",
                *(f"        {line}" for line in self.made),
                "",
                f"    def forward({forward}):",
                *(f"        {line}" for line in self.lines),
                f"        return {results}",
                "",
                "def get_inputs():",
                f"    return [{', '.join([*(text for _, text in self.inputs), *self.given])}]",
                "",
                "def get_init_inputs():",
                f"    return {init}",
                "",
            ]
        )


def program(random: Random) -> str:
    """The text of a task."""
    builder = Builder(random, pool=POOLS[random.randrange(len(POOLS))])
    builder.dtype = builder.one(DTYPES)
    rank = random.choice((1, 2, 2, 2, 3, 3, 3, 4, 4))
    shape = [random.choice(builder.pool) for _ in range(rank)]
    while builder.elements(shape) > MOST_ELEMENTS:
        shape[random.randrange(rank)] = 2
    if builder.chance(0.06):
        _embedding(builder, shape[:2])
    else:
        builder.shape = shape
        builder.input(shape)
    steps = random.randint(1, MOST_STEPS)
    while steps and len(builder.lines) < 2 * MOST_STEPS:
        steps -= _step(builder)
    return builder.text()


def _step(b: Builder) -> bool:
    weights = [weight for weight, _ in STEPS]
    (chosen,) = b.random.choices([step for _, step in STEPS], weights)
    if not chosen(b):
        return False
    if len(b.kept) < 1 and b.chance(0.08):
        b.lines.append("kept = x")
        b.kept.append("kept")
    return True


# -- steps: each adds lines and says whether it fitted ------------------------------------------------------


def _embedding(b: Builder, shape: list[int]) -> None:
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
