"""A kernel file of the store in the place of a graph: bound to the caller's tensors, guarded, counted.

The kernel's module is made without memory (on the ``meta`` device), and holds the tensors that the caller
passes, not copies of them. Dynamo may run one compiled graph for many layers, so there is one module for each
set of tensors, found by their identity and where their data are.

A call outside the kernel's domain raises before anything is computed; the fallback answers it, and all later
calls of that signature without asking again. Any other exception puts the kernel out of use for this process.
While the caller records a CUDA graph an exception is its own: what cannot be recorded may still be used.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from egg.core.errors import UsageError
from egg.modules.binding import built
from egg.modules.counts import Call, Counts
from egg.modules.dynamo import Program
from egg.modules.held import runs_on

MOST_BOUND = 256
"""Modules that one graph keeps: more sets of tensors than a model has layers."""


OTHER_WAYS = re.compile(
    r"torch\.is_grad_enabled\(\)|not \w+\.is_contiguous\(\)( or not \w+\.is_contiguous\(\))*"
)
"""Of which calls a kernel's ``forward`` may return something else before it launches."""


class Unbindable(UsageError):
    """A kernel file that does not hold what its graph's task holds."""


class StoredKernel:
    """Answers the calls of a graph: the kernel inside its domain, the fallback elsewhere."""

    def __init__(
        self,
        path: Path,
        program: Program,
        fallback: Call,
        counts: Counts,
        failed: Callable[[BaseException], None],
        *,
        direct: bool = False,
    ) -> None:
        self._class = load_kernel(path, program.device.type).ModelNew
        self._launches = launching_method(self._class) if direct else None
        names = zip(program.inputs, copied_arguments(self._class), strict=False)
        self.copied = frozenset(place for place, copied in names if copied)
        """The arguments of the graph that the kernel file copies where they are not contiguous."""
        self._inside: set[tuple[Any, ...]] = set()
        """Modules with signatures that the guard of the kernel let in."""
        self._inputs, self._held, self._results = program.inputs, program.held, program.results
        self._finish = program.finish
        self._fallback, self._counts, self._failed = fallback, counts, failed
        self._bound: dict[tuple[tuple[int, int], ...], nn.Module] = {}
        self._refused: set[tuple[Any, ...]] = set()
        self._in_use = True
        self._check()

    def __call__(self, *args: Any) -> Any:
        counts = self._counts
        inputs = [args[place] for place in self._inputs]
        if not self._in_use or (self._refused and _signature(inputs) in self._refused):
            counts.fallback += 1
            return self._fallback(*args)
        try:
            with torch.no_grad():
                made = self._made(self._module(args), inputs)
        except (ValueError, TypeError) as outside:
            reason = str(outside).splitlines()[0] if str(outside) else type(outside).__name__
            counts.outside[reason] = counts.outside.get(reason, 0) + 1
            self._refused.add(_signature(inputs))
        except Exception as error:  # whatever a kernel raises, the caller gets the answer of the fallback
            if args[0].is_cuda and torch.cuda.is_current_stream_capturing():
                raise
            self._in_use = False
            counts.failure = f"{type(error).__name__}: {error}"
            self._failed(error)
        else:
            counts.kernel += 1
            return self._arranged(made, args)
        counts.fallback += 1
        return self._fallback(*args)

    def _made(self, module: nn.Module, inputs: Sequence[Any]) -> Any:
        """What the kernel makes: by its ``forward``, or, behind the guard in there, by its launches alone."""
        if self._launches is None:
            return module(*inputs)
        met = (id(module), *_signature(inputs))
        name, contiguous = self._launches
        if met in self._inside and not (contiguous and _gapped(inputs)):
            return getattr(module, name)(*inputs)
        made = module(*inputs)
        self._inside.add(met)
        return made

    def _arranged(self, made: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs as the graph returns them."""
        outputs = (made,) if isinstance(made, torch.Tensor) else made
        if self._finish is not None:
            with torch.no_grad():
                return self._finish(*args, *outputs)
        return tuple(
            outputs[result.place]
            if result.place is not None
            else args[result.argument]
            if result.argument is not None
            else result.value
            for result in self._results
        )

    def _module(self, args: Sequence[Any]) -> nn.Module:
        """The module that holds the tensors of this call."""
        held: list[Any] = [args[held.place] if held.place is not None else held.tensor for held in self._held]
        key = tuple((id(tensor), tensor.data_ptr()) for tensor in held)
        module = self._bound.get(key)
        if module is None:
            if len(self._bound) >= MOST_BOUND:
                self._bound.pop(next(iter(self._bound)))
            named = {place.name: tensor for place, tensor in zip(self._held, held, strict=True)}
            module = self._bound[key] = built(self._class, named)
        return module

    def _check(self) -> None:
        """Raise where the kernel's module would keep a tensor of its own beside those that it is given."""
        with torch.device("meta"):
            module = self._class()
        kept = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        wanted = {held.name for held in self._held}
        if set(kept) != wanted:
            odd = ", ".join(sorted(set(kept) ^ wanted))
            raise Unbindable(f"the kernel file and its task differ in what they hold: {odd}", "tune it again")


def load_kernel(path: Path, device: str) -> ModuleType:
    """The kernel file as a module. On a CPU its kernels run in Triton's interpreter, which must be on."""
    if device == "cpu" and "triton" in path.read_text(encoding="utf-8") and not runs_on("cpu"):
        raise UsageError(
            "a kernel runs on the CPU in Triton's interpreter alone",
            "set TRITON_INTERPRET=1 before the program starts",
        )
    name = f"egg_kernel_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", "tune it again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def launching_method(kernel: type[nn.Module]) -> tuple[str, bool] | None:
    """The method that ``forward`` calls in the place of replaying, as its text has it; ``None`` without one.

    A file that replays its launches cannot do so while the caller records them, and has a line for that:
    where the stream is being recorded it returns a method's answer to the arguments as they are. Before that
    line stands the guard of the file, which returns nothing and leaves the arguments as they are, other than
    for calls that are never made directly: with gradients, or, where it has a line for that (second), with
    inputs that are not contiguous.
    """
    try:
        (forward,) = ast.parse(textwrap.dedent(inspect.getsource(kernel.forward))).body
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(forward, ast.FunctionDef):
        return None
    arguments = [argument.arg for argument in forward.args.args[1:]]
    contiguous = False
    for statement in forward.body:
        match statement:
            case ast.If(test=test, body=[ast.Return(value=ast.Call() as call)]) if (
                "is_current_stream_capturing()" in ast.unparse(test)
            ):
                found = re.fullmatch(r"self\.(\w+)\((.*)\)", ast.unparse(call))
                if found is None or found[2] != ", ".join(arguments):
                    return None
                return found[1], contiguous
            case ast.If(test=test, orelse=[]) if OTHER_WAYS.fullmatch(ast.unparse(test)):
                contiguous |= "is_contiguous" in ast.unparse(test)
            case _ if not _guards(statement, arguments):
                return None
    return None


def copied_arguments(kernel: type[nn.Module]) -> tuple[bool, ...]:
    """For each argument of ``forward`` whether the file makes it contiguous: ``x = x.contiguous()``."""
    try:
        text = textwrap.dedent(inspect.getsource(kernel))
    except (OSError, TypeError):
        return ()
    lines = {line.strip() for line in text.splitlines()}
    names = list(inspect.signature(kernel.forward).parameters)[1:]
    return tuple(f"{name} = {name}.contiguous()" in lines for name in names)


def _guards(statement: ast.stmt, arguments: Sequence[str]) -> bool:
    """Whether a statement returns nothing and leaves the arguments bound to what they were."""
    if isinstance(statement, ast.For | ast.While | ast.With | ast.Try):
        return False
    return not any(
        isinstance(node, ast.Return | ast.Yield)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in arguments)
        or (isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store))
        for node in ast.walk(statement)
    )


def _gapped(inputs: Sequence[Any]) -> bool:
    return not all(x.is_contiguous() for x in inputs if isinstance(x, torch.Tensor))


def _signature(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        (tensor.dtype, tensor.shape, tensor.stride()) if isinstance(tensor, torch.Tensor) else tensor
        for tensor in inputs
    )
