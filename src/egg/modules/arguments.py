"""The leaves of a call's arguments, quickly where every argument is one leaf."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from egg.core.errors import TaskError
from egg.modules.calling import canonical, signature_of
from egg.modules.capture_types import Captured
from egg.modules.structure import flatten

_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments:
    """Takes calls apart as the captured one was.

    Binding a signature and flattening a tree take tens of microseconds. Most calls pass tensors and options
    alone: then each parameter has one place among the leaves, and the defaults are known.
    """

    def __init__(self, module: nn.Module, captured: Captured) -> None:
        self._module, self._form = module, captured.arguments
        parameters = list(signature_of(module).parameters.values())
        names = [p.name for p in parameters]
        positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        wanted = [f"0_{i}" for i in range(len(positional))]
        wanted += [f"1_{p.name}" for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        single = all(record is None for record in self._form.records) and wanted == list(self._form.paths)
        self._places = {name: place for place, name in enumerate(names)}
        self._defaults = [p.default for p in parameters]
        self._positional = len(positional)
        self._simple = single and not any(p.kind in _SEVERAL for p in parameters)

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """The leaves; ``None`` where the arguments have another structure, or are none that forward takes."""
        if not self._simple:
            try:
                found, form = flatten(canonical(self._module, args, kwargs))
            except TaskError:
                return None  # the original says what is wrong with the call
            return found if form == self._form else None
        if len(args) > self._positional:
            return None
        leaves = [*args, *self._defaults[len(args) :]]
        for name, value in kwargs.items():
            place = self._places.get(name, -1)
            if place < len(args):
                return None
            leaves[place] = value
        return leaves
