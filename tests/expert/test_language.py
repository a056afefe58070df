"""A kernel knows no language: another one spells the same arguments and lines its own way. And Triton's words
stay in the folders that are called after it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import egg.expert
from egg.expert.emit.kernel import Kernel
from egg.expert.emit.language import Argument, Language
from egg.expert.emit.reader import Reader
from egg.expert.index import loop_index
from tests.expert.programs import Program

ROOT = Path(egg.expert.__file__).parent
TRITONS = re.compile(r"\btl\.\w|@triton\b")


class C:
    """Just enough of a C dialect."""

    imports = ()

    def definition(
        self,
        name: str,
        arguments: Sequence[Argument],
        doc: Sequence[str],
        lines: Sequence[str],
        width: int = 0,
    ) -> str:
        plain = ", ".join(one.name for one in arguments if not one.known)
        known = ", ".join(f"int {one.name}" for one in arguments if one.known)
        return "\n".join((f"template <{known}> void {name}({plain}) {{", *(f"{one};" for one in lines), "}"))

    def launch(
        self, name: str, grid: str, arguments: Sequence[Argument], options: Mapping[str, str]
    ) -> list[str]:
        return [f"{name}({grid}, {', '.join(one.given for one in arguments)})"]

    def load(self, address: str, mask: str = "", other: str = "", hint: str = "") -> str:
        return f"at({address})"

    def store(self, address: str, value: str, mask: str = "") -> str:
        return f"set({address}, {value})"

    def where(self, condition: str, yes: str, no: str) -> str:
        return f"pick({condition}, {yes}, {no})"

    def converted(self, value: str, dtype: str) -> str:
        return f"{dtype}({value})"

    def reads(self, dtype: str) -> bool:
        return True

    def expression(
        self, fn: str, texts: Sequence[str], scalars: Sequence[Any], dtypes: Sequence[str], result: str
    ) -> str:
        return f"{fn}({', '.join(texts)})"

    def literal(self, value: Any) -> str:
        return str(value)


def test_another_language_spells_the_same_kernel() -> None:
    program = Program()
    x = program.input("x", (program.size("rows", 64, 32),), "float16")
    graph = program.graph(program.pointwise("relu", x))
    language: Language = C()
    kernel = Kernel("relu_kernel", "Relu.", graph, meta={"BLOCK": "64"}, language=language)
    kernel.body.line("i = first() * BLOCK")
    reader = Reader(graph, graph.nodes, kernel.body, {"i": "(i < rows)"}, language=language)
    result = graph.results[0]
    text = reader.read(result, (loop_index("i", graph.value(result).shape[0]),))
    kernel.body.line(language.store("out + i", text, "i < rows"))
    kernel.add_pointers(reader.pointers)
    assert "tl." not in kernel.definition()
    assert "float16" not in kernel.definition()  # what is loaded is computed with in fp32
    assert kernel.definition().startswith("template <int BLOCK> void relu_kernel(x_ptr) {")
    assert kernel.launch("1", {}) == ["relu_kernel(1, x, 64)"]


def test_triton_is_spelled_in_its_folders_alone() -> None:
    """And where kernels that torch.compile generated, in Triton, are translated."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        if not {"triton", "compiled"} & {*path.relative_to(ROOT).parts}
        for node in code_of(path)
        if isinstance(node.value, str) and TRITONS.search(node.value)
    ]
    assert found == []


def code_of(path: Path) -> list[ast.Constant]:
    """Constants of a module that are no docstrings: those are statements of their own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose]
