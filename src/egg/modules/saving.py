"""A kernel kept in a folder with what ties it to its module, and tied to a module again.

The folder holds ``task.py``, ``kernel.py``, ``evaluation.json``, ``capture.json`` and, where the program has
tensors of its own, ``constants.pt``. Nothing in it is unpickled: structures are written as the containers
they are made of, types by name. Weights are not in it. A folder serves a module that is built as the saved
one was: the classes, their options and the text of their ``forward`` have one fingerprint.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from egg.core.errors import UsageError
from egg.core.evaluation import Evaluation
from egg.core.source import Candidate, Task
from egg.modules.binding import tensors_of
from egg.modules.capture_types import TENSOR, Binding, Captured, Result
from egg.modules.outcome import Outcome
from egg.modules.sizes import Sizes
from egg.modules.structure import Structure, flatten

SCHEMA = "egg.capture/2"
_PLAIN = (bool, int, float, str, type(None))


def save(module: nn.Module, captured: Captured, result: Outcome, folder: Path) -> Path:
    if result.source is None or result.evaluation is None:
        raise UsageError(f"there is no kernel to save: {result.reason}", "optimize with a larger budget")
    data = {
        "schema": SCHEMA,
        "name": captured.task.name,
        "reason": result.reason,
        "fingerprint": fingerprint(module),
        "capture": _capture_data(captured),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").write_text(captured.task.source, encoding="utf-8")
    (folder / "kernel.py").write_text(result.source, encoding="utf-8")
    (folder / "evaluation.json").write_text(json.dumps(result.evaluation.to_json(), indent=2) + "\n", "utf-8")
    (folder / "capture.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    if captured.constants:
        torch.save(
            {name: t.detach().cpu() for name, t in captured.constants.items()}, folder / "constants.pt"
        )
    return folder


def load(folder: Path, module: nn.Module) -> tuple[Captured, Outcome]:
    """What ``folder`` holds, for ``module``; :class:`UsageError` where it is damaged or for another one."""
    try:
        data = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
        task = Task(data["name"], (folder / "task.py").read_text(encoding="utf-8"))
        source = (folder / "kernel.py").read_text(encoding="utf-8")
        evaluation = Evaluation.from_json(json.loads((folder / "evaluation.json").read_text("utf-8")))
        if data["schema"] != SCHEMA:
            raise UsageError(f"{folder} was written by another version ({data['schema']})", "optimize again")
        captured = _captured(data["capture"], task, _constants(folder, module))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{folder} holds no saved kernel: {error}", "name a folder of fast.save()"
        ) from error
    if evaluation.candidate_sha256 != Candidate(source).sha256 or evaluation.task_sha256 != task.sha256:
        raise UsageError(f"the files in {folder} are not those that were verified", "optimize again")
    if data["fingerprint"] != fingerprint(module):
        raise UsageError(
            f"{folder} is for a {task.name} that is built otherwise than this {type(module).__name__}",
            "build the module as it was when its kernel was saved, or optimize again",
        )
    try:
        tensors_of(captured, module)
    except (KeyError, AttributeError) as error:
        raise UsageError(f"the module has no {error}", "optimize again") from error
    return captured, Outcome(task, source, evaluation, _now(data["reason"], evaluation), str(folder))


def _now(reason: str, evaluation: Evaluation) -> str:
    """The reason, and what is different on this machine."""
    seen = evaluation.machine.torch
    return reason if seen == torch.__version__ else f"{reason}; verified under torch {seen}"


def fingerprint(module: nn.Module) -> str:
    """One text for all modules that are built alike: classes, options, forms of tensors, forward's text."""
    lines: list[str] = []
    for name, part in module.named_modules():
        kind = type(part)
        options = {k: v for k, v in vars(part).items() if not k.startswith("_") and isinstance(v, _PLAIN)}
        options.pop("training", None)
        lines.append(f"{name} {kind.__module__}.{kind.__qualname__} {sorted(options.items())}")
        lines.append(_text_of(kind))
        for key, tensor in (*part._parameters.items(), *part._buffers.items()):
            lines.append(f"{key} {None if tensor is None else (tuple(tensor.shape), str(tensor.dtype))}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _text_of(kind: type) -> str:
    try:
        return inspect.getsource(kind.forward)  # type: ignore[attr-defined]
    except (OSError, TypeError):
        return ""


# -- a capture as data -------------------------------------------------------------------------------------


def _capture_data(captured: Captured) -> dict[str, Any]:
    return {
        "bindings": [dataclasses.asdict(binding) for binding in captured.bindings],
        "arguments": _form_data(captured.arguments),
        "fixed": [_leaf_data(leaf) for leaf in captured.fixed],
        "given": list(captured.given),
        "twins": list(captured.twins),
        "returned": _form_data(captured.returned),
        "results": [dataclasses.asdict(r) | {"value": _leaf_data(r.value)} for r in captured.results],
        "written": list(captured.written),
        "sizes": {"shapes": captured.sizes.shapes, "conditions": captured.sizes.conditions},
        "dtypes": [_leaf_data(dtype) for dtype in captured.dtypes],
        "mutates": captured.mutates,
        "training": captured.training,
        "device": captured.device,
    }


def _captured(data: Mapping[str, Any], task: Task, constants: Mapping[str, torch.Tensor]) -> Captured:
    sizes = data["sizes"]
    return Captured(
        task,
        tuple(Binding(**binding) for binding in data["bindings"]),
        constants,
        _form(data["arguments"]),
        tuple(_leaf(leaf) for leaf in data["fixed"]),
        tuple(data["given"]),
        tuple(data["twins"]),
        _form(data["returned"]),
        tuple(Result(**(result | {"value": _leaf(result["value"])})) for result in data["results"]),
        tuple(data["written"]),
        Sizes(tuple(tuple(shape) for shape in sizes["shapes"]), tuple(sizes["conditions"])),
        tuple(_leaf(dtype) for dtype in data["dtypes"]),
        data["mutates"],
        data["training"],
        data["device"],
    )


def _constants(folder: Path, module: nn.Module) -> dict[str, torch.Tensor]:
    """The program's own tensors, on the device that the module is on."""
    if not (folder / "constants.pt").exists():
        return {}
    where = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    return torch.load(folder / "constants.pt", map_location=where, weights_only=True)


def _form_data(form: Structure) -> Any:
    return _container_data(form.built([_Place(i) for i in range(form.count)]))


def _form(data: Any) -> Structure:
    return flatten(_container(data))[1]


@dataclasses.dataclass(frozen=True)
class _Place:
    """A leaf's place, in the stead of the leaf."""

    at: int


def _container_data(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, _Place):
        return value.at
    if value is None:
        return None
    if kind in (list, tuple):
        return {kind.__name__: [_container_data(item) for item in value]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"tuple_of": _name(kind), "items": [_container_data(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = {key: _container_data(item) for key, item in value.items()}
        return {"dict": items} if kind is dict else {"dict_of": _name(kind), "items": items}
    if dataclasses.is_dataclass(value):
        found = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        items = {name: _container_data(item) for name, item in found.items()}
        return {"record_of": _name(kind), "items": items}
    raise UsageError(f"a {kind.__name__} among arguments or results cannot be saved", "optimize when needed")


def _container(data: Any) -> Any:
    match data:
        case None:
            return None
        case int():
            return data
        case {"list": items}:
            return [_container(item) for item in items]
        case {"tuple": items}:
            return tuple(_container(item) for item in items)
        case {"tuple_of": name, "items": items}:
            return _type(name)(*(_container(item) for item in items))
        case {"dict": items}:
            return {key: _container(item) for key, item in items.items()}
        case {"dict_of": name, "items": items}:
            return _type(name)(**{key: _container(item) for key, item in items.items()})
        case {"record_of": name, "items": items}:
            made = object.__new__(_type(name))
            for key, item in items.items():
                object.__setattr__(made, key, _container(item))
            return made
    raise ValueError(f"no container: {data!r}")


def _name(kind: type) -> str:
    if "<locals>" in kind.__qualname__:
        raise UsageError(
            f"{kind.__qualname__} is defined in a function", "define it in a module to save this"
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _type(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    wanted = found is collections.OrderedDict or issubclass(found, dict | tuple)
    if not (wanted or dataclasses.is_dataclass(found)):
        raise ValueError(f"{name} is no container")
    return found


def _leaf_data(leaf: Any) -> Any:
    if leaf is TENSOR:
        return {"tensor": True}
    if isinstance(leaf, _PLAIN):
        return leaf
    if isinstance(leaf, torch.dtype | torch.layout | torch.memory_format):
        return {"torch": str(leaf).removeprefix("torch.")}
    if isinstance(leaf, torch.device):
        return {"device": str(leaf)}
    raise UsageError(f"a {type(leaf).__name__} among the arguments cannot be saved", "optimize when needed")


def _leaf(data: Any) -> Any:
    match data:
        case {"tensor": True}:
            return TENSOR
        case {"torch": name}:
            return getattr(torch, name)
        case {"device": name}:
            return torch.device(name)
    return data
