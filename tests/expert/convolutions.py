"""Small convolutions as graphs, and a file that computes them: what the tests of the pattern share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn import functional

from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.parts import Group, Part, Target
from egg.expert.patterns.convolution.write import write
from egg.expert.sizes import ONE, Size, named
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.ledgers import INTERPRETED

FOLLOWING: Mapping[str, Callable[[torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]] = {
    "relu": lambda y, given: y.relu(),
    "scale": lambda y, given: y * given["scale"],
    "residual": lambda y, given: y + given["residual"],
    "softmax": lambda y, given: y.softmax(1),
    "min_kept": lambda y, given: y.amin(1, keepdim=True),
    "min": lambda y, given: y.amin(1),
    "mean": lambda y, given: y.mean(1),
    "logsumexp": lambda y, given: y.logsumexp(1),
    "max_pool": lambda y, given: getattr(functional, f"max_pool{y.ndim - 2}d")(y, 2),
    "avg_pool": lambda y, given: getattr(functional, f"avg_pool{y.ndim - 2}d")(y, 2),
    "space_mean": lambda y, given: y.mean(tuple(range(2, y.ndim)), keepdim=True),
    "space_sum": lambda y, given: y.sum(tuple(range(2, y.ndim))),
}
OVER_CHANNELS: Mapping[str, Callable[[tuple[Size, ...]], tuple[Size, ...]]] = {
    "softmax": lambda shape: shape,
    "min_kept": lambda shape: (shape[0], ONE, *shape[2:]),
    **dict.fromkeys(("min", "mean", "logsumexp"), lambda shape: (shape[0], *shape[2:])),
}
POOLED = frozenset({"max_pool", "avg_pool", "space_mean", "space_sum"})
"""What reduces space."""


@dataclass(frozen=True)
class Case:
    """One convolution: its sizes, its parameters, and the pointwise functions behind it."""

    name: str
    batch: int
    inputs: int
    outputs: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    output_padding: int = 0
    bias: bool = True
    dtype: str = "float32"
    tail: tuple[str, ...] = ()
    """Of ``relu``, ``scale`` (by a parameter per channel), ``residual``; over channels ``softmax``,
    ``min_kept``, and last ``min``, ``mean``, ``logsumexp`` (which lose that dimension); over space
    ``max_pool`` and ``avg_pool`` (windows of two), ``space_mean`` and ``space_sum``."""
    prologue: bool = False
    """The input passes through ``sigmoid`` first, which does not keep zeros."""
    channels_last: bool = False
    """The result lies with its channels last."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    factors: tuple[float, ...] = ()
    """What each image is multiplied by."""
    spike: float = 1.0
    """What one of the first image's numbers is multiplied by."""
    infinite: bool = False
    """One input is infinite."""

    def __str__(self) -> str:
        return self.name

    @property
    def rank(self) -> int:
        return len(self.space)

    def reference(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        pieces = {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }
        if self.transposed:
            pieces["output_padding"] = self.output_padding
        name = f"conv{'_transpose' if self.transposed else ''}{self.rank}d"
        return getattr(functional, name)(x, weight, bias, **pieces)

    def out_space(self) -> tuple[int, ...]:
        shape = self.reference(
            torch.empty(1, self.inputs, *self.space, device="meta"),
            torch.empty(self.weight_shape(), device="meta"),
            None,
        ).shape
        return tuple(shape[2:])

    def weight_shape(self) -> tuple[int, ...]:
        if self.transposed:
            return (self.inputs, self.outputs // self.groups, *self.kernel)
        return (self.outputs, self.inputs // self.groups, *self.kernel)

    def tensors(self) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        kind = getattr(torch, self.dtype)
        made = {
            "x": torch.randn(self.batch, self.inputs, *self.space),
            "weight": torch.randn(self.weight_shape()) / (self.inputs / self.groups) ** 0.5,
        }
        if self.factors:
            made["x"] *= torch.tensor(self.factors).reshape(-1, *(1,) * (self.rank + 1))
        if self.spike != 1.0:
            made["x"].view(-1)[7] *= self.spike
        if self.infinite:
            made["x"].view(-1)[5] = float("inf")
        if self.bias:
            made["bias"] = torch.randn(self.outputs)
        if "scale" in self.tail:
            made["scale"] = torch.randn(self.outputs, *(1,) * self.rank)
        if "residual" in self.tail:
            made["residual"] = torch.randn(self.batch, self.outputs, *self.out_space())
        return {name: tensor.to(kind) for name, tensor in made.items()}

    def expected(self, given: Mapping[str, torch.Tensor], rounded: bool = False) -> torch.Tensor:
        """In double precision; with the operands of the convolution rounded to TF32 first, if asked."""
        exact = {name: tensor.double() for name, tensor in given.items()}
        x, weight = exact["x"].sigmoid() if self.prologue else exact["x"], exact["weight"]
        if rounded:
            x, weight = nearest_tf32(x), nearest_tf32(weight)
        y = self.reference(x, weight, exact.get("bias"))
        for word in self.tail:
            y = FOLLOWING[word](y, exact)
        return y

    # -- as a graph ----------------------------------------------------------------------------------

    def graph(self) -> tuple[Graph, Group]:
        """Channels and image sizes are named; two captured sizes, so that nothing holds by coincidence."""
        out = self.out_space()
        more = self._larger()
        size = {
            "batch_size": named("batch_size", (self.batch, self.batch + 1)),
            "in_channels": named("in_channels", (self.inputs, more.inputs)),
            "out_channels": named("out_channels", (self.outputs, more.outputs)),
        }
        letters = ("depth", "height", "width")[-self.rank :]
        for at, word in enumerate(letters):
            size[word] = named(word, (self.space[at], more.space[at]))
            size[f"out_{word}"] = named(f"out_{word}", (out[at], more.out_space()[at]))
        depthwise = self.groups == self.inputs > 1
        groups: Size | int = size["in_channels"] if depthwise else self.groups
        if depthwise and self.outputs == self.inputs:
            size["out_channels"] = size["in_channels"]
        if self.batch == 1:
            size["batch_size"] = ONE
        inner = (
            size["in_channels"] if self.groups == 1 else self._part("in_channels", self.inputs, more.inputs)
        )
        outer = (
            size["out_channels"]
            if self.groups == 1
            else self._part("out_channels", self.outputs, more.outputs)
        )
        if depthwise:
            inner, outer = ONE, ONE if self.outputs == self.inputs else Size(self.outputs // self.inputs)
        kernel = tuple(Size(k) for k in self.kernel)
        shape = (size["batch_size"], size["out_channels"], *(size[f"out_{word}"] for word in letters))
        weight = (size["in_channels"], outer) if self.transposed else (size["out_channels"], inner)
        values: dict[str, Value] = {}

        def add(name: str, dims: Sequence[Size], origin: Origin = Origin.NODE, path: str = "") -> str:
            values[name] = Value(name, tuple(dims), self.dtype, contiguous_stride(tuple(dims)), origin, path)
            return name

        add("x", (size["batch_size"], size["in_channels"], *(size[w] for w in letters)), Origin.INPUT, "x")
        add("conv_weight", (*weight, *kernel), Origin.PARAMETER, "conv.weight")
        nodes: list[Node] = []
        source = "x"
        if self.prologue:
            nodes.append(Node("pointwise", ("x",), (add("gated", values["x"].shape),), {"fn": "sigmoid"}))
            source = "gated"
        if self.bias:
            add("conv_bias", (size["out_channels"],), Origin.PARAMETER, "conv.bias")
        attributes = {
            "stride": (self.stride,) * self.rank, "padding": (self.padding,) * self.rank,
            "dilation": (self.dilation,) * self.rank, "groups": groups, "transposed": self.transposed,
            "output_padding": (self.output_padding,) * self.rank,
        }  # fmt: skip
        inputs = (source, "conv_weight", "conv_bias" if self.bias else None)
        nodes.append(Node("conv", inputs, (add("conv", shape),), attributes, "conv"))
        last = "conv"
        arguments: list[str | None] = ["x"]
        for word in self.tail:
            if word in OVER_CHANNELS:
                shape = OVER_CHANNELS[word](shape)
            now = add(f"{word}_out", shape) if word not in POOLED else ""
            if word.endswith("_pool"):
                shape = (*shape[:2], *(halved(side) for side in shape[2:]))
                now = add(f"{word}_{len(nodes)}", shape)
                half = {"kernel": (2,) * self.rank, "stride": (2,) * self.rank}
                nodes.append(Node("pool", (last,), (now,), {"fn": word[:3], **half}))
            elif word.startswith("space_"):
                shape = (*shape[:2], *((ONE,) * self.rank if word == "space_mean" else ()))
                now = add(f"{word}_{len(nodes)}", shape)
                how = {
                    "fn": word[6:],
                    "dims": tuple(range(2, 2 + self.rank)),
                    "keepdim": word == "space_mean",
                }
                nodes.append(Node("reduce", (last,), (now,), how))
            elif word == "softmax":
                nodes.append(Node("softmax", (last,), (now,), {"dim": 1, "log": False}))
            elif word in OVER_CHANNELS:
                how = {"fn": word.removesuffix("_kept"), "dims": (1,), "keepdim": word.endswith("_kept")}
                nodes.append(Node("reduce", (last,), (now,), how))
            elif word == "relu":
                nodes.append(Node("pointwise", (last,), (now,), {"fn": "relu"}))
            elif word == "scale":
                add("scale", (size["out_channels"], *(ONE,) * self.rank), Origin.PARAMETER, "scale")
                nodes.append(Node("pointwise", (last, "scale"), (now,), {"fn": "mul"}))
            else:
                arguments.append(add("residual", shape, Origin.INPUT, "residual"))
                nodes.append(Node("pointwise", (last, "residual"), (now,), {"fn": "add"}))
            last = now
        if self.channels_last:
            batch, *space, channels = contiguous_stride((shape[0], *shape[2:], shape[1]))
            values[last] = replace(values[last], stride=(batch, channels, *space))
        symbols = self._symbols(letters)
        for word in letters:
            symbols |= {f"half_out_{word}": f"out_{word} // 2", f"half_half_out_{word}": f"out_{word} // 4"}
        graph = Graph(values, tuple(nodes), tuple(arguments), (last,), symbols=symbols)
        return graph, Group("conv_" + "_".join(self.tail or ("alone",)), tuple(nodes), "convolution")

    def _larger(self) -> Case:
        stencil = self.groups == self.inputs > 1
        more = 2 if stencil else self.groups
        return replace(
            self,
            batch=self.batch + 1,
            inputs=self.inputs + more,
            outputs=self.outputs + more * (self.outputs // self.inputs if stencil else 1),
            space=tuple(side + 2 * self.stride for side in self.space),
            groups=self.groups + 2 if stencil else self.groups,
        )

    def _part(self, name: str, now: int, later: int) -> Size:
        return named(f"{name}_per_group", (now // self.groups, later // self.groups))

    def _symbols(self, letters: tuple[str, ...]) -> dict[str, str]:
        found = {"batch_size": "x.shape[0]", "in_channels": "x.shape[1]"}
        found["out_channels"] = (
            f"self.conv.weight.shape[1] * {self.groups}" if self.transposed else "self.conv.weight.shape[0]"
        )
        found["in_channels_per_group"] = f"x.shape[1] // {self.groups}"
        found["out_channels_per_group"] = f"out_channels // {self.groups}"
        reach, extra = self.dilation, self.output_padding
        for at, word in enumerate(letters):
            found[word] = f"x.shape[{at + 2}]"
            k = self.kernel[at]
            found[f"out_{word}"] = (
                f"({word} - 1) * {self.stride} - {2 * self.padding} + {reach * (k - 1)} + {extra} + 1"
                if self.transposed
                else f"({word} + {2 * self.padding} - {reach * (k - 1)} - 1) // {self.stride} + 1"
            )
        return found

    def target(self) -> Target:
        return Target(resolve("h200"), dict(self.settings))

    def part(self) -> Part:
        return write(*self.graph(), self.target())

    # -- as a kernel file ------------------------------------------------------------------------------

    def source(self) -> str:
        return harness.source(self.graph()[0], [self.part()])

    def run(self, other: Case | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """The result, and what it should be in double precision; at other sizes, if asked."""
        at = other or self
        given = at.tensors()
        inputs = [given["x"], *([given["residual"]] if "residual" in given else [])]
        parameters = {"conv.weight": given["weight"]}
        parameters |= {"conv.bias": given["bias"]} if "bias" in given else {}
        parameters |= {"scale": given["scale"]} if "scale" in given else {}
        (found,) = harness.execute(self.source(), inputs, parameters)
        return found, at.expected(given)

    def larger(self) -> Case:
        """The second size that the graph was captured at."""
        more = self._larger()
        batch = self.batch if self.batch == 1 else more.batch
        return replace(
            self, batch=batch, inputs=more.inputs, outputs=more.outputs, space=more.space, groups=more.groups
        )


def halved(size: Size) -> Size:
    """What a pool of two leaves, the remainder dropped, under a name of its own."""
    return named(f"half_{size}", tuple(value // 2 for value in size.values))


def nearest_tf32(exact: torch.Tensor) -> torch.Tensor:
    bits = exact.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & -8192).view(torch.float32).double()


def tf32_error(case: Case) -> float:
    """What TF32 itself costs, with nothing else wrong."""
    given = case.tensors()
    return error(case.expected(given, rounded=True), case.expected(given))


def within(bound: float, case: Case, other: Case | None = None) -> None:
    """The error of a case's kernels is below ``bound``; at other sizes, if asked."""

    def compare() -> None:
        assert error(*case.run(other)) < bound

    INTERPRETED.once(compare, case.source(), case, other, f"{bound:.2e}")


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    """Root mean square, relative."""
    assert found.shape == right.shape
    assert bool(torch.isfinite(found).all())
    return float((found.double() - right).norm() / right.norm())
