"""The plan as a kernel file: a fixed frame around the statements of each call signature."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from egg.evaluator.plan.kernels import bound_names, taken
from egg.evaluator.plan.skeleton import Skeleton, skeleton
from egg.evaluator.plan.spelling import Unspelled, spelled_value, values_in

FRAME = '''
def form_of(value):
    """The signature of a value: of a tensor its form, of anything else the value."""
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[form_of(item) for item in value])
    if isinstance(value, dict):
        return (type(value).__name__, *[(key, form_of(item)) for key, item in value.items()])
    if isinstance(value, float):
        return (type(value).__name__, value.hex())
    return (type(value).__name__, value)


def learns(value):
    """Whether a gradient is asked for."""
    if isinstance(value, (list, tuple)):
        return any([learns(item) for item in value])
    if isinstance(value, dict):
        return any([learns(item) for item in value.values()])
    return isinstance(value, torch.Tensor) and value.requires_grad


def apart(value):
    """Whether memory holds other numbers than a tensor has, lacks its tangent, or is on another device."""
    if isinstance(value, (list, tuple)):
        return any([apart(item) for item in value])
    if isinstance(value, dict):
        return any([apart(item) for item in value.values()])
    if not isinstance(value, torch.Tensor):
        return False
    if torch.resolve_conj(value) is not value or torch.resolve_neg(value) is not value:
        return True
    if torch.autograd.forward_ad.unpack_dual(value).tangent is not None:
        return True
    return value.is_cuda and value.get_device() != torch.cuda.current_device()
'''
"""Functions of every plan, word for word."""
OWN_NAMES = ("torch", "triton", "TensorDescriptor", "form_of", "learns", "apart", "ModelNew", "nn")
DESCRIPTOR = "from triton.tools.tensor_descriptor import TensorDescriptor"


@dataclass(frozen=True)
class Signature:
    """One call that was recorded."""

    form: str
    """The literal that :func:`model_text` compares with: the forms of the arguments, of the constructor's
    arguments, of the weights, and the modes."""
    statements: tuple[str, ...]
    result: str
    settings: tuple[str, ...] = ()
    """Plain attributes of the module and its parts, as expressions."""
    set_to: str = "('list',)"
    """The literal that ``form_of`` gives of these."""

    @property
    def condition(self) -> str:
        same = f"form == {self.form}"
        return f"{same} and form_of([{', '.join(self.settings)}]) == {self.set_to}" if self.settings else same


def form_literal(value: Any) -> str:
    """What ``form_of`` gives, as text."""
    if isinstance(value, torch.Tensor):
        shape, stride = tuple(value.shape), tuple(value.stride())
        return f"('tensor', {shape}, {stride}, {_word(value.dtype)})"
    if isinstance(value, list | tuple):
        inner = "".join(f", {form_literal(item)}" for item in value)
        return f"({type(value).__name__!r}{inner}{'' if inner else ','})"
    if isinstance(value, dict):
        inner = "".join(f", ({_word(key)}, {form_literal(item)})" for key, item in value.items())
        return f"({type(value).__name__!r}{inner}{'' if inner else ','})"
    if isinstance(value, float):
        return f"({type(value).__name__!r}, {value.hex()!r})"
    return f"({type(value).__name__!r}, {_word(value)})"


def whole_form(given: list[Any], built: list[Any], weights: list[Any], modes: list[bool]) -> str:
    if any(isinstance(leaf, torch.Tensor) for leaf in values_in(built)):
        raise Unspelled(
            "the task's constructor takes a tensor, and a plan compares no values of tensors",
            "let the constructor take numbers, and make the tensor in it or hand it to forward",
        )
    return f"({form_literal(given)}, {form_literal(built)}, {form_literal(weights)}, {modes!r})"


def _word(value: Any) -> str:
    def refused(tensor: torch.Tensor) -> str:
        raise AssertionError(tensor)

    return spelled_value(value, refused)


def assembled(
    task_source: str, source: str, kernels: Sequence[str], signatures: Sequence[Signature], name: str
) -> str:
    """The text of the plan file; raises :class:`Unspelled` where the parts do not fit together."""
    made, own = skeleton(task_source), taken(source, kernels)
    described = any("TensorDescriptor(" in line for s in signatures for line in s.statements)
    imports = _imports(made, own.imports, DESCRIPTOR if described else "")
    _check_names(imports, made, own.text)
    parts = [
        repr(f"A recorded plan of {name}: calls as straight-line data, at the signatures named in forward."),
        "\n".join(imports),
        "\n\n".join(ast.unparse(node) for node in made.before),
        own.text,
        FRAME.strip(),
        "\n\n".join([model_text(made, signatures), *map(_call, _numbered(made, signatures))]),
    ]
    return "\n\n\n".join(part for part in parts if part.strip()) + "\n"


def constructor_text(task_source: str) -> str:
    """A plan that holds no call: its constructor alone, made of the task's text and the frame."""
    made = skeleton(task_source)
    before = "\n\n".join(ast.unparse(node) for node in made.before)
    return (
        "\n\n\n".join(["\n".join(_imports(made, (), "")), before, FRAME.strip(), model_text(made, ())]) + "\n"
    )


def model_text(made: Skeleton, signatures: Sequence[Signature]) -> str:
    """The head of ``ModelNew``, which the verifier compares word for word: constructor and guard.

    What the constructor took is kept beside the module: another argument may be another program.
    """
    given = ", ".join(made.parameters)
    names = ", ".join(text.partition("=")[0].lstrip("*") for text in made.handed)
    lines = [
        "class ModelNew(Model):",
        f"    def __init__({made.built}):",
        f"        super().__init__({', '.join(made.handed)})",
        f"        self.built_with = form_of([{names}])",
        "",
        f"    def forward({made.signature}):",
        "        if torch.is_autocast_enabled():",
        '            raise RuntimeError("this plan was recorded without autocast: use the original module")',
        f"        tensors = [{given}{', ' if given else ''}*self.parameters(), *self.buffers()]",
        "        if torch.is_grad_enabled() and learns(tensors):",
        '            raise RuntimeError("this plan records no gradients: call it under torch.no_grad()")',
        "        if apart(tensors):",
        '            raise RuntimeError("this plan takes no negated view, nor tangent, nor another device")',
        "        weights = form_of([*self.parameters(), *self.buffers()])",
        "        modes = [part.training for part in self.modules()]",
        f"        form = (form_of([{given}]), self.built_with, weights, modes)",
    ]
    for number, signature in enumerate(signatures, 1):
        lines += [
            f"        if {signature.condition}:",
            f"            return self.recorded_{number}({given})",
        ]
    lines.append('        raise ValueError(f"no such call was recorded, use the original module: {form}")')
    return "\n".join(lines)


def _numbered(made: Skeleton, signatures: Sequence[Signature]) -> list[tuple[str, Signature]]:
    given = "".join(f", {name}" for name in made.parameters)
    return [(f"recorded_{number}(self{given})", s) for number, s in enumerate(signatures, 1)]


def _call(numbered: tuple[str, Signature]) -> str:
    head, signature = numbered
    lines = [f"    def {head}:", *(f"        {line}" for line in signature.statements)]
    return "\n".join([*lines, f"        return {signature.result}"])


def _imports(made: Skeleton, own: Sequence[ast.stmt], more: str) -> list[str]:
    """Each once; ``torch`` and ``triton`` under these names, which statements use."""
    singles: dict[str, None] = {"import torch": None, "import triton": None, "import triton.language": None}
    for node in (*made.imports, *own):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            single = ast.Import([alias]) if isinstance(node, ast.Import) else None
            singles[ast.unparse(single or ast.ImportFrom(node.module, [alias], node.level))] = None  # type: ignore[union-attr]
    if more:
        singles[more] = None
    return sorted(singles, key=lambda text: ("__future__" not in text, list(singles).index(text)))


def _check_names(imports: Sequence[str], made: Skeleton, own: str) -> None:
    """Names of the task and of the author must not meet."""
    seen: dict[str, str] = {}
    parts = [
        *imports,
        *(ast.unparse(n) for n in made.before),
        FRAME,
        *_statements(own),
        "class ModelNew:\n    pass",
    ]
    for part in parts:
        for node in ast.parse(part).body:
            text = ast.unparse(node)
            for name in bound_names(node):
                same = seen.setdefault(name, text) == text or _one_package(seen[name], text)
                if not same:
                    raise Unspelled(
                        f"{name} is one thing in the task's file and another in the kernel file",
                        "give the kernel file's constants and kernels names that the task does not use",
                    )


def _statements(text: str) -> list[str]:
    return [ast.unparse(node) for node in ast.parse(text).body]


def _one_package(one: str, other: str) -> bool:
    """``import triton`` and ``import triton.language`` bind the same name to the same module."""

    def plain(text: str) -> bool:
        return text.startswith("import ") and " as " not in text

    return plain(one) and plain(other)
