"""An fx graph as the source of a task: ``Model``, ``get_inputs`` and ``get_init_inputs`` as text.

The text needs nothing of the program that the graph came from: every operator is a call of PyTorch, every
size a number, every tensor that the graph holds a parameter or a buffer of ``Model`` under a name of its own.
It runs on any device: where the graph names one, the text asks the first tensor for its own.

Graphs before decomposition (``torch.export``, Dynamo) hold composite operators such as ``linear`` or
``layer_norm``. They are printed as they are, so the built-in team recognises them as in a program written by
hand. Submodules of wrappers (``no_grad``, ``autocast``, checkpoints) are printed in line.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from egg.core.errors import TaskError
from egg.modules.drawing import drawn
from egg.modules.slots import Slot
from egg.modules.spelling import Unprintable, call_text, literal

_WRITTEN = frozenset({"self", "torch", "nn", "F", "math", "operator", "float", "Model"})
_CHECKS = re.compile(r"aten::(_assert\w*|sym_constrain\w*|_local_assert\w*)|prims::(_assert\w*)")
_SAME = frozenset({"aten::alias", "aten::lift_fresh", "aten::detach", "aten::_conj_copy"})
_INLINE = frozenset({"wrap_with_set_grad_enabled", "tag_activation_checkpoint", "wrap", "invoke_subgraph"})
INDENT = "    "


@dataclass(frozen=True)
class Printed:
    """A task's text, and what its ``Model`` calls the tensors that it holds."""

    source: str
    held: Mapping[str, str]
    """By slot name the attribute of ``Model``: parameters, buffers and constants."""
    inputs: tuple[str, ...]
    """The arguments of ``forward``, by slot name, in order."""


def task_source(graph_module: fx.GraphModule, inputs: Sequence[Slot]) -> str:
    """The graph as a task's source; ``inputs`` describe its placeholders, in order.

    ``forward`` returns a tuple of the graph's outputs, or its only one alone.
    """
    return printed(graph_module, inputs).source


def printed(
    graph_module: fx.GraphModule,
    slots: Sequence[Slot],
    *,
    results: Sequence[int] | None = None,
    note: str = "",
) -> Printed:
    """As :func:`task_source`, with the names that the text gives to what ``Model`` holds.

    ``results`` are the places of the graph's outputs that ``forward`` returns; all of them where it is not
    given. ``note`` is the docstring of the file.
    """
    printer = _Printer(graph_module, slots)
    body = printer.body(results)
    given = [slot for slot in slots if slot.role == "input"]
    held = [slot for slot in (*slots, *printer.constants) if slot.role != "input"]
    lines = [*_heading(note), *_model(printer, given, held, body), "", ""]
    lines += ["def get_inputs():", f"{INDENT}return ["]
    lines += [f"{INDENT * 2}{drawn(slot)}," for slot in given]
    lines += [f"{INDENT}]", "", "", "def get_init_inputs():", f"{INDENT}return []", ""]
    return Printed(
        "\n".join(lines),
        {slot.name: printer.attributes[slot.name] for slot in held},
        tuple(slot.name for slot in given),
    )


def _heading(note: str) -> list[str]:
    text = note.replace("\\", "/").replace('"""', "'''").strip()
    head = [f'"""{text}"""', ""] if text else []
    return [*head, "import torch", "from torch import nn", "from torch.nn import functional as F", "", ""]


def _model(printer: _Printer, given: Sequence[Slot], held: Sequence[Slot], body: list[str]) -> list[str]:
    arguments = "".join(f", {printer.arguments[slot.name]}" for slot in given)
    lines = ["class Model(nn.Module):", f"{INDENT}def __init__(self):", f"{INDENT * 2}super().__init__()"]
    lines += [f"{INDENT * 2}{_registered(printer.attributes[slot.name], slot)}" for slot in held]
    lines += ["", f"{INDENT}def forward(self{arguments}):"]
    return [*lines, *(f"{INDENT * 2}{line}" for line in body)]


def _registered(name: str, slot: Slot) -> str:
    if slot.role == "parameter":
        frozen = "" if slot.trains else ", requires_grad=False"
        return f"self.{name} = nn.Parameter({drawn(slot)}{frozen})"
    return f'self.register_buffer("{name}", {drawn(slot)})'


@dataclass
class _Printer:
    """Prints the nodes of one graph, and of those within it, in order."""

    module: fx.GraphModule
    slots: Sequence[Slot]
    attributes: dict[str, str] = field(default_factory=dict)
    """By slot name, the attribute of ``Model``."""
    arguments: dict[str, str] = field(default_factory=dict)
    """By slot name, the argument of ``forward``."""
    constants: list[Slot] = field(default_factory=list)
    """Tensors that the graph holds itself."""
    _lines: list[str] = field(default_factory=list)
    _depth: int = 0
    _taken: set[str] = field(default_factory=set)
    _where: str = ""
    """The text of the device that the program runs on."""

    def body(self, results: Sequence[int] | None) -> list[str]:
        placeholders = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        if len(placeholders) != len(self.slots):
            raise ValueError(f"{len(self.slots)} slots for {len(placeholders)} placeholders")
        made: dict[fx.Node, Any] = {}
        for node, slot in zip(placeholders, self.slots, strict=True):
            if slot.role == "input":
                self.arguments[slot.name] = made[node] = self._local(slot.name)
            else:
                self.attributes[slot.name] = self._attribute(slot.name)
                made[node] = f"self.{self.attributes[slot.name]}"
        first = next(iter((*self.arguments.values(), *made.values())), None)
        self._where = f"{first}.device" if first is not None else '"cpu"'
        output = self._nodes(self.module, made)
        flat = list(output) if isinstance(output, list | tuple) else [output]
        chosen = flat if results is None else [flat[place] for place in results]
        if not chosen:
            raise TaskError("the graph computes nothing", "return a tensor from forward")
        shown = [self._text(item) for item in chosen]
        self._lines.append(f"return {', '.join(shown)}")
        return self._lines

    # -- nodes -------------------------------------------------------------------------------------

    def _nodes(self, module: fx.GraphModule, made: dict[fx.Node, Any]) -> Any:
        """Print a graph whose placeholders are made; its output, as texts in tuples and lists."""
        needed = _needed(module.graph)
        for node in module.graph.nodes:
            if node not in needed:
                continue
            if node.op == "output":
                return self._resolved(node.args[0], made)
            if node.op == "get_attr":
                made[node] = self._held(module, str(node.target))
            elif node.op in ("call_function", "call_method"):
                made[node] = self._called(node, made)
            elif node.op != "placeholder":
                raise TaskError(f"the graph calls the module {node.target!r}", "capture with inlined modules")
        return None

    def _called(self, node: fx.Node, made: dict[fx.Node, Any]) -> Any:
        args = self._resolved(node.args, made)
        kwargs = {name: self._resolved(value, made) for name, value in node.kwargs.items()}
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._wrapped(node.target.__name__, node, args, kwargs)
        schema = getattr(node.target, "_schema", None)
        if schema is not None and (schema.name in _SAME or _idle(schema, args)):
            return args[0]
        try:
            text = call_text(node, args, kwargs, self._where, self._elsewhere)
        except Unprintable as reason:
            raise TaskError(f"{reason}{line_of(node)}", "leave this part out of the module") from None
        if schema is not None and not schema.returns:
            return self._line(text)
        name = self._local(node.name)
        self._line(f"{name} = {text}")
        return _Made(name)

    def _wrapped(self, name: str, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name == "wrap_with_autocast":
            _, dtype, enabled, _, body, *given = args
            kind = f", dtype={literal(dtype)}" if dtype is not None else ""
            self._line(f"with torch.autocast({self._where}.type{kind}, enabled={enabled}):")
            with self._deeper():
                return self._inlined(body, given)
        if name in _INLINE:
            body = next((a for a in args if isinstance(a, fx.GraphModule)), None)
            if body is not None:
                inner = list(args)
                return self._inlined(body, _behind(inner, body, name))
        raise TaskError(
            f"the program calls {name}, which a task cannot say{line_of(node)}",
            "optimize the modules around it one by one",
        )

    def _inlined(self, body: fx.GraphModule, given: Sequence[Any]) -> Any:
        inner = [node for node in body.graph.nodes if node.op == "placeholder"]
        return self._nodes(body, dict(zip(inner, given, strict=True)))

    def _held(self, module: fx.GraphModule, target: str) -> Any:
        found: Any = module
        for part in target.split("."):
            found = getattr(found, part)
        if isinstance(found, fx.GraphModule):
            return found
        if not isinstance(found, torch.Tensor):
            raise TaskError(f"the graph holds {type(found).__name__} {target!r}", "hold tensors alone")
        known = next((s.name for s in self.constants if s.name == target), None)
        if known is None:
            self.constants.append(Slot.of(target, "constant", found))
            self.attributes[target] = self._attribute(target)
        return _Made(f"self.{self.attributes[target]}")

    # -- texts -------------------------------------------------------------------------------------

    def _resolved(self, value: Any, made: Mapping[fx.Node, Any]) -> Any:
        if isinstance(value, fx.Node):
            found = made[value]
            return _Made(found) if type(found) is str else found
        if isinstance(value, list | tuple):
            items = [self._resolved(item, made) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, slice):
            return slice(*(self._resolved(v, made) for v in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {key: self._resolved(item, made) for key, item in value.items()}
        return value

    def _text(self, value: Any) -> str:
        return literal(value)

    def _elsewhere(self, device: torch.device) -> bool:
        """Whether a device that the graph names is another than the one its tensors are on."""
        kinds = {
            node.meta["val"].device.type
            for node in self.module.graph.nodes
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)
        }
        return device.type == "cpu" and bool(kinds) and "cpu" not in kinds

    def _line(self, text: str) -> None:
        self._lines.append(f"{INDENT * self._depth}{text}")

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self._line("pass")
        self._depth -= 1

    def _local(self, wanted: str) -> str:
        return self._free(_identifier(wanted), _WRITTEN)

    def _attribute(self, wanted: str) -> str:
        name = _identifier(wanted)
        return self._free(f"{name}_held" if hasattr(nn.Module, name) or name == "training" else name)

    def _free(self, wanted: str, besides: frozenset[str] = frozenset()) -> str:
        name, count = wanted, 1
        while name in self._taken or name in besides:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name


class _Made(str):
    """A text that stands for a value, not a string that the program uses."""

    def __repr__(self) -> str:
        return str(self)


def changes_tensors(module: fx.GraphModule) -> bool:
    """Whether a graph, or one within it, changes a tensor in place: an input, a buffer, or one of its own."""
    graphs = [m.graph for m in module.modules() if isinstance(m, fx.GraphModule)]
    return any(_acts(node) for graph in graphs for node in graph.nodes)


def _acts(node: fx.Node) -> bool:
    """Whether a node changes one of its operands; a batch norm in training changes its statistics."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        batch_norm = schema.name == "aten::batch_norm" and node.args[5] is not False
        return (schema.is_mutable or batch_norm) and _CHECKS.fullmatch(schema.name) is None
    in_place = node.op == "call_method" and str(node.target).endswith("_")
    return in_place or getattr(node.target, "__name__", "") in ("setitem", "iadd", "imul", "isub", "itruediv")


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that the output rests on, and those that change something; no checks, nor what these need."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        acts = _acts(node) or node.op == "output"
        acts = acts or isinstance(node.target, torch._ops.HigherOrderOperator)
        if acts or node in found:
            found.add(node)
            found.update(node.all_input_nodes)
    return found


def _idle(schema: Any, args: Sequence[Any]) -> bool:
    """A dropout that drops nothing."""
    return schema.name in ("aten::dropout", "aten::feature_dropout") and args[2:] == (False,)


def _behind(args: list[Any], body: fx.GraphModule, name: str) -> list[Any]:
    """What a wrapper passes to its body; one called by name stands between them."""
    place = next(i for i, a in enumerate(args) if a is body)
    rest = args[place + 1 :]
    return rest[1:] if name == "invoke_subgraph" else rest


def line_of(node: fx.Node) -> str:
    """Where the person's code makes the call: the last frame of the recorded stack."""
    trace = node.meta.get("stack_trace") or ""
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    return f" ({frames[-1][0]}:{frames[-1][1]})" if frames else ""


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text).strip("_") or "value"
    if name[0].isdigit():
        name = f"part_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name
