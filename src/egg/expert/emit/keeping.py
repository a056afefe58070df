"""Weights in the form that kernels want them in, made once and kept until the weights change.

Packing a weight costs as much as reading and writing it, in every call, although it rarely changes. A pattern
that packs one writes a function of the weight (and of sizes) and calls it through a method that ``ModelNew``
gets: ``self.packed(pack_function, self.linear.weight, *sizes)``. The result is made anew when the weight is
another object, lies elsewhere or has another version, so whatever PyTorch itself does to a weight is noticed:
loading, moving, a step of an optimizer, any operation in place. Only writes behind its back (``weight.data``,
a kernel that stores into it) are not, and the method says so.
"""

from __future__ import annotations

import re

KEEP = "self.packed"
"""How a part calls the method."""
_METHOD = '''    def {name}(self, pack, weight, *sizes):
        """What ``pack`` makes of a weight, kept until the weight changes.

        Loading, moving, a step of an optimizer and every other operation in place are noticed, by the
        weight's address and version. Only what is written through ``weight.data`` is not: clear
        ``{name}_weights`` after that.
        """
        if self.{name}_weights is None:
            self.{name}_weights = {{}}
        key, state = (pack, weight, *sizes), (weight.data_ptr(), weight._version)
        kept = self.{name}_weights.get(key)
        if kept is None or kept[0] != state:
            kept = state, pack(weight.detach(), *sizes)
            self.{name}_weights[key] = kept
        return kept[1]'''


_VERSIONS = '''    def {name}_versions(self):
        """Of the weights whose packed form the graph reads: it is recorded anew when one has changed."""
        return [weight._version for _, weight, *_ in self.{name}_weights or ()]'''
WANTED = "self.addresses()"
"""What recorded graphs are good for, as ``forward`` asks for it."""


def with_method(model: str, forward: list[str]) -> list[str]:
    """The lines of ``forward`` with the method before them, where they call it; ``model``: the class so far.

    Where launches are replayed, packing is no part of what was recorded. A weight that changes in its place
    must then be noticed beforehand, like one that lies elsewhere.
    """
    text = "\n".join(forward)
    if f"{KEEP}(" not in text:
        return forward
    name = "packed"
    while re.search(rf"\b{name}(_weights|_versions)?\b", model):
        name += "_"
    methods = [f"    {name}_weights = None", "", *_METHOD.format(name=name).split("\n"), ""]
    if WANTED in text:
        text = text.replace(WANTED, f"({WANTED}, self.{name}_versions())")
        methods += [*_VERSIONS.format(name=name).split("\n"), ""]
    elif "torch.cuda.graph(" in text:
        raise ValueError("launches are recorded, but not for weights as they are")
    return [*methods, *text.replace(f"{KEEP}(", f"self.{name}(").split("\n")]
