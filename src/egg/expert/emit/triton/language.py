"""How Triton spells what every kernel has: its definition, its launch, loads and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from egg.expert.emit.language import LINE, Argument, Language, folded
from egg.expert.emit.triton import scalar
from egg.expert.emit.triton.types import TYPES
from egg.expert.sizes import Size


class Triton:
    """Implements :class:`~egg.expert.emit.language.Language`."""

    imports = (
        "import triton",
        "import triton.language as tl",
        "from triton.language.extra import libdevice",
        "from triton.tools.tensor_descriptor import TensorDescriptor",
    )

    def definition(
        self,
        name: str,
        arguments: Sequence[Argument],
        doc: Sequence[str],
        lines: Sequence[str],
        width: int = LINE,
    ) -> str:
        listed = [f"{one.name}: tl.constexpr" if one.known else one.name for one in arguments]
        head = f"def {name}({', '.join(listed)}):"
        if len(head) > width:
            head = f"def {name}(\n" + "".join(f"    {line},\n" for line in folded(listed)) + "):"
        varying = ", ".join(f'"{one.name}"' for one in arguments if one.varies)
        decorator = f"@triton.jit(do_not_specialize=[{varying}])" if varying else "@triton.jit"
        return "\n".join((decorator, head, *doc, *lines))

    def launch(
        self, name: str, grid: str, arguments: Sequence[Argument], options: Mapping[str, str]
    ) -> list[str]:
        given = [f"{one.name}={one.given}" if one.by_name else one.given for one in arguments]
        given += [f"{option}={value}" for option, value in options.items()]
        line = f"{name}[{grid}]({', '.join(given)})"
        if len(line) <= LINE:
            return [line]
        return [f"{name}[{grid}](", *(f"    {inner}," for inner in folded(given)), ")"]

    def load(self, address: str, mask: str = "", other: str = "", hint: str = "") -> str:
        extra = f", mask={mask}" if mask else ""
        extra += f", other={other}" if mask and other else ""
        return f"tl.load({address}{extra}{f', {hint}' if hint else ''})"

    def store(self, address: str, value: str, mask: str = "") -> str:
        return f"tl.store({address}, {value}{f', mask={mask}' if mask else ''})"

    def where(self, condition: str, yes: str, no: str) -> str:
        return f"tl.where({condition}, {yes}, {no})"

    def converted(self, value: str, dtype: str) -> str:
        return f"{value}.to({TYPES[dtype]})"

    def reads(self, dtype: str) -> bool:
        return dtype in TYPES

    def expression(
        self, fn: str, texts: Sequence[str], scalars: Sequence[Any], dtypes: Sequence[str], result: str
    ) -> str:
        return scalar.expression(fn, texts, scalars, dtypes, result)

    def literal(self, value: Any) -> str:
        return scalar.literal(value)

    def filled(self, value: Any, dtype: str) -> str:
        """A size may be a constant of the kernel, which has none of a tensor's methods."""
        text = scalar.literal(value)
        named = isinstance(value, Size) and value.factors
        return f"tl.full([], {text}, {TYPES[dtype]})" if named else text


TRITON: Language = Triton()
