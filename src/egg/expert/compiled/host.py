"""``Runner.call`` of a generated module, statement by statement, as the lines of ``forward``.

The statements are read off the syntax tree and followed on tensors without data, so that every variable has a
known form. What only serves Inductor's runtime (devices, streams, checks of forms) is left out. A variable
that is given a second name keeps its first one. Memory is released where the generated code does so: buffers
that are used in turn stay in the GPU's cache.

The result is a row of :class:`Step`: a launch or a library call each, with the allocations and views before
it. Whatever is not known ends in :class:`~egg.expert.parts.Unfit`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from egg.expert.compiled import library
from egg.expert.compiled.folded import Folded
from egg.expert.compiled.steps import ITEM, LAY, HostCode, Launch, Step
from egg.expert.compiled.views import Held, allocation, tuple_text
from egg.expert.emit.keeping import MAKE_ONCE
from egg.expert.parts import Unfit

ALLOCATE, REINTERPRET = "empty_strided_cuda", "reinterpret_tensor"
CHECKS = frozenset({"assert_alignment", "args.clear", "torch.cuda.set_device"})
IN_PLACE = frozenset({"zero_", "fill_"})
"""Methods of tensors that generated host code calls."""


@dataclass
class HostReader:
    """Reads the body of ``call``."""

    arguments: Mapping[str, Held]
    """By the name that ``call`` gives them."""
    device: str
    launch: Any
    """Writes one launch: from the kernel's name and a :class:`Launch` to lines, and what it changes."""
    kernels: frozenset[str]
    folded: Mapping[str, Folded] = field(default_factory=dict)
    """By the name in ``call``: tensors that the file makes once."""
    held: dict[str, Any] = field(default_factory=dict)
    """By Python name: a :class:`Held`, or a tuple of tensors that a call returned."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """By variable of ``forward``: the Python names that stand for it."""
    forms: dict[str, torch.Tensor] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Allocations and views that the next step needs."""
    made: list[str] = field(default_factory=list)

    def read(self, call: ast.FunctionDef) -> HostCode:
        self.held.update(self.arguments)
        for name, item in self.folded.items():
            self._define(item.variable, item.tensor, f"{MAKE_ONCE}({item.function}, {self.device})")
            self.held[name] = self.held[item.variable]
        returned = self._block(call.body)
        if returned is None:
            raise Unfit("the host code returns nothing")
        outputs = tuple(self._output(place, item) for place, item in enumerate(returned))
        if self.waiting:
            self._step()
        return HostCode(tuple(self.steps), self.forms, outputs)

    # -- statements --------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.expr] | None:
        for statement in body:
            match statement:
                case ast.With(body=inner):
                    found = self._block(inner)
                    if found is not None:
                        return found
                case ast.Return(value=ast.Tuple(elts=items)):
                    return items
                case ast.Assign(targets=[ast.Tuple()], value=ast.Name(id="args")):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.Delete(targets=targets):
                    for target in targets:
                        self._delete(ast.unparse(target))
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    continue
                case _:
                    raise Unfit(f"the host code has a statement that is not known: {_short(statement)}")
        return None

    def _assign(self, name: str, value: ast.expr) -> None:
        match value:
            case ast.Name(id=other):
                self._bind(name, self._tensor(other))
            case ast.Subscript(value=ast.Name(id=source), slice=ast.Constant(value=int(place))):
                self._item(name, source, place)
            case ast.Call(func=ast.Name(id="get_raw_stream")):
                return
            case ast.Call(func=ast.Name(id=function), args=args) if function == ALLOCATE:
                size, stride, dtype = (self._value(arg) for arg in args[:3])
                made = torch.empty_strided(size, stride, dtype=dtype, device="meta")
                self._define(name, made, allocation(made, self.device))
            case ast.Call(func=ast.Name(id=function)) if function == REINTERPRET:
                view = self._reinterpreted(value)
                if view.text in self.names or view.text in {h.text for h in self.arguments.values()}:
                    self._bind(name, view)
                else:
                    self._define(name, view.tensor, view.text, view.offset)
            case ast.Call():
                self._library(name, value)
            case _:
                raise Unfit(f"the host code computes {_short(value)}, which is not known")

    def _call(self, call: ast.Call) -> None:
        path = ast.unparse(call.func)
        if path in CHECKS:
            return
        if path == "assert_size_stride":
            self._check(call)
            return
        match call.func:
            case ast.Attribute(value=ast.Name(id=kernel), attr="run") if kernel in self.kernels:
                given = Launch(
                    tuple(self._text(arg) for arg in call.args), tuple(self._value(arg) for arg in call.args)
                )
                if any(keyword.arg != "stream" for keyword in call.keywords):
                    raise Unfit(f"the kernel {kernel} is launched with options that are not known")
                lines, changed = self.launch(kernel, given)
                self._step(lines, kernel=kernel, writes=changed)
            case ast.Attribute(value=ast.Name(id=name), attr=method) if (
                method in IN_PLACE and name in self.held
            ):
                given, tensor = ", ".join(self._text(arg) for arg in call.args), self._tensor(name).text
                self._step([f"{tensor}.{method}({given})"], call=method, writes=[tensor])
            case _:
                self._library(None, call)

    def _check(self, call: ast.Call) -> None:
        """The form that a result has on a GPU, whose strides a call without data may have otherwise."""
        match call.args[0]:
            case ast.Name(id=name) if name in self.held and name not in self.arguments:
                held = self._tensor(name)
                size, stride = (self._value(arg) for arg in call.args[1:3])
                made = torch.empty_strided(size, stride, dtype=held.tensor.dtype, device="meta")
                self.held[name] = Held(held.text, made, held.offset)
                self.forms[held.text] = made
                self._lay(held.text, tuple_text(made.stride()))

    def _lay(self, variable: str, stride: str) -> None:
        """Lets the step that a library call made bring its result into these strides."""
        start = f"{variable} = "
        for place, step in enumerate(self.steps):
            if step.call and variable in step.makes:
                lines = tuple(
                    f"{start}{LAY}({line.removeprefix(start)}, {stride})" if line.startswith(start) else line
                    for line in step.lines
                )
                self.steps[place] = replace(step, lines=lines)

    def _delete(self, name: str) -> None:
        held = self.held.pop(name, None)
        if held is None or name in self.arguments:
            return
        variable = held.text if isinstance(held, Held) else name
        alive = self.names.get(variable, set())
        alive.discard(name)
        if not alive and variable in self.forms and not self.waiting:
            self._behind(f"del {variable}")

    def _behind(self, line: str) -> None:
        """Adds to the step that was made last."""
        if not self.steps:
            return
        last = self.steps[-1]
        *others, final = last.lines or ("",)
        joined = f"{final}, {line.removeprefix('del ')}" if final.startswith("del ") else None
        lines = (*others, joined) if joined else (*last.lines, line)
        self.steps[-1] = replace(last, lines=lines)

    # -- variables ---------------------------------------------------------------------------------

    def _bind(self, name: str, held: Held) -> None:
        self.held[name] = held
        self.names.setdefault(held.text, set()).add(name)

    def _define(self, name: str, form: torch.Tensor, text: str, offset: int | None = 0) -> None:
        """A new variable of ``forward``, made by an expression."""
        self.waiting.append(f"{name} = {text}")
        self.made.append(name)
        self.forms[name] = form
        self._bind(name, Held(name, form, offset))

    def _item(self, name: str, source: str, place: int) -> None:
        found = self.held.get(source)
        if isinstance(found, Held) and place == 0:  # the only result that the public call returns
            self._bind(name, found)
            return
        if not isinstance(found, tuple) or not isinstance(found[place], torch.Tensor):
            raise Unfit(f"the host code takes {source}[{place}], which is no tensor")
        self.forms[name] = found[place]
        self._bind(name, Held(name, found[place], None))
        self._step([f"{name} = {source}[{place}]"], makes=[name], call=ITEM)

    def _tensor(self, name: str) -> Held:
        found = self.held.get(name)
        if not isinstance(found, Held):
            raise Unfit(f"the host code reads {name}, which is no tensor that is known here")
        return found

    def _reinterpreted(self, call: ast.Call) -> Held:
        source, size, stride, offset = call.args
        return self._operand(source).reinterpreted(
            self._value(size), self._value(stride), self._value(offset)
        )

    def _operand(self, node: ast.expr) -> Held:
        match node:
            case ast.Name(id=name):
                return self._tensor(name)
            case ast.Call(func=ast.Name(id=function)) if function == REINTERPRET:
                return self._reinterpreted(node)
        raise Unfit(f"the host code reads {_short(node)}, which is no tensor that is known here")

    # -- library calls -----------------------------------------------------------------------------

    def _library(self, name: str | None, call: ast.Call) -> None:
        path = re.sub(r"^aten\.", "torch.ops.aten.", ast.unparse(call.func))
        texts, values = [self._text(a) for a in call.args], [self._value(a) for a in call.args]
        keywords = {str(k.arg): self._text(k.value) for k in call.keywords}
        settings = {str(k.arg): self._value(k.value) for k in call.keywords}
        given = library.Given(texts, values, keywords, settings, self.device)
        extern = path.startswith("extern_kernels.")
        short = path.removeprefix("extern_kernels.").removeprefix("torch.ops.aten.")
        operator = short.split(".")[0]
        if not extern and not path.startswith("torch.ops.aten."):
            raise Unfit(f"the host code calls {path}, which is not known")
        made, operations = self._result(short, extern, values, settings, name is not None)
        if extern:
            text = library.extern_text(short, given)
        else:
            text = library.operator_text(path, given, len(made) if isinstance(made, tuple) else 1)
        if name is None:
            changed = texts[:1] if operator.endswith("_") else []
            self._step([text], call=operator, writes=changed, operations=operations)
            return
        if operator in library.FIRST_ALONE:
            made = made[0]
        one = isinstance(made, torch.Tensor)
        if one:
            self.forms[name] = made
            self._bind(name, Held(name, made, 0 if extern else None))
        else:
            self.held[name] = made
        self._step([f"{name} = {text}"], [name] if one else [], call=operator, operations=operations)

    def _result(
        self, name: str, extern: bool, values: Sequence[Any], settings: Mapping[str, Any], wanted: bool
    ) -> tuple[Any, float]:
        """What a call returns or writes into ``out``, without data, and its operations."""
        plain = {"bias_addmm": "addmm"}.get(name, name)
        made = settings.get("out")
        if made is None:
            path = f"{plain}.default" if extern and name != "convolution" else name
            try:
                made = library.run_without_data(path, extern, values, settings)
            except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
                if wanted:
                    raise Unfit(f"{name} cannot be followed without data: {error}") from error
                return None, 0.0
        made = made if isinstance(made, torch.Tensor) else tuple(made or ())
        return made, library.operations(plain.split(".")[0], values, made)

    # -- expressions -------------------------------------------------------------------------------

    def _text(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name) if name in self.held:
                return self._tensor(name).text
            case ast.Call(func=ast.Name(id=function)) if function == REINTERPRET:
                return self._reinterpreted(node).text
            case ast.Call(func=ast.Name(id="device")):
                return self.device
            case ast.List(elts=items) | ast.Tuple(elts=items):
                texts = [self._text(item) for item in items]
                return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
            case ast.Name(id="inf" | "nan" as number):
                return f'float("{number}")'
        _plain(node)
        return ast.unparse(node)

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name) if name in self.held:
                return self._tensor(name).tensor
            case ast.Call(func=ast.Name(id=function)) if function == REINTERPRET:
                return self._reinterpreted(node).tensor
            case ast.Call(func=ast.Name(id="device")):
                return torch.device("meta")
            case ast.List(elts=items):
                return [self._value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self._value(item) for item in items)
            case ast.Name(id="inf" | "nan" as number):
                return float(number)
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if hasattr(torch, name):
                return getattr(torch, name)
        _plain(node)
        return ast.literal_eval(node)

    # -- steps -------------------------------------------------------------------------------------

    def _step(
        self,
        lines: Sequence[str] = (),
        makes: Sequence[str] = (),
        kernel: str = "",
        call: str = "",
        writes: Sequence[str] = (),
        operations: float = 0.0,
    ) -> None:
        every = (*self.waiting, *lines)
        made = tuple(dict.fromkeys((*self.made, *makes)))
        known = {*self.forms, *(held.text for held in self.arguments.values())}
        text = "\n".join(every)
        reads = tuple(
            n for n in known if n not in made and re.search(rf"(?<![\w.]){re.escape(n)}(?!\w)", text)
        )
        self.steps.append(Step(every, reads, made, kernel, call, tuple(writes), operations))
        self.waiting, self.made = [], []

    def _output(self, place: int, node: ast.expr) -> str | None:
        match node:
            case ast.Constant() | ast.UnaryOp():
                return None
        held = self._operand(node)
        if held.text in self.forms or held.text in {h.text for h in self.arguments.values()}:
            return held.text
        name = f"result_{place}"
        self._define(name, held.tensor, held.text, held.offset)
        return name


def _plain(node: ast.expr) -> None:
    """Refuses what is neither a number, a text nor a name of PyTorch's."""
    match node:
        case ast.Constant():
            return None
        case ast.UnaryOp(operand=operand):
            return _plain(operand)
        case ast.Attribute(value=ast.Name(id="torch")):
            return None
    raise Unfit(f"the host code computes {_short(node)}, which is not known")


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
