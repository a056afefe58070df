"""The arguments of a compiled graph in a kernel file: parameters of ``forward``, or tensors at ``self``.

Dynamo names an argument by how it found it: ``L['x']``, ``L['self']._modules['fc']._parameters['weight']``.
Such a source is a chain of steps, and the chain is the path under which the file finds the same tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from egg.expert.compiled.module import Form
from egg.expert.emit.names import underscored
from egg.expert.graph import Graph, Origin, Value, contiguous_stride
from egg.expert.parts import Unfit
from egg.expert.sizes import Size

REGISTRIES = ("_modules", "_parameters", "_buffers")
"""Dictionaries of ``nn.Module`` that its attributes lie in."""


@dataclass(frozen=True)
class Source:
    """Where an argument comes from: the name that the frame had, and the steps from there."""

    root: str
    steps: tuple[str, ...]
    registered: bool
    """Whether it is a parameter or a buffer."""


def source_of(text: str) -> Source:
    """A source of Dynamo's, read off its syntax."""
    try:
        node: ast.expr = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise Unfit(f"an argument comes from {text}, which is not known") from error
    steps: list[str] = []
    registered = False
    while not (isinstance(node, ast.Name) and node.id == "L"):
        match node:
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr=registry), slice=ast.Constant(value=key)
            ) if registry in REGISTRIES:
                registered |= not steps and registry != "_modules"
                node = inner
                steps.append(str(key))
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                node = inner
                steps.append(str(key))
            case ast.Attribute(value=inner, attr=name):
                node = inner
                steps.append(name)
            case _:
                raise Unfit(f"an argument comes from {text}, which is not known")
    root, *rest = reversed(steps)
    return Source(root, tuple(rest), registered)


def bound(
    graph: Graph,
    sources: tuple[str, ...],
    forms: tuple[tuple[str, Form], ...],
    first_paths: Callable[[], Mapping[str, str]],
) -> dict[str, Value]:
    """By the name in ``call``: the value that it is in a graph of the program.

    ``first_paths`` finds the path under which a module lists a tensor that it has in several places.
    """
    found: dict[str, Value] = {}
    for text, (name, form) in zip(sources, forms, strict=True):
        source = source_of(text)
        if source.root == "self":
            value = _held(graph, source, form, first_paths)
        else:
            value = _input(graph, source, text)
        shape = tuple(size.value for size in value.shape)
        if shape != tuple(form.shape) or f"torch.{value.dtype}" != str(form.dtype):
            raise Unfit(
                f"{value.path} was compiled as {form.dtype} {form.shape}, and is {value.dtype} {shape}"
            )
        found[name] = _formed(value, form)
    return found


def _input(graph: Graph, source: Source, text: str) -> Value:
    if source.steps:
        raise Unfit(f"the argument {text} is a part of a structure")
    for name in graph.arguments:
        if name is not None and graph.value(name).path == source.root:
            return graph.value(name)
    raise Unfit(f"the argument {text} is no tensor that forward takes")


def _held(graph: Graph, source: Source, form: Form, first_paths: Callable[[], Mapping[str, str]]) -> Value:
    path = ".".join(source.steps)
    known: Mapping[str, Value] = {
        v.path: v for v in graph.values.values() if v.origin in (Origin.PARAMETER, Origin.CONSTANT)
    }
    if path not in known and source.registered:
        path = first_paths().get(path, path)
    if path in known:
        return known[path]
    origin = Origin.PARAMETER if source.registered else Origin.CONSTANT
    name = underscored(path.replace(".", "_"), graph.values)
    return _formed(Value(name, (), str(form.dtype).removeprefix("torch."), (), origin, path), form)


def _formed(value: Value, form: Form) -> Value:
    """A value with the form that the graph was compiled for."""
    shape, stride = (tuple(Size(n) for n in row) for row in (form.shape, form.stride))
    if torch.empty_strided(form.shape, form.stride, device="meta").is_contiguous():
        stride = contiguous_stride(shape)  # whatever the stride of a dimension of one element is
    return Value(value.name, shape, value.dtype, stride, value.origin, value.path)
