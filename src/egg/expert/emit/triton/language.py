"""How Triton spells what every kernel has: its definition, its launch, loads and stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from egg.expert.emit.language import HEAD, LINE, Argument, Language, folded

TYPES: Mapping[str, str] = {
    "float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
    "bool": "tl.int1",
}  # fmt: skip
"""Triton's names for PyTorch's dtypes, as they lie in memory."""


class Triton:
    """Implements :class:`~egg.expert.emit.language.Language`."""

    imports = (
        "import triton",
        "import triton.language as tl",
        "from triton.language.extra import libdevice",
        "from triton.tools.tensor_descriptor import TensorDescriptor",
    )

    def definition(
        self, name: str, arguments: Sequence[Argument], doc: Sequence[str], lines: Sequence[str]
    ) -> str:
        listed = [f"{one.name}: tl.constexpr" if one.known else one.name for one in arguments]
        head = f"def {name}({', '.join(listed)}):"
        if len(head) > HEAD:
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


TRITON: Language = Triton()
