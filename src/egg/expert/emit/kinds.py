"""What operators are called in prose."""

from __future__ import annotations

from egg.expert.graph import Node


def kind_of(node: Node) -> str:
    """What an operator is called: ``relu``, ``batch norm``, ``max pooling``."""
    op, attributes = node.op, node.attributes
    match op:
        case "pointwise" | "reduce" | "random":
            return str(attributes.get("fn", op)).replace("_", " ")
        case "norm":
            return f"{attributes.get('kind', '')} norm".strip()
        case "pool":
            return f"{attributes.get('fn', '')} pooling".strip()
        case "resample":
            return f"{attributes.get('fn', '')} resize".replace("_", " ").strip()
        case "conv":
            return "transposed convolution" if attributes.get("transposed") else "convolution"
        case "matmul":
            return "matrix product"
        case "triangular_solve":
            return "triangular system"
        case "cholesky":
            return "Cholesky factor"
        case "solve":
            return "linear system"
        case "recurrent":
            return str(attributes.get("cell", op))
        case "library":
            parts = str(attributes.get("target", op)).split(".")
            return parts[3] if parts[:2] == ["torch", "ops"] else parts[-1]  # its overload is no name
    return op
