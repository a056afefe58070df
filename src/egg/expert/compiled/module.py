"""A generated module taken apart: its kernels, the forms of its arguments, its host code.

Only syntax is read; the module is never imported. What it holds besides (partitions for CUDA graphs, tensors
that were folded into constants and whose numbers are not known, code for CPUs) is refused by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from egg.core.compiled import CompiledGraph
from egg.expert.compiled.kernels import Kernel, kernel_of
from egg.expert.parts import Unfit

CONSTANT = re.compile(r"(_tensor_constant|constant|_frozen_param)\d+(_\w+)?$")
"""Names of tensors that were folded into a graph; the copy for a GPU has its name behind."""


@dataclass(frozen=True)
class Form:
    """An argument of ``call``: what the module asserts of it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Module:
    kernels: Mapping[str, Kernel]
    """By the generated name."""
    call: ast.FunctionDef
    arguments: tuple[tuple[str, Form], ...]
    """In order, under the names of ``call``."""


def module_of(compiled: CompiledGraph) -> Module:
    try:
        tree = ast.parse(compiled.text)
    except SyntaxError as error:
        raise Unfit(f"the generated module does not parse: {error}") from error
    call = _call(tree)
    for node in ast.walk(call):
        if isinstance(node, ast.Name) and CONSTANT.match(node.id) and node.id not in compiled.folded:
            raise Unfit(f"the graph holds a tensor whose values the text does not have: {node.id}")
    names = _argument_names(call)
    if len(names) != len(compiled.arguments):
        raise Unfit(f"{len(names)} arguments are read, and {len(compiled.arguments)} are known")
    return Module(dict(_kernels(tree, compiled)), call, tuple(_forms(tree, call, names)))


def _call(tree: ast.Module) -> ast.FunctionDef:
    """``Runner.call``, or the plain function of older versions."""
    for node in tree.body:
        match node:
            case ast.Assign(value=ast.Call(func=ast.Name(id="Runner"), keywords=[ast.keyword(value=made)])):
                if not (isinstance(made, ast.List) and not made.elts):
                    raise Unfit("the graph is cut into partitions")
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    if len(functions) != 1:
        raise Unfit("the generated module has no function call")
    return functions[0]


def _argument_names(call: ast.FunctionDef) -> list[str]:
    for statement in call.body:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                return [ast.unparse(name) for name in names]
    return []


def _forms(tree: ast.Module, call: ast.FunctionDef, names: list[str]) -> Iterator[tuple[str, Form]]:
    """Shapes and strides from the checks in ``call``, dtypes from the example arguments of the module."""
    made, checked = dict[str, tuple[str, str]](), dict[str, tuple[tuple[int, ...], tuple[int, ...]]]()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="rand_strided"), keywords=keywords),
            ):
                texts = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
                made[name] = texts.get("dtype", ""), texts.get("device", "")
    for node in ast.walk(call):
        match node:
            case ast.Call(func=ast.Name(id="assert_size_stride"), args=[ast.Name(id=name), size, stride, *_]):
                if name in names:
                    checked.setdefault(name, (ast.literal_eval(size), ast.literal_eval(stride)))
    for name in names:
        dtype, device = made.get(name, ("", ""))
        if name not in checked or not dtype.startswith("torch."):
            raise Unfit(f"the form of the argument {name} is not stated: it may be a number")
        if "cuda" not in device:
            raise Unfit(f"the argument {name} lies in the host's memory")
        yield name, Form(*checked[name], getattr(torch, dtype.removeprefix("torch.")))


# -- kernels ------------------------------------------------------------------------------------------


def _kernels(tree: ast.Module, compiled: CompiledGraph) -> Iterator[tuple[str, Kernel]]:
    lines, number = compiled.text.split("\n"), 0
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind), args=args),
            ):
                if kind != "triton":
                    raise Unfit(f"the graph has a kernel in another language than Triton: {kind}")
                match args:
                    case [ast.Constant(), ast.Constant(value=str(source)), *_]:
                        operators = _operators(lines, node.lineno)
                        yield name, kernel_of(source, compiled.launches.get(name), operators, number)
                        number += 1
                    case _:
                        raise Unfit(f"the text of the kernel {name} is not in the module")


def _operators(lines: list[str], row: int) -> tuple[str, ...]:
    """What a kernel stands for, as the comment above it says; empty where there is none."""
    for line in reversed(lines[max(0, row - 200) : row - 1]):
        if not line.startswith("#"):
            break
        if found := re.search(r"Original ATen: \[(.*?)\]", line):
            return tuple(part.strip() for part in found.group(1).split(",") if part.strip())
    return ()
