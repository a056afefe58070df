"""What a group of operators is for, in the words of the program's author.

Capturing takes composites apart: a cross entropy becomes a logarithm of softmax, a gather, comparisons and
casts, and a kernel named after these does not say what it computes. Well-known composites are found again by
the order of their operators, and one word stands for them in the names of kernels and functions. A name says
nothing that matters to a kernel: where a rule is wrong about the purpose, only the name is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from egg.expert.fusion.local import word_of
from egg.expert.graph import Node
from egg.expert.pattern import FREE

LONGEST = 4
"""Words of a group's name."""
SILENT = frozenset({"update", "cast"})
"""What a name only mentions where there is nothing else."""
_ROOT = r"(?:add|add_scalar) (?:rsqrt mul|sqrt div|sqrt reciprocal mul)"
COMPOSITES: Mapping[str, str] = {
    r"log_softmax(?: (?:ne|eq|where))* gather(?: (?:ne|neg|where|mul|sum|div|mean))*": "cross_entropy",
    rf"mean sub(?: sub)? (?:pow|square|mul) mean(?: sub)? {_ROOT}": "layer_norm",
    rf"(?:pow|square|mul) mean {_ROOT}": "rms_norm",
    r"sub (?:pow|square|mul) mean": "mse_loss",
    r"sub abs (?:pow|square|mul)(?: mul)*(?: sub| mul)* (?:lt|le) where(?: mean| sum)?": "huber_loss",
    r"(?:log )?xlogy mul sub(?: sum| mean)?(?: div)?": "kl_div",
    r"sub add norm sub add norm add sub clamp_min(?: mean| sum)?": "triplet_margin_loss",
    r"norm (?:clamp_min |add )?div": "normalize",
    r"mul pow mul add mul (?:tanh add|sigmoid mul) mul": "gelu",
    r"pow mul add mul (?:tanh add|sigmoid mul) mul mul": "gelu",
    r"(?:mul )?(?:div|mul) erf add mul(?: mul)?": "gelu",
    r"softplus tanh mul": "mish",
    r"(?:\w+ )*?(?:eq|ne|le|lt|ge|gt)(?: logical_\w+| where)* attention": "masked_attention",
    r"neg cat mul mul add": "rotary",
    r"mul neg (?:cat mul|mul cat) add": "rotary",
}
"""By the operators in their order, as a pattern over words: what they are together."""


def words_of(nodes: Sequence[Node]) -> list[str]:
    """What a group does, a word for each operator or composite."""
    operators = [node for node in nodes if node.op not in FREE]
    named = [node for node in operators if word_of(node) not in SILENT] or operators
    text = " ".join(
        "log_softmax" if n.op == "softmax" and n.get("log") else _word(n, operators) for n in named
    )
    text = re.sub(r"gated (?=\S)", "", text)
    for pattern, name in COMPOSITES.items():
        text = re.sub(rf"(?<!\S){pattern}(?!\S)", name, text)
    return text.split()


def _word(node: Node, nodes: Sequence[Node]) -> str:
    """``x * sigmoid(x)`` is one function of ``x``: its second half has the word, its first none."""
    if node.op == "pointwise" and node["fn"] == "sigmoid" and _gates(node, nodes) is not None:
        return "gated"
    if node.op == "pointwise" and node["fn"] == "mul":
        sigmoids = (n for n in nodes if n.op == "pointwise" and n["fn"] == "sigmoid")
        if any(_gates(n, nodes) is node for n in sigmoids):
            return "silu"
    return word_of(node)


def _gates(sigmoid: Node, nodes: Sequence[Node]) -> Node | None:
    """The product of a sigmoid with what it was taken of."""
    both = {sigmoid.output, sigmoid.inputs[0]}
    found = (n for n in nodes if n.op == "pointwise" and n["fn"] == "mul" and {*n.inputs} == both)
    return next(found, None)


def group_name(nodes: Sequence[Node]) -> str:
    """What a group does, as an identifier: the first few operators that are more than a change of shape."""
    words = words_of(nodes)
    kept = words if len(words) <= LONGEST else [*words[: LONGEST - 1], words[-1]]
    made = any(node.op == "constant" for node in nodes)
    return "_".join(dict.fromkeys(kept)) or ("filled" if made else "views")
