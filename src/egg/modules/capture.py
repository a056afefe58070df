"""A live module as a self-contained task: its operators, its sizes, and what its inputs are like.

``torch.export`` (not strict) records the module with its own Python running over tensors without data. It
sees any Python, keeps composite operators whole, which the built-in team recognises, and names parameters as
``state_dict`` does. Dynamo's strict form would break at code it cannot read; AOTAutograd's takes composite
operators apart.

Only tensors go through the export: a shim takes arguments apart and puts results together, so dictionaries,
dataclasses, options and numbers need no support there. Sizes are exported as symbols first, so that a kernel
may serve other sizes; where that fails, as numbers.

Before a capture is handed out, its text answers the person's own inputs as the module does. A module that
rebinds its state, changes a list it was given or looks at values is refused, with the line that does it.
"""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from egg.core.errors import TaskError
from egg.core.source import Task
from egg.modules.agreement import check_agreement
from egg.modules.bounds import index_bounds
from egg.modules.calling import Called, canonical, initialized, signature_of, twins_of
from egg.modules.capture_types import TENSOR, Binding, Captured, Result
from egg.modules.printing import changes_tensors, line_of, printed
from egg.modules.sizes import Sizes, UnknownSize, sizes_of
from egg.modules.slots import Role, Slot, told_apart
from egg.modules.state import Snapshot
from egg.modules.structure import PLAIN, Structure, flatten

PREFIX = "inner."
"""What the shim calls the module's own tensors."""


class DependsOnValues(TaskError):
    """The course of the program depends on values of tensors: it is no single program."""


class _Around:
    """What is around the tensors of a call: of its arguments beforehand, of its result afterwards."""

    def __init__(
        self, form: Structure, leaves: tuple[Any, ...], given: tuple[int, ...], twins: tuple[int, ...]
    ) -> None:
        self.form, self.leaves, self.given, self.twins = form, leaves, given, twins
        self.written: tuple[int, ...] = ()
        """Leaves that forward changes, in place, as its kernels do."""
        self.count = 0
        """What the task returns: what forward computes, or else what it changes."""
        self.returned: Structure | None = None
        self.results: tuple[Result, ...] = ()


class _Flat(nn.Module):
    """A module that takes tensors alone and returns tensors alone; what it was around them is kept."""

    def __init__(self, inner: nn.Module, around: _Around) -> None:
        super().__init__()
        self.inner = inner
        self.around = around

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        form, full = self.around.form, list(self.around.leaves)
        for place, tensor in zip(self.around.given, tensors, strict=True):
            full[place] = tensor
        versions = {place: full[place]._version for place in self.around.given}
        full = [full[twin] for twin in self.around.twins]
        args, kwargs = form.built(full)
        before = Snapshot(self.inner)
        value = self.inner(*args, **kwargs)
        _check_rebound(before.rebound())
        _check_arguments(form, full, (args, kwargs))
        found, returned = flatten(value)
        computed: list[torch.Tensor] = []
        held = {id(t): n for n, t in (*self.inner.named_parameters(), *self.inner.named_buffers())}
        results = [_result(leaf, full, held, computed) for leaf in found]
        self.around.written = tuple(p for p, version in versions.items() if full[p]._version != version)
        computed = computed or [full[place] for place in self.around.written]  # a task returns something
        self.around.count = len(computed)
        self.around.returned, self.around.results = returned, tuple(results)
        return tuple(computed)


def captured(
    module: nn.Module | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: bool | None = None,
) -> Captured:
    """``module`` at these arguments, as a task; :class:`TaskError` where it cannot be one.

    ``dynamic``: whether sizes of inputs may differ later; without it they may where that can be exported.
    """
    live = module if isinstance(module, nn.Module) else Called(module)
    name = type(live).__name__ if isinstance(module, nn.Module) else getattr(module, "__name__", "function")
    initialized(live, args, kwargs or {})
    full = canonical(live, args, kwargs or {})
    leaves, form = flatten(full)
    twins = twins_of(leaves)
    given = tuple(i for i, twin in enumerate(twins) if twin == i and isinstance(leaves[i], torch.Tensor))
    names = _names(live, form)
    _check_leaves(name, leaves, names)
    tensors = [leaves[i] for i in given]
    shim = _Flat(live, _Around(form, tuple(leaves), given, twins))
    program, sizes = _exported(name, live, shim, tensors, dynamic)
    returned, results = shim.around.returned, shim.around.results
    assert returned is not None
    written = shim.around.written
    if not written and not any(result.kind == "computed" for result in results):
        raise TaskError(f"{name} computes no tensor", "optimize a module that returns what it computes")
    slots, bindings, constants = _slots(live, program, [names[i] for i in given], tensors)
    text = printed(program.graph_module, slots, results=range(shim.around.count), note=_note(name, tensors))
    named = tuple(replace(b, attribute=text.held[b.attribute]) for b in bindings)
    own = {text.held[slot]: tensor for slot, tensor in constants.items()}
    own |= {text.held[s]: t for s, t in _graph_constants(program.graph_module).items() if s in text.held}
    fixed = tuple(TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    device = next((t.device.type for t in (*tensors, *live.parameters())), "cpu")
    found = Captured(
        Task(_task_name(name), text.source),
        named,
        own,
        form,
        fixed,
        given,
        twins,
        returned,
        results,
        written,
        sizes,
        tuple(t.dtype for t in tensors),
        changes_tensors(program.graph_module),
        live.training,
        device,
    )
    check_agreement(found, live, leaves)
    return found


# -- exporting ---------------------------------------------------------------------------------------------


def _exported(
    name: str, live: nn.Module, shim: _Flat, tensors: Sequence[torch.Tensor], dynamic: bool | None
) -> tuple[ExportedProgram, Sizes]:
    before = Snapshot(live)
    problem: Exception | None = None
    trials = [True, False] if dynamic is None else [dynamic]
    while trials:
        symbolic = trials.pop(0)
        shapes = {"tensors": tuple(_free(t) for t in tensors)} if symbolic else None
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                given = tuple(t.detach() for t in tensors)  # the export marks what it is given as dynamic
                program = torch.export.export(shim, given, dynamic_shapes=shapes, strict=False)
            program = _plainly(name, program)
            sizes = _sizes(program, tensors)
        except TaskError:
            raise
        except Exception as error:  # the module's own code runs in there: whatever it raises is its answer
            problem = error
            continue
        finally:
            before.restore()
        _check_values(name, program)
        return program, sizes
    assert problem is not None
    raise _refusal(name, problem) from problem


def _plainly(name: str, program: ExportedProgram) -> ExportedProgram:
    """Without autocast, as the casts it makes, and without the levels of ``vmap`` and its like, which mean
    nothing outside the call that opened them."""
    levels = any("functorch" in getattr(node.target, "__module__", "") for node in program.graph.nodes)
    casts = any("wrap_with_autocast" in str(node.target) for node in program.graph.nodes)
    if not levels and not casts:
        return program
    plain = program.run_decompositions({})
    if all(spec.kind is OutputKind.USER_OUTPUT for spec in plain.graph_signature.output_specs):
        return plain
    if levels:
        raise TaskError(f"{name} changes its state beside a vmap", "keep the two in modules of their own")
    return program


def _sizes(program: ExportedProgram, tensors: Sequence[torch.Tensor]) -> Sizes:
    inputs = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    sizes = sizes_of(program.graph_module, inputs)
    if reason := sizes.outside([t.shape for t in tensors]):
        raise UnknownSize(f"{reason}, at its own inputs")
    return sizes


def _free(tensor: torch.Tensor) -> dict[int, Any]:
    return {dim: Dim.AUTO for dim, size in enumerate(tensor.shape) if size > 1}


def _check_values(name: str, program: ExportedProgram) -> None:
    """Refuse a program in which a number is read out of a tensor: its course depends on values."""
    for node in program.graph.nodes:
        if "_local_scalar_dense" in str(node.target) or str(node.target).startswith("aten.item"):
            raise DependsOnValues(
                f"{name} reads a number out of a tensor{line_of(node)}",
                "optimize the parts before and behind it; a kernel cannot wait for a value",
            )


def _refusal(name: str, error: Exception) -> TaskError:
    words = " ".join(str(error).split("\n")[0].split())[:300] or type(error).__name__
    looks = re.search(r"data.dependent|unbacked|\.item\(\)|GuardOnData|nonzero", f"{type(error)} {error}")
    advice = (
        "the program depends on values of tensors there: optimize the parts before and behind it"
        if looks
        else "torch.export cannot follow it there: optimize the parts one by one, or leave it as it is"
    )
    kind = DependsOnValues if looks else TaskError
    return kind(f"{name} cannot be captured{_place(error)}: {words}", advice)


def _place(error: Exception) -> str:
    """The line of the person's code that was being run."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(ours)]
    frames = [f for f in frames if not f.filename.startswith("<")]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


# -- what goes in and out ----------------------------------------------------------------------------------


def _check_leaves(name: str, leaves: Sequence[Any], names: Sequence[str]) -> None:
    for leaf, path in zip(leaves, names, strict=True):
        if isinstance(leaf, torch.Tensor):
            if leaf.layout is not torch.strided or (type(leaf) not in (torch.Tensor, nn.Parameter)):
                kind = type(leaf).__name__ if type(leaf) is not torch.Tensor else str(leaf.layout)
                raise TaskError(f"{name}: {path} is a {kind} tensor", "give it strided tensors")
        elif not isinstance(leaf, PLAIN):
            raise TaskError(
                f"{name}: the argument {path} is a {type(leaf).__name__}, "
                "and a task cannot say what is in it",
                "pass tensors, numbers, texts, and lists, dictionaries or dataclasses of these",
            )


def _check_rebound(rebound: Sequence[str]) -> None:
    if rebound:
        raise TaskError(
            f"forward rebinds {', '.join(rebound[:3])}, so every call is another program",
            "update a registered buffer in place (copy_), or optimize the parts",
        )


def _check_arguments(form: Structure, leaves: Sequence[Any], built: Any) -> None:
    """Refuse a forward that changes the containers it is given: a capture would lose that."""
    now, after = flatten(built)
    if after != form or any(a is not b for a, b in zip(now, leaves, strict=True)):
        raise TaskError(
            "forward changes a list, dictionary or object among its arguments",
            "return what is new, or optimize the parts",
        )


def _result(leaf: Any, given: Sequence[Any], held: Mapping[int, str], computed: list[torch.Tensor]) -> Result:
    if not isinstance(leaf, torch.Tensor):
        if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise TaskError("forward returns a size of its input", "leave it out of what is returned")
        if not isinstance(leaf, PLAIN):
            raise TaskError(f"forward returns a {type(leaf).__name__}", "return tensors and plain values")
        return Result("constant", value=leaf)
    for place, tensor in enumerate(given):
        if tensor is leaf:
            return Result("input", place)
    if id(leaf) in held:
        return Result("held", path=held[id(leaf)])
    for place, tensor in enumerate(computed):
        if tensor is leaf:
            return Result("computed", place)
    computed.append(leaf)
    return Result("computed", len(computed) - 1)


def _slots(
    module: nn.Module, program: ExportedProgram, names: Sequence[str], tensors: Sequence[torch.Tensor]
) -> tuple[list[Slot], list[Binding], dict[str, torch.Tensor]]:
    """A slot for each placeholder; those of the module's tensors bound, those of the program's own kept."""
    state = {**dict(module.named_parameters(remove_duplicate=False)), **dict(_all_buffers(module))}
    bounds, writes = index_bounds(program.graph_module), changes_tensors(program.graph_module)
    waiting = iter(zip(names, tensors, strict=True))
    slots: list[Slot] = []
    bindings: list[Binding] = []
    constants: dict[str, torch.Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            name, tensor = next(waiting)
            slot = Slot.of(name, "input", tensor)
            bound = bounds.get(spec.arg.name)
            slot = slot.within(bound) if bound else slot
            slots.append(told_apart(slot, tensor) if writes else slot)
            continue
        if not isinstance(spec.arg, TensorArgument):
            raise TaskError(f"the program holds {spec.target}, no tensor", "pass it as an argument")
        path = str(spec.target).removeprefix(PREFIX)
        if path in state:
            path = next(first for first, tensor in state.items() if tensor is state[path])
            role: Role = "parameter" if isinstance(state[path], nn.Parameter) else "buffer"
            slots.append(Slot.of(path, role, state[path]))
            if not any(binding.path == path for binding in bindings):
                bindings.append(Binding(path, path, role))
        else:
            tensor = program.constants[str(spec.target)]
            if not isinstance(tensor, torch.Tensor):
                raise TaskError(f"the program holds a {type(tensor).__name__}", "pass it as an argument")
            slots.append(Slot.of(path, "constant", tensor))
            bindings.append(Binding(path, "", "constant"))
            constants[path] = tensor
    return _apart(slots, bindings), bindings, constants


def _apart(slots: list[Slot], bindings: Sequence[Binding]) -> list[Slot]:
    """Inputs under names that no tensor of the module has."""
    taken = {binding.attribute for binding in bindings}
    found: list[Slot] = []
    for slot in slots:
        name = slot.name
        while slot.role == "input" and name in taken:
            name += "_"
        taken.add(name)
        found.append(replace(slot, name=name))
    return found


def _all_buffers(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return list(module.named_buffers(remove_duplicate=False))


def _graph_constants(module: fx.GraphModule) -> dict[str, torch.Tensor]:
    """Tensors that the graph, or one within it, holds itself."""
    found: dict[str, torch.Tensor] = {}
    for inner in (m for m in module.modules() if isinstance(m, fx.GraphModule)):
        for node in inner.graph.nodes:
            held = getattr(inner, str(node.target), None) if node.op == "get_attr" else None
            if isinstance(held, torch.Tensor):
                found[str(node.target)] = held
    return found


def _names(module: nn.Module, form: Structure) -> list[str]:
    """What to call each leaf of the arguments: as the signature does, and where it stands in its argument."""
    parameters = list(signature_of(module).parameters.values())
    positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    found: list[str] = []
    for path in form.paths:
        side, *steps = path.split("_", 2)
        if side == "0" and steps:
            place = int(steps[0])
            name = positional[place] if place < len(positional) else f"x_{place}"
            found.append("_".join([name, *steps[1:]]))
        else:
            found.append("_".join(steps) or "x")
    return found


def _task_name(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"\W", "_", name)).lower() or "module"


def _note(name: str, tensors: Sequence[torch.Tensor]) -> str:
    shapes = ", ".join(f"{tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in tensors)
    return f"{name} at {shapes or 'no tensors'}, as captured from a program."
