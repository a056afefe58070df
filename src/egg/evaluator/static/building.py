"""Which functions of a file run only where a module or its inputs are made.

A constructor may use what a call may not (NumPy), and so may the methods that it alone calls: ``create_mlp``,
``_make_layer``. The text shows that where a function is named in calls on the spot and nowhere else, each of
them in such a function again, and PyTorch calls nothing of that name by itself.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from egg.evaluator.static.scopes import Program
from egg.evaluator.static.vocabulary import words

Uses = Mapping[str, Sequence[ast.AST]]

ROOTS = frozenset(["get_inputs", "get_init_inputs", "reset_parameters"])
"""Functions that make a module or its inputs, named in the file or not."""
CONSTRUCTOR = "__init__"
CALLED_BY_TORCH = frozenset(
    words("""
    add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float forward
    get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers
    named_children named_modules named_parameters parameters register_buffer register_module
    register_parameter requires_grad_ set_extra_state set_submodule share_memory state_dict to to_empty train
    type xpu zero_grad _apply _call_impl _get_backward_hooks _get_backward_pre_hooks _get_name
    _load_from_state_dict _maybe_warn_non_full_backward_hook _named_members _replicate_for_data_parallel
    _save_to_state_dict _slow_forward _wrapped_call_impl
    """)
)
"""Methods of ``nn.Module``, which run though a file never names them."""


def building(program: Program) -> frozenset[ast.FunctionDef]:
    """The largest set of functions that are called from within it alone."""
    uses = _uses(program)
    found = {node for node in program.nodes() if isinstance(node, ast.FunctionDef) and _may_be(program, node)}
    while True:
        left = {node for node in found if _called_within(program, node, uses, found)}
        if left == found:
            return frozenset(found)
        found = left


def _uses(program: Program) -> Uses:
    """Where a name is read, as a variable, an attribute or a string that may name one."""
    found: dict[str, list[ast.AST]] = defaultdict(list)
    for node in program.nodes():
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                found[name].append(node)
            case _:
                pass
    return found


def _may_be(program: Program, function: ast.FunctionDef) -> bool:
    """Whether nothing but its name leads to it."""
    if function.name == CONSTRUCTOR or function.name in ROOTS:
        return True
    if function.decorator_list or function.name in CALLED_BY_TORCH or function.name.startswith("__"):
        return False
    owner = program.class_of(function)
    return owner is None or _plain_module(program, owner)


def _plain_module(program: Program, owner: ast.ClassDef) -> bool:
    """Whether a class inherits from ``nn.Module`` and classes of the file alone: a layer of PyTorch's calls
    more methods of its own."""
    own = {node.name for node in program.nodes() if isinstance(node, ast.ClassDef)}
    return not owner.keywords and all(
        (isinstance(base, ast.Name) and base.id in own) or set(program.paths(base)) == {"torch.nn.Module"}
        for base in owner.bases
    )


def _called_within(
    program: Program, function: ast.FunctionDef, uses: Uses, found: Collection[ast.AST]
) -> bool:
    owner = program.class_of(function)
    if function.name == CONSTRUCTOR:
        return owner is not None and all(
            _is_base(program, use) or _is_call_in(program, use, found) for use in uses.get(owner.name, ())
        )
    named = uses.get(function.name, ())
    return bool(named or function.name in ROOTS) and all(_is_call_in(program, use, found) for use in named)


def _is_base(program: Program, use: ast.AST) -> bool:
    up = program.parent_of[use]
    return isinstance(up, ast.ClassDef) and use in up.bases


def _is_call_in(program: Program, use: ast.AST, found: Collection[ast.AST]) -> bool:
    up = program.parent_of[use]
    inside = (node for node in program.ancestors(use) if isinstance(node, ast.FunctionDef | ast.Lambda))
    return isinstance(up, ast.Call) and up.func is use and next(inside, up) in found
