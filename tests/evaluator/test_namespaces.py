"""The tables of what a kernel file may name agree with the installed packages."""

from __future__ import annotations

import importlib
import types

import pytest

from egg.evaluator.static.namespaces import judge
from egg.evaluator.static.owned import HOMES
from egg.evaluator.static.vocabulary import words


def test_no_module_can_be_reached_that_is_not_meant_to_be() -> None:
    """Walk what the tables allow in the installed torch and triton: each module must be a listed one."""
    import torch
    import triton
    import triton.language.extra.libdevice
    import triton.tools.tensor_descriptor

    meant = {"torch", "triton"}
    leaks: list[str] = []
    queue: list[tuple[str, types.ModuleType]] = [("torch", torch), ("triton", triton)]
    while queue:
        path, module = queue.pop()
        for name in dir(module):
            value = getattr(module, name, None)
            child = f"{path}.{name}"
            if not isinstance(value, types.ModuleType) or judge(child) is not None or child in meant:
                continue
            meant.add(child)
            expected = value.__name__ == child or value.__name__.startswith("triton.language.extra")
            if not expected and value.__name__ != f"torch._C._{name}":
                leaks.append(f"{child} is {value.__name__}")
            queue.append((child, value))
    assert leaks == []


def test_open_namespaces_give_only_what_is_their_own() -> None:
    """Whatever a library happens to import (functions, classes, dictionaries) is out of reach."""
    found: dict[str, object] = {}
    for space in HOMES:
        module = importlib.import_module(space)
        names = [
            name for name in dir(module) if not name.startswith("_") and judge(f"{space}.{name}") is None
        ]
        found |= {f"{space}.{name}": getattr(module, name) for name in names}
    foreign = {
        path: value
        for path, value in found.items()
        if str(getattr(value, "__module__", type(value).__module__)).partition(".")[0]
        not in ("torch", "triton")
        and not isinstance(value, types.ModuleType | int | str)
    }
    assert foreign == {}
    assert {"triton.language.dot", "torch.nn.functional.max_pool2d", "torch.linalg.det"} <= set(found)


@pytest.mark.parametrize(
    "path",
    words("""
    triton.language.extra.modules triton.language.extra.spec triton.language.extra.module_from_spec
    triton.language.core.wraps triton.language.core.dataclass triton.language.core.builtin
    triton.language.math.wraps torch.nn.functional.handle_torch_function torch.types.IO
    torch.nn.functional.has_torch_function_unary torch.nn.functional.boolean_dispatch
    triton.language.extra.cuda.utils triton.language.extra.modules.builtins
    """),
)
def test_what_a_namespace_imports_is_not_its_own(path: str) -> None:
    assert judge(path) is not None


def test_a_name_that_another_version_has_is_left_to_the_import() -> None:
    assert judge("triton.language.math.a_name_to_come") is None


def test_tables_name_only_what_exists() -> None:
    import torch

    from egg.evaluator.static.vocabulary import CUDA, DATA_MOVEMENT, RANDOM, TENSOR_COMPUTE

    missing = [n for n in DATA_MOVEMENT | RANDOM | TENSOR_COMPUTE if not hasattr(torch, n)]
    assert len(missing) <= 5, missing
    assert all(hasattr(torch.cuda, name) for name in CUDA)
