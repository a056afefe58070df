"""Which calls of Triton do something besides computing a value."""

from __future__ import annotations

import ast

MODULES = frozenset({"tl", "triton", "libdevice"})
ACTING = ("store", "atomic", "inline", "barrier", "print", "assert")
"""In the names of functions of Triton that do something besides computing a value."""


def only_computes(call: ast.Call) -> bool:
    """Whether the call can be left out where its value is not read."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in MODULES:
            return not any(word in name for word in ACTING)
        case ast.Attribute(attr="to"):
            return True
    return False
