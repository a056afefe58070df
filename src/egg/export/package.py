"""A kernel file as a small installable package: one operator, a module, and tests of its own.

The files of a kernel stay as they were judged. Around them is generated a custom operator of
``torch.library`` whose arguments are the program's inputs, its parameters and buffers, and the numbers and
lists that its constructor takes. The fake implementation runs the original program on tensors without data,
so shapes are right for every size that a compiler leaves symbolic.

The operator is a ``custom_op`` and no ``triton_op``: a compiler traces through the latter, and the host code
of a kernel file (guards that remember signatures, packed weights that are kept) is not made to be traced.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from egg.core.domain import Domain, TensorInput
from egg.core.domain_words import words_of
from egg.core.errors import UsageError
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.task.interface import TENSOR, TENSORS, Argument, Interface

SIMPLE = ("bool", "int", "float", "str")
TOLERANCE = {Precision.MATCH: 1e-3, Precision.FP32: 1e-3, Precision.TF32: 1e-2}
"""Of the package's own comparison with the program; the judge's own is in the evaluation."""
_LIST = re.compile(r"(list|tuple)\[(\w+)\]")


@dataclass(frozen=True)
class Claim:
    """A kernel that was accepted: what is exported, and why it may be."""

    task: Task
    kernel: Candidate
    evaluation: Evaluation

    @property
    def package(self) -> str:
        """A name that Python takes for a package."""
        name = re.sub(r"\W+", "_", self.task.name).strip("_").lower() or "kernels"
        name = f"k_{name}" if name[0].isdigit() else name
        return f"{name}_op" if keyword.iskeyword(name) or name in ("torch", "triton", "egg") else name

    @property
    def class_name(self) -> str:
        return "".join(part.capitalize() for part in self.package.split("_"))

    @property
    def namespace(self) -> str:
        """Of the operator: unique for the kernel, as several versions may be loaded in one process."""
        return f"egg_{self.package}_{self.kernel.hash[:8]}"


@dataclass(frozen=True)
class Parameter:
    """One parameter of the operator: its name there, its type, and how the module gives it."""

    name: str
    annotation: str
    source: str


def python_files(claim: Claim, seen: Interface, *, layers: bool = False) -> dict[str, str]:
    """The package itself, by file name."""
    form = _Form(claim, seen)
    texts = {
        "__init__.py": _render("init.py.j2", form.values() | {"layers": layers}),
        "operator.py": _render("operator.py.j2", form.values()),
        "binding.py": files("egg.export.packaged").joinpath("binding.py").read_text(encoding="utf-8"),
        "kernel.py": claim.kernel.source,
        "reference.py": claim.task.source,
        "evaluation.json": json.dumps(claim.evaluation.to_json(), indent=2) + "\n",
    }
    if layers:
        texts["layers.py"] = _render("layers.py.j2", form.values() | {"layer_lines": form.layer_lines()})
    return texts


def write_package(claim: Claim, seen: Interface, folder: Path) -> list[Path]:
    """An installable project in ``folder``: the package, ``pyproject.toml``, a README and tests."""
    form = _Form(claim, seen)
    values = form.values()
    texts = {f"{claim.package}/{name}": text for name, text in python_files(claim, seen).items()}
    texts["pyproject.toml"] = _render("pyproject.toml.j2", values)
    texts["README.md"] = _render("readme.md.j2", values)
    texts[f"tests/test_{claim.package}.py"] = _render("test.py.j2", values)
    texts["tests/small.py"] = seen.small
    return write_all(folder, texts)


def write_all(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write files into a new folder, or an empty one; :class:`UsageError` for any other."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty", "name a folder that does not exist yet")
    written = []
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


class _Form:
    """What the templates need: names, types and expressions of one operator."""

    def __init__(self, claim: Claim, seen: Interface) -> None:
        self._claim, self._seen = claim, seen
        self._taken: set[str] = {"state", "training", "torch", "Tensor", "Any", "Sequence", claim.package}
        self.inputs = [a for a in seen.inputs if _schema(a) is not None]
        self.fixed_inputs = [a for a in seen.inputs if _schema(a) is None]
        self.built = [a for a in seen.constructor if _schema(a) is not None]
        self.fixed = [a for a in seen.constructor if _schema(a) is None]
        for argument in (*self.fixed, *self.fixed_inputs):
            _check_literal(claim.task, argument)
        self.names = {a.name: self._unique(a.name) for a in self.inputs}
        self.state = {path: self._unique(path) for path in (*seen.parameters, *seen.buffers)}
        self.numbers = {a.name: self._unique(a.name) for a in self.built}

    def _unique(self, text: str) -> str:
        name = re.sub(r"\W", "_", text)
        name = f"n_{name}" if name[0].isdigit() or name.startswith("_") else name
        while name in self._taken or keyword.iskeyword(name):
            name += "_"
        self._taken.add(name)
        return name

    @property
    def domain(self) -> Domain | None:
        return Domain.of_source(self._claim.kernel.source)

    @property
    def differentiable(self) -> bool:
        return not self._seen.changed and all(a.type != TENSORS for a in self.inputs)

    def signature(self) -> list[Parameter]:
        parameters = [Parameter(self.names[a.name], _annotation(a), a.name) for a in self.inputs]
        parameters += [Parameter(name, "Tensor", attribute(path)) for path, name in self.state.items()]
        parameters += [
            Parameter(self.numbers[a.name], _annotation(a), f'self.built_with["{a.name}"]')
            for a in self.built
        ]
        return [*parameters, Parameter("training", "bool", "self.training")]

    def values(self) -> dict[str, Any]:
        claim, seen = self._claim, self._seen
        numbers = [self.numbers[a.name] for a in self.built]
        domain = self.domain
        return {
            "title": claim.task.name,
            "package": claim.package,
            "name": claim.package,
            "namespace": claim.namespace,
            "distribution": claim.package.replace("_", "-"),
            "version": f"0.1.0+{claim.kernel.hash[:8]}",
            "kernel_hash": claim.kernel.hash,
            "task_hash": claim.task.hash,
            "signature": self.signature(),
            "returns": "Tensor" if seen.single else f"tuple[{', '.join(['Tensor'] * seen.outputs)}]",
            "changed": [self.names.get(name) or self.state[name] for name in seen.changed],
            "state": [{"path": path, "name": name} for path, name in self.state.items()],
            "built": [{"name": a.name, "back": _back(a, self.numbers[a.name])} for a in self.built],
            "built_signature": ", ".join(f"{self.numbers[a.name]}: {_annotation(a)}" for a in self.built),
            "built_call": ", ".join(numbers),
            "fixed": self.fixed,
            "fixed_inputs": self.fixed_inputs,
            "input_list": ", ".join(self.names.get(a.name) or a.text for a in seen.inputs),
            "input_places": [at for at, a in enumerate(seen.inputs) if a in self.inputs],
            "numbers": len(numbers) + 1,
            "differentiable": self.differentiable,
            "forward_parameters": ", ".join(_parameter(a) for a in seen.inputs),
            "example_arguments": ", ".join(f"{a.name}={a.text}" for a in seen.constructor),
            "domain": words_of(domain) if domain is not None else "the shapes of `reference.py`'s inputs",
            "stated": domain is not None,
            "outside": domain is not None and any(isinstance(g, TensorInput) for g in domain.inputs),
            "judged": judged_words(claim.evaluation),
            "tolerance": TOLERANCE.get(claim.evaluation.policy.precision, 5e-2),
            "class_name": claim.class_name,
        }

    def layer_lines(self) -> list[str]:
        """How a layer that adopts ``forward`` gives each argument of the operator.

        It has no constructor of its own: a number that is a dimension of an input is read there, any other is
        an attribute of the adopting module under the constructor's name for it, and its absence an error.
        """
        dimensions = _dimensions(self.domain)
        lines = [self.names[a.name] for a in self.inputs]
        lines += [attribute(path) for path in self.state]
        lines += [dimensions.get(a.name) or f"self.{a.name}" for a in self.built]
        return [*lines, "self.training"]


def _schema(argument: Argument) -> str | None:
    """The argument's type as an operator spells it; ``None`` where an operator cannot take it."""
    if argument.type in (TENSOR, TENSORS, *SIMPLE) or _LIST.fullmatch(argument.type):
        return _annotation(argument)
    return None


def _annotation(argument: Argument) -> str:
    if argument.type == TENSOR:
        return "Tensor"
    if argument.type == TENSORS:
        return "Sequence[Tensor]"
    found = _LIST.fullmatch(argument.type)
    return f"Sequence[{found[2]}]" if found else argument.type


def _back(argument: Argument, name: str) -> str:
    """An operator is given lists; a constructor gets what it was given first."""
    found = _LIST.fullmatch(argument.type)
    return f"{found[1]}({name})" if found else name


def _parameter(argument: Argument) -> str:
    return argument.name if argument.type in (TENSOR, TENSORS) else f"{argument.name}={argument.text}"


def _check_literal(task: Task, argument: Argument) -> None:
    try:
        ast.literal_eval(argument.text)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"task {task.name!r}: an operator cannot take {argument.name} = {argument.text[:60]}",
            "export programs whose arguments are tensors, numbers, text, or lists of numbers",
        ) from None


def attribute(path: str) -> str:
    """A parameter or buffer of ``self``, as an expression that a compiler follows."""
    owner, _, leaf = path.rpartition(".")
    if all(part.isidentifier() for part in path.split(".")):
        return f"self.{path}"
    return f'self.get_submodule("{owner}").{leaf}' if leaf.isidentifier() else f'self.get_parameter("{path}")'


def _dimensions(domain: Domain | None) -> dict[str, str]:
    """Arguments of the constructor that equal a dimension of an input, as expressions on that input."""
    if domain is None:
        return {}
    named = {size.name: size.argument for size in domain.sizes if size.argument}
    places: dict[str, str] = {}
    for given in domain.inputs:
        for at, dimension in enumerate(given.shape if isinstance(given, TensorInput) else ()):
            if dimension in named:
                places.setdefault(named[str(dimension)], f"{given.name}.shape[{at}]")
    return places


def judged_words(evaluation: Evaluation) -> str:
    """One clause: at which level, where, and how fast where a GPU measured it."""
    machine, verdict = evaluation.machine, evaluation.verdict
    where = machine.gpu or "the CPU, by Triton's interpreter"
    verdict_words = f"accepted at level {evaluation.policy.level.value} on {where} (torch {machine.torch})"
    if isinstance(verdict, Accepted) and isinstance(verdict.performance, Measured):
        gains = ", ".join(f"{b.speedup.median:.2f}x {b.name}" for b in verdict.performance.baselines)
        return f"{verdict_words}; {gains}"
    return f"{verdict_words}; no GPU measured it, so nothing is said of its speed"


def _render(template: str, values: dict[str, Any]) -> str:
    found = _environment().get_template(template).render(values)
    return re.sub(r"\n{4,}", "\n\n\n", found).rstrip() + "\n"


def _environment() -> Environment:
    return Environment(loader=PackageLoader("egg.export"), undefined=StrictUndefined, autoescape=False)
