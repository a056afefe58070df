"""Which of PyTorch's operators cannot be part of a recorded CUDA graph.

A graph records what is launched on the GPU and nothing that the host does beside it. Most operators only
launch: products, convolutions, attention, FFTs, sorts, gathers and scatters of any library are recorded like
kernels of ours, once a plain call has made their plans and workspaces. An operator stays outside where the
host waits for numbers from the GPU (a size that depends on the data, a check of the operands, the error code
of a factorisation), or where it draws random numbers.
"""

from __future__ import annotations

from egg.expert.emit.spelling import unchecked
from egg.expert.graph import LITERAL, Graph, Node

WAITING = frozenset({
    "allclose", "argwhere", "bincount", "combinations", "ctc_loss", "_ctc_loss", "_cudnn_ctc_loss", "equal",
    "histc", "histogram", "histogramdd", "is_nonzero", "istft", "item", "_local_scalar_dense",
    "masked_select", "mode", "nonzero", "nonzero_numpy", "one_hot", "repeat_interleave", "segment_reduce",
    "tensor_split", "_unique", "_unique2", "unique_consecutive", "unique_dim", "_assert_scalar", "isin",
})  # fmt: skip
"""The host reads a number back: the size of a result, the range of the operands."""
DECOMPOSING = frozenset({
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "geqrf", "inverse", "logdet", "lu_solve",
    "lu_unpack", "matrix_exp", "ormqr", "orgqr", "pinverse", "qr", "slogdet", "svd",
})  # fmt: skip
"""Factorisations read their error code, and some run on the host."""
WAITING_ANCHORS = frozenset({"cholesky", "solve", "inverse", "determinant"})
"""Of the operators that patterns grow around, those whose calls read an error code."""
PLAIN_LINALG = frozenset({"cross", "solve_triangular", "vecdot", "vector_norm"})
"""Of the operators of ``torch.linalg``, those that only launch."""
DRAWING = ("rand", "bernoulli", "multinomial", "normal", "poisson", "binomial", "dropout", "native_dropout")
"""How names of operators begin that draw numbers."""
CHOOSING = frozenset({"index", "index_put", "_unsafe_index", "_unsafe_index_put"})
"""With a mask among the places, the number of places depends on the data."""


def recordable(graph: Graph, node: Node) -> bool:
    """Whether a call that is left as it was captured only launches kernels."""
    target = str(node["target"])
    if target == LITERAL:  # made once, by the plain call before
        return True
    if target.startswith("torch.ops.") and not target.startswith("torch.ops.aten."):
        return False
    name = (target.split(".")[3] if target.startswith("torch.ops.") else target.rsplit(".", 1)[-1]).rstrip(
        "_"
    )
    if unchecked(graph, node) is not None:
        return True
    if name.startswith("linalg_"):
        return name.removeprefix("linalg_") in PLAIN_LINALG
    if name in WAITING or name in DECOMPOSING or name.startswith(DRAWING):
        return False
    places = [value for value in graph.operands(node)[1:] if value is not None]
    return name not in CHOOSING or not any(value.dtype in ("bool", "uint8") for value in places)
