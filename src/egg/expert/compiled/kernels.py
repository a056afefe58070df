"""One generated kernel, from the string that holds its module to a definition of a kernel file.

The syntax tree of the string has the kernel (decorated by a heuristic that names the grid and what is
written) and functions that its scans combine with. The body stays what it is; names of Inductor's modules
become those of the file (:mod:`egg.expert.compiled.helpers`), extents that the body sets itself leave the
signature, and masks that are ``None`` leave loads and stores.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton.language as tl

from egg.core.compiled import LaunchChoice
from egg.expert.compiled import helpers
from egg.expert.emit.language import docstring
from egg.expert.parts import Unfit

PREFIX = re.compile(r"triton_(poi|red|per|tem|mm|for|unk|spl)_?(?:fused_)?(.*?)_?(\d*)$")
KINDS = {
    "poi": "elementwise",
    "red": "a reduction in a loop",
    "per": "a reduction of rows that are held whole",
    "spl": "a scan of rows that several programs share",
}
"""What the beginning of a kernel's name says of it."""
PLUMBING = frozenset({
    "view", "clone", "transpose", "permute", "split", "unsqueeze", "squeeze", "expand", "slice", "reshape",
    "select", "scalar_tensor", "t", "getitem", "unsafe_view", "detach", "lift_fresh_copy", "alias",
    "as_strided", "to_copy", "convert_element_type", "full", "split_with_sizes", "unbind", "copy", "zeros",
    "ones", "full_like", "new_zeros", "arange",
})  # fmt: skip
"""Operators that say little of what a kernel is for."""
LONGEST = 36
"""Letters of a kernel's name."""
EXTENT = re.compile(r"(x|y|z|r\d*_?)numel$")
MASKED = {"load": 1, "store": 2, "atomic_add": 2}
"""Functions that take a mask, and its place."""


@dataclass(frozen=True)
class Kernel:
    """A generated kernel, ready for a file."""

    name: str
    words: str
    """What it computes."""
    text: str
    functions: Mapping[str, str]
    """Device functions that it calls, by name."""
    parameters: tuple[str, ...]
    """As the launch gives them, extents that the body sets included."""
    dropped: frozenset[str]
    """Parameters that the body sets itself: the launch leaves them out."""
    fixed: Mapping[str, int]
    """Extents that the body sets."""
    constants: Mapping[str, int]
    """Compile-time constants that the launch gives."""
    chosen: Mapping[str, int]
    """All that was chosen for it, also what the body sets itself."""
    num_warps: int
    num_stages: int
    grid: str
    loops: bool
    """Whether it goes through a loop, which may be pipelined."""
    written: frozenset[str]
    """Parameters whose tensors hold something before the launch, and something else after it."""


def kernel_of(source: str, choice: LaunchChoice | None, operators: tuple[str, ...], number: int) -> Kernel:
    """The kernel in the text of a module; ``operators`` are those it stands for, where they are known."""
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    heads = [(f, meta) for f in functions if (meta := _heuristics(f)) is not None]
    if len(heads) != 1:
        raise Unfit("a generated module holds no kernel with a known heuristic")
    kernel, meta = heads[0]
    if choice is None:
        raise Unfit(f"what was chosen for the kernel {kernel.name} is not known")
    purpose = _purpose(kernel.name, operators)
    name = f"{purpose}_{number}"
    combining = {
        f.name: f"{name}_combine_{at}" for at, f in enumerate(f for f in functions if f is not kernel)
    }
    rewriting = _Rewriting(combining)
    given = [argument.arg for argument in kernel.args.args if argument.annotation is None]
    known = [argument.arg for argument in kernel.args.args if argument.annotation is not None]
    fixed = _own_extents(kernel, given)
    missing = [constant for constant in known if constant not in choice.constants]
    if missing:
        raise Unfit(f"no value is known for {', '.join(missing)} of the kernel {kernel.name}")
    words = _words(kernel.name, operators)
    others = {
        combining[f.name]: _definition(f, combining[f.name], "Two values of a scan as one.", rewriting)
        for f in functions
        if f is not kernel
    }
    kernel.args.args = [a for a in kernel.args.args if a.arg not in fixed]
    loops = any(isinstance(node, ast.For) for node in ast.walk(kernel))
    text = _definition(kernel, name, words, rewriting)
    return Kernel(
        name,
        words,
        text,
        {**helpers.definitions(rewriting.called), **others},
        tuple(given),
        frozenset(fixed),
        fixed,
        {constant: choice.constants[constant] for constant in known},
        dict(choice.constants),
        choice.num_warps,
        choice.num_stages,
        str(meta.get("grid_type", "")),
        loops,
        frozenset(map(str, meta.get("mutated_arg_names", ()))),
    )


# -- names --------------------------------------------------------------------------------------------


def _operators(name: str, operators: tuple[str, ...]) -> list[str]:
    """Operators without namespaces; those in a kernel's name where no others are known."""
    plain = [_plain(operator) for operator in operators]
    found = [operator for operator in dict.fromkeys(plain) if operator not in PLUMBING]
    if found or operators:
        return found or plain[:1]
    match = PREFIX.match(name)
    words = match.group(2).strip("_") if match else ""
    return [words] if words else []


def _plain(operator: str) -> str:
    """``aten._native_batch_norm_legit_no_training`` as ``batch_norm``."""
    name = operator.split(".", 1)[-1].strip("_").removeprefix("native_")
    return "attention" if name.startswith("scaled_dot_product") else name.split("_legit")[0]


def _purpose(name: str, operators: tuple[str, ...]) -> str:
    """A name that says what a kernel is for."""
    text = ""
    for operator in _operators(name, operators):
        longer = f"{text}_{operator}" if text else operator
        if text and len(longer) > LONGEST:
            break
        text = longer
    text = re.sub(r"\W+", "_", text)[: LONGEST + 8].strip("_").lower()
    return text if text.isidentifier() else "fused"


def _words(name: str, operators: tuple[str, ...]) -> str:
    match = PREFIX.match(name)
    kind = KINDS.get(match.group(1) if match else "", "fused")
    listed = ", ".join(_operators(name, operators)).replace("_", " ")
    return f"{listed or 'fused operators'}: {kind}"


# -- the module ---------------------------------------------------------------------------------------


def _heuristics(function: ast.FunctionDef) -> dict[str, Any] | None:
    """What the heuristic that decorates a kernel says of it; ``None`` for other functions."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        path = ast.unparse(decorator.func)
        if path.rsplit(".", 1)[-1] in ("template", "foreach"):
            raise Unfit(f"the kernel {function.name} is made from a template")
        for keyword in decorator.keywords:
            if keyword.arg == "inductor_meta" and isinstance(keyword.value, ast.Dict):
                return _literals(keyword.value)
    return None


def _literals(node: ast.Dict) -> dict[str, Any]:
    """The entries of a dictionary whose values are literals."""
    found: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        try:
            found[str(ast.literal_eval(key or ast.Constant(None)))] = ast.literal_eval(value)
        except ValueError:
            continue
    return found


def _own_extents(kernel: ast.FunctionDef, given: list[str]) -> dict[str, int]:
    """Extents among the parameters that the body sets to a number."""
    found: dict[str, int] = {}
    for statement in kernel.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(value))) if (
                name in given and EXTENT.match(name)
            ):
                found[name] = value
    return found


def _definition(function: ast.FunctionDef, name: str, words: str, rewriting: _Rewriting) -> str:
    """The whole definition, with a docstring."""
    body = [rewriting.visit(statement) for statement in function.body]
    lines = ast.unparse(ast.fix_missing_locations(ast.Module(body, []))).split("\n")
    head = f"@triton.jit\ndef {name}({ast.unparse(function.args)}):"
    doc = docstring(words[:1].upper() + words[1:].rstrip(".") + ".")
    return "\n".join((head, *doc, *(f"    {line}" for line in lines)))


class _Rewriting(ast.NodeTransformer):
    """Inductor's names as those of the file."""

    def __init__(self, functions: Mapping[str, str]) -> None:
        self._functions = functions
        self.called: dict[str, None] = {}
        """Helpers that are called, in their order."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        match node:
            case ast.Attribute(value=ast.Name(id="triton_helpers"), attr=helper):
                if helper not in helpers.HELPERS:
                    raise Unfit(f"a kernel calls Inductor's {helper}, which has no counterpart here")
                self.called[helper] = None
                return ast.copy_location(ast.Name(helpers.file_name(helper), ast.Load()), node)
            case ast.Attribute(value=ast.Name(id="tl"), attr=function) if function.startswith("rand"):
                raise Unfit("a kernel draws random numbers")
            case ast.Attribute(value=ast.Name(id="tl_math"), attr=function):
                path = f"tl.{function}" if hasattr(tl, function) else f"tl.math.{function}"
                return ast.copy_location(ast.parse(path, mode="eval").body, node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._functions.get(node.id, node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(value=ast.Name(id="tl"), attr=function) if function in MASKED:
                place = MASKED[function]
                if len(node.args) == place + 1 and _is_none(node.args[place]):
                    node.args.pop()
        return self.generic_visit(node)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
