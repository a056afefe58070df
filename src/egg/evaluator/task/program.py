"""A task brought to life: its module, its inputs, its outputs, and the precision it runs under.

The task may be a stranger's code: it is loaded in confined processes only (the oracle's, and those of
:mod:`egg.api.apart`), and the process that waits for them is notified of each request to it
(:data:`on_task`), so that a task that never ends can be ended. Everything that goes wrong in it is a
:class:`~egg.core.errors.TaskError` that says which of its functions failed; a device that runs out of
memory is a :class:`~egg.core.errors.MachineError`.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import linecache
import sys
import types
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.precision import HALF_DTYPES, double_scope
from egg.evaluator.task.signature import given_names

Scalar = bool | int | float | complex

OnTask = Callable[[str], None]
on_task: ContextVar[OnTask] = ContextVar("on_task", default=lambda what: None)
"""Hears what is about to be asked of a task's code; after it, what that was a part of, or an empty text."""

Surrounding = Callable[[], contextlib.AbstractContextManager[None]]
GiveWay = Callable[[], None]
_surrounding: ContextVar[Surrounding] = ContextVar("surrounding", default=contextlib.nullcontext)
_give_way: ContextVar[GiveWay] = ContextVar("give_way", default=lambda: None)
_running: ContextVar[str] = ContextVar("running", default="")
"""What code of a task runs, if any: inside, nothing is waited for, since the task has a time limit."""
GPU = "cuda"
"""A task without this word builds its module on the CPU."""


@contextlib.contextmanager
def sharing_gpu(apart: Surrounding, give_way: GiveWay) -> Iterator[None]:
    """Meanwhile, enter ``apart`` wherever a task's code computes on the CPU alone, and call ``give_way``
    whenever code of a task is about to run."""
    before = _surrounding.set(apart), _give_way.set(give_way)
    try:
        yield
    finally:
        _surrounding.reset(before[0])
        _give_way.reset(before[1])


@dataclass(frozen=True)
class Program:
    """A loaded task. Use as a context manager, or call :meth:`unload`, where many are loaded."""

    task: Task
    module: types.ModuleType

    @classmethod
    def load(cls, task: Task) -> Program:
        """Execute the source in a fresh module that ``inspect``, ``torch.compile`` and Triton can look into.

        Those three ask ``sys.modules`` and ``linecache`` for the source, so both know the
        module under a name that no other load shares.
        """
        unique = f"egg_task_{task.hash}_{uuid.uuid4().hex[:8]}"
        module = types.ModuleType(unique)
        module.__file__ = f"<{unique}>"
        lines = task.source.splitlines(keepends=True)
        linecache.cache[module.__file__] = (len(task.source), None, lines, module.__file__)
        sys.modules[unique] = module
        program = cls(task, module)
        try:
            with _blaming(task, "its module-level code"):
                exec(compile(task.source, module.__file__, "exec"), module.__dict__)
            program._check_names()
        except BaseException:
            program.unload()
            raise
        return program

    def unload(self) -> None:
        """Forget the module: for the many short-lived variants of a task."""
        sys.modules.pop(self.module.__name__, None)
        linecache.cache.pop(str(self.module.__file__), None)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.unload()

    def init_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Constructor arguments from ``get_init_inputs()``: a list, a dict, or ``[[...], {...}]``.

        The last form is read as (positional, keyword) only where the constructor accepts it
        that way and either names every keyword or could not take the two as they stand.
        """
        with _blaming(self.task, "get_init_inputs()"):
            given = self.module.__dict__["get_init_inputs"]()
        if given is None:
            return [], {}
        if isinstance(given, dict):
            return [], dict(given)
        if not isinstance(given, list | tuple):
            raise TaskError(
                f"task {self.task.name!r}: get_init_inputs() returned {type(given).__name__}",
                "return the list of constructor arguments",
            )
        if self._is_args_and_kwargs(given):
            return list(given[0]), dict(given[1])
        return list(given), {}

    def bound_arguments(self) -> dict[str, Any]:
        """The constructor's arguments by name, with the defaults of those that are not given."""
        args, kwargs = self.init_arguments()
        bound = self._signature().bind(*args, **kwargs)
        bound.apply_defaults()
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        kinds = {name: parameter.kind for name, parameter in self._signature().parameters.items()}
        return {name: value for name, value in bound.arguments.items() if kinds[name] not in several}

    def input_names(self, count: int) -> list[str]:
        """What ``forward`` calls its arguments, in order, in a call with ``count`` of them by position."""
        parameters = list(inspect.signature(self.module.__dict__["Model"].forward).parameters.values())
        return list(given_names(parameters[1:], count))

    def build(self, seed: int, device: torch.device, precision: Precision) -> nn.Module:
        """Build ``Model`` as KernelBench does: seed, construct on the CPU, then move.

        The module stays in training mode unless the task's own code calls ``eval()``. Half
        precision policies cast floating parameters and buffers.
        """
        args, kwargs = self.init_arguments()
        if not self._accepts(args, kwargs):
            raise TaskError(
                f"task {self.task.name!r}: Model{_call(args, kwargs)} does not fit Model{self._signature()}",
                "get_init_inputs() must return the constructor's arguments",
            )
        torch.manual_seed(seed)
        with self._on_cpu(), _blaming(self.task, f"Model{_call(args, kwargs)}"), torch.no_grad():
            model = self.module.__dict__["Model"](*args, **kwargs)
        if not isinstance(model, nn.Module):
            raise TaskError(f"task {self.task.name!r}: Model is not an nn.Module", "derive it from nn.Module")
        with _blaming(self.task, f"moving the model to {device}"):
            return model.to(device=device, dtype=HALF_DTYPES.get(precision))

    def inputs(self, seed: int, device: torch.device, precision: Precision) -> list[Any]:
        """The task's inputs for ``seed``, made on ``device``, with the strides the task gave them.

        ``get_inputs`` runs with ``device`` as the default device, so that gigabytes of random
        numbers are drawn by the GPU itself; where that fails (a CPU generator, numpy) they
        are made on the CPU and moved. Only floating tensors are ever cast, and only for a
        half-precision policy.
        """
        get_inputs = self.module.__dict__["get_inputs"]
        made = None
        if device.type != "cpu":
            torch.manual_seed(seed)
            with contextlib.suppress(TaskError), _blaming(self.task, "get_inputs()"), torch.device(device):
                made = get_inputs()
        if made is None:
            torch.manual_seed(seed)
            with self._on_cpu(), _blaming(self.task, "get_inputs()"):
                made = get_inputs()
        if not isinstance(made, list | tuple):
            raise TaskError(
                f"task {self.task.name!r}: get_inputs() returned {type(made).__name__}",
                "return the list of arguments of Model.forward",
            )
        dtype = HALF_DTYPES.get(precision)
        with _blaming(self.task, f"moving the inputs to {device}"):
            return list(map_tensors(made, lambda t: _placed(t, device, dtype)))

    def _on_cpu(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if GPU in self.task.source else _surrounding.get()()

    def blaming(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Whatever the task's own code raises inside is the task's fault, in ``what``."""
        return _blaming(self.task, what)

    def run(self, module: nn.Module, inputs: list[Any]) -> Any:
        """One forward without gradients, an empty tuple where it returns nothing; what it raises is the
        task's fault."""
        with _blaming(self.task, "Model.forward"), torch.no_grad():
            returned = module(*inputs)
        return () if returned is None else returned

    def golden(self, module: nn.Module, inputs: list[Any]) -> Any:
        """The output of an fp64 run of ``module`` on ``inputs``; neither is touched."""
        module64, inputs64 = to_double(module, inputs)
        with double_scope():
            return self.run(module64, inputs64)

    def _check_names(self) -> None:
        for name in ("Model", "get_inputs", "get_init_inputs"):
            if not callable(self.module.__dict__.get(name)):
                raise TaskError(
                    f"task {self.task.name!r}: {name} is not callable",
                    "a task file defines class Model(nn.Module), get_inputs() and get_init_inputs()",
                )

    def _is_args_and_kwargs(self, given: list[Any] | tuple[Any, ...]) -> bool:
        match given:
            case [list() | tuple() as args, dict() as kwargs] if self._accepts(args, kwargs):
                named = bool(kwargs) and kwargs.keys() <= self._signature().parameters.keys()
                return named or not self._accepts(given, {})
        return False

    def _signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self.module.__dict__["Model"])
        except (TypeError, ValueError):
            anything = [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
            return inspect.Signature(anything)

    def _accepts(self, args: Any, kwargs: Mapping[Any, Any]) -> bool:
        try:
            self._signature().bind(*args, **kwargs)
        except TypeError:
            return False
        return True


def outputs_of(value: Any) -> list[tuple[str, torch.Tensor | Scalar]]:
    """Flatten an output into named leaves: ``0`` for a lone tensor, else ``1``, ``loss``, ``a.1``."""
    if isinstance(value, torch.Tensor | Scalar):
        return [("0", value)]
    return list(_leaves(value, ()))


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply ``change`` to every tensor in nested lists, tuples and dicts, once per tensor object."""
    return _mapped(value, change, {})


def _mapped(item: Any, change: Callable[[torch.Tensor], torch.Tensor], seen: dict[int, torch.Tensor]) -> Any:
    """No function within a function: one that calls itself is a cycle, and keeps the tensors it has seen
    until the garbage collector runs, which gigabytes on a GPU do not bring about."""
    if isinstance(item, torch.Tensor):
        if id(item) not in seen:
            seen[id(item)] = change(item)
        return seen[id(item)]
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_mapped(i, change, seen) for i in item))
    if isinstance(item, list | tuple):
        return type(item)(_mapped(i, change, seen) for i in item)
    if isinstance(item, dict):
        mapped = {k: _mapped(v, change, seen) for k, v in item.items()}
        return OrderedDict(mapped) if type(item) is OrderedDict else mapped
    return item


DOUBLE: Mapping[torch.dtype, torch.dtype] = types.MappingProxyType(
    {
        torch.float16: torch.float64,
        torch.bfloat16: torch.float64,
        torch.float32: torch.float64,
        torch.complex32: torch.complex128,
        torch.complex64: torch.complex128,
    }
)


def to_double(module: nn.Module, inputs: list[Any]) -> tuple[nn.Module, list[Any]]:
    """Deep copies of a module and its inputs with everything floating in fp64, and complex numbers of fp64.

    Tensors the module holds as plain attributes are converted too. Run the copies inside
    :func:`double_scope`.
    """
    return in_dtypes(module, inputs, DOUBLE)


def in_dtypes(
    module: nn.Module, inputs: list[Any], kinds: Mapping[torch.dtype, torch.dtype]
) -> tuple[nn.Module, list[Any]]:
    """Deep copies in which every dtype named in ``kinds`` is replaced; layouts stay."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        kind = kinds.get(tensor.dtype, tensor.dtype)
        return restrided(tensor, lambda flat: flat.to(kind, copy=True))

    twin = copy.deepcopy(module)
    twin._apply(change)
    for part in twin.modules():
        for name, held in list(vars(part).items()):
            if isinstance(held, torch.Tensor):
                setattr(part, name, change(held))
    return twin, map_tensors(inputs, change)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, torch.Tensor | Scalar]]:
    if isinstance(value, torch.Tensor | Scalar):
        yield ".".join(path), value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        where = f" at {'.'.join(path)!r}" if path else ""
        raise TaskError(
            f"the reference returned {type(value).__name__}{where}, which cannot be compared",
            "return tensors or numbers, alone or in tuples, lists and dicts",
        )


def _placed(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None) -> torch.Tensor:
    """``tensor`` on ``device`` and, if floating, in ``dtype``, with its strides as they are."""
    want = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    same_device = tensor.device.type == device.type and device.index in (None, tensor.device.index)
    if same_device and want == tensor.dtype:
        return tensor
    return restrided(tensor, lambda flat: flat.to(device=device, dtype=want))


def restrided(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Apply ``change`` to the memory a strided tensor spans, and look at the result the same way.

    ``Tensor.to`` would make expanded or sliced tensors contiguous; the layout is part of
    the task.
    """
    plain = tensor.detach()
    if plain.layout != torch.strided or plain.numel() == 0 or plain.is_contiguous():
        moved = change(plain)
    else:
        span = 1 + sum((n - 1) * s for n, s in zip(plain.shape, plain.stride(), strict=True))
        flat = plain.as_strided((span,), (1,))
        moved = change(flat).as_strided(plain.shape, plain.stride(), 0)
    return moved.requires_grad_(tensor.requires_grad)


def form_of(tensor: torch.Tensor) -> torch.Tensor:
    """Shape, strides, place in its storage, dtype and whether a gradient is required, without the values."""
    form = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if lead := int(tensor.storage_offset()):
        whole = form.new_empty(lead + form.untyped_storage().nbytes() // form.element_size())
        form = whole.as_strided(form.shape, form.stride(), lead)
    return form.requires_grad_(tensor.requires_grad)


def _call(args: list[Any], kwargs: Mapping[str, Any]) -> str:
    shown = [_brief(a) for a in args] + [f"{k}={_brief(v)}" for k, v in kwargs.items()]
    return f"({', '.join(shown)})"


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"<tensor {tuple(value.shape)}>"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@contextlib.contextmanager
def _blaming(task: Task, what: str) -> Iterator[None]:
    """Whatever the task's own code raises becomes a :class:`TaskError` that names ``what`` failed."""
    tell, around = on_task.get(), _running.get()
    if not around:
        _give_way.get()()
    running = _running.set(what)
    try:
        tell(what)
        yield
    except (TaskError, MachineError):
        raise
    except torch.OutOfMemoryError as error:
        raise MachineError(
            f"out of memory in {what} of task {task.name!r}: {error}",
            "use a machine with more memory, or a smaller task",
        ) from error
    except (Exception, SystemExit) as error:
        place = _place(error, task)
        raise TaskError(
            f"task {task.name!r}: {what} failed{place}: {type(error).__name__}: {error}",
            "run the task file by itself: Model(*get_init_inputs())(*get_inputs()) must work",
        ) from error
    finally:
        _running.reset(running)
        tell(around)


def _place(error: BaseException, task: Task) -> str:
    """The innermost line of the task's own source in the traceback."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(f"<egg_task_{task.hash}_"):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" at line {line}" if line is not None else ""
