"""A group's code as it comes together: kernels, the host's lines that launch them, and what these do.

Patterns add kernels with their launches here; the part is read off it (:meth:`Code.part`), so that what is
launched, how often, and what is packed or kept are values beside the text and never looked for in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from egg.expert.emit.host import Function
from egg.expert.emit.kernel import DeviceFunction, Kernel
from egg.expert.parts import Constant, Launch, Part, Use


@dataclass
class Code:
    kernels: dict[str, str] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    uses: set[Use] = field(default_factory=set)
    call: list[str] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)
    """Functions of the host."""
    functions: list[str] = field(default_factory=list)
    """Those of them that are this group's own."""
    raises: tuple[str, ...] = ()

    def define(self, functions: Iterable[DeviceFunction]) -> None:
        """Functions that kernels call."""
        self.kernels.update((function.name, function.text) for function in functions)

    def add(self, kernel: Kernel, lines: Iterable[str] = (), *, kept: bool = False) -> None:
        """A kernel that ``lines`` launch; ``kept``: only where a weight has changed, from a function."""
        self.kernels[kernel.name] = kernel.definition()
        self.launched(Launch(kernel.name, kept=kept), lines)

    def launched(self, launch: Launch, lines: Iterable[str]) -> None:
        """The launch of a kernel that is defined as it is."""
        self.launches.append(launch)
        self.call += lines

    def launch(self, kernel: Kernel, grid: str, options: Mapping[str, str]) -> None:
        """A kernel and its launch."""
        self.add(kernel, kernel.launch(grid, options))

    def part(
        self,
        constants: Iterable[Constant],
        summary: str,
        *,
        sizes: Iterable[str] = (),
        counts: Iterable[str] = (),
    ) -> Part:
        """With the lines as they are, which ``forward`` gets."""
        return Part(
            kernels=self.kernels,
            call=tuple(self.call),
            constants=tuple(constants),
            helpers=self.helpers,
            functions=tuple(self.functions),
            sizes=tuple(sizes),
            summary=summary,
            launches=tuple(self.launches),
            uses=frozenset(self.uses),
            counts=tuple(counts),
            raises=self.raises,
        )

    def behind(self, host: Function) -> Code:
        """The same with one line for ``forward``: the call of a function that has all of the others."""
        helpers, functions = {**self.helpers, host.name: host.text}, [*self.functions, host.name]
        return Code(self.kernels, self.launches, self.uses, [host.call], helpers, functions, self.raises)
