"""Which names of a library's namespace are the library's own?

A module exposes what it imports beside what it defines: ``triton.language.extra.modules`` is ``sys.modules``,
``triton.language.core.wraps`` reads and sets any attribute, ``torch.nn.functional.handle_torch_function``
steps out of the modes that watch a call. A list of such leaks is never complete. So the objects decide: of a
namespace that is open, a file may use what was defined in it, constants in capitals, and the modules that are
listed by path. A name that the installed version lacks leads nowhere and is left to Python (``try: from
triton.language.extra import libdevice``).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any

TRITON_HOMES = ("triton.language", "triton._C.libtriton.ir")
HOMES: dict[str, tuple[str, ...]] = {
    "torch.nn": ("torch.nn",),
    "torch.nn.functional": ("torch.nn.functional", "torch.functional", "torch._C._nn", "torch"),
    "torch.nn.init": ("torch.nn.init", "torch"),
    "torch.nn.modules": ("torch.nn",),
    "torch.nn.parameter": ("torch.nn.parameter",),
    "torch.nn.utils": ("torch.nn.utils",),
    "torch.nn.utils.parametrizations": ("torch.nn.utils.parametrizations",),
    "torch.nn.utils.rnn": ("torch.nn.utils.rnn", "torch"),
    "torch.linalg": ("torch.linalg", "torch._C._linalg", "torch"),
    "torch.fft": ("torch.fft", "torch._C._fft", "torch"),
    "torch.special": ("torch.special", "torch._C._special", "torch"),
    "triton.language": TRITON_HOMES,
    "triton.language.core": TRITON_HOMES,
    "triton.language.math": TRITON_HOMES,
    "triton.language.random": TRITON_HOMES,
    "triton.language.standard": TRITON_HOMES,
    "triton.language.extra": (),
    "triton.language.extra.libdevice": TRITON_HOMES,
    "triton.language.extra.cuda": TRITON_HOMES,
    "triton.language.extra.cuda.libdevice": TRITON_HOMES,
    "triton.language.extra.hip": TRITON_HOMES,
    "triton.language.extra.hip.libdevice": TRITON_HOMES,
}
"""An open namespace, and the modules in which what it owns is defined. ``torch`` stands for itself alone, the
others for their submodules too."""
OURS = "egg."
"""In a process that interprets kernels, functions of this package stand for some of Triton's."""
CONSTANTS = (bool, int, float, str)
MAKERS = frozenset(
    ["builtin", "extern", "is_builtin", "dispatch", "dataclass_transform", "binary_op_type_legalization"]
)
"""Of Triton's language: they make functions that the compiler calls with its own objects."""
_ABSENT = object()


def owns(space: str, name: str) -> bool:
    """Whether ``name`` of the open namespace ``space`` is its own, or is not there at all."""
    module = _loaded(space)
    if module is None or (name in MAKERS and space.startswith("triton.")):
        return False
    value = getattr(module, name, _ABSENT)
    if value is _ABSENT:
        return not _is_submodule(space, name)
    if isinstance(value, ModuleType):
        return False
    if isinstance(value, CONSTANTS):
        return name.isupper()
    if isinstance(value, type) and issubclass(value, Exception):  # ``LinAlgError``
        return True
    return _is_defined_in(value, HOMES[space])


@functools.cache
def _loaded(space: str) -> ModuleType | None:
    try:
        return importlib.import_module(space)
    except ImportError:
        return None


def _is_submodule(space: str, name: str) -> bool:
    try:
        return importlib.util.find_spec(f"{space}.{name}") is not None
    except (ImportError, ValueError):
        return False


def _is_defined_in(value: Any, homes: tuple[str, ...]) -> bool:
    """By the module that the object, or the function that a kernel was made of, names as its own."""
    while type(value).__module__.startswith("triton.runtime.") and hasattr(value, "fn"):
        value = value.fn
    home = getattr(value, "__module__", None)
    if not isinstance(home, str):
        return False
    return home.startswith(OURS) or any(
        home == own or (own != "torch" and home.startswith(f"{own}.")) for own in homes
    )
