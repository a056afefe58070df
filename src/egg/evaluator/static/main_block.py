"""The author's own test at the end of a file, which an import does not run."""

from __future__ import annotations

import ast


def is_main_block(node: ast.AST) -> bool:
    """``if __name__ == "__main__":`` at module level, without an ``else``."""
    match node:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
            ),
            orelse=[],
        ):
            return True
    return False


def without_main_block(tree: ast.Module) -> ast.Module:
    """The same tree without such blocks: neither judged nor run."""
    tree.body = [node for node in tree.body if not is_main_block(node)]
    return tree
