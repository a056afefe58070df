"""A random program while it grows: its text, and the shape that the running tensor has by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random


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
