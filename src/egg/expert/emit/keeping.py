"""What a module keeps between calls: weights in the form that kernels want them in, and listed numbers.

Packing a weight costs as much as reading and writing it, in every call, although it rarely changes. A pattern
that packs one writes a function of the weight (and of sizes) and calls it through a method that ``ModelNew``
gets: ``self.packed(pack_function, self.linear.weight, *sizes)``. The result is made anew when the weight is
another object, lies elsewhere or has another version, so whatever PyTorch itself does to a weight is noticed:
loading, moving, a step of an optimizer, any operation in place. Only writes behind its back (``weight.data``,
a kernel that stores into it) are not, and the method says so.

Numbers that the program lists (``torch.tensor([...])``) depend on nothing: ``self.made_once(make_function,
device)`` makes them in the first call on a device. Copying them from the host in every call costs more than a
kernel, and cannot be recorded in a CUDA graph.
"""

from __future__ import annotations

import re

KEEP = "self.packed"
"""How a part calls the method."""
MAKE_ONCE = "self.made_once"
"""How a part calls the method for tensors of plain numbers."""
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
_ONCE = '''    def {name}(self, make, device):
        """The tensor that ``make`` makes on a device: it depends on nothing else, and is kept."""
        if self.{name}_tensors is None:
            self.{name}_tensors = {{}}
        kept = self.{name}_tensors.get((make, device))
        if kept is None:
            kept = self.{name}_tensors[make, device] = make(device)
        return kept'''
WANTED = "self.addresses()"
"""What recorded graphs are good for, as ``forward`` asks for it."""


def with_method(model: str, forward: list[str]) -> list[str]:
    """The lines of ``forward`` with the methods before them that they call; ``model``: the class so far."""
    return _making(model, _packing(model, forward))


def _unused(name: str, endings: str, model: str) -> str:
    """A name that the class does not have, neither alone nor with one of the endings."""
    while re.search(rf"\b{name}({endings})?\b", model):
        name += "_"
    return name


def _making(model: str, forward: list[str]) -> list[str]:
    """With the method for tensors of plain numbers."""
    text = "\n".join(forward)
    if f"{MAKE_ONCE}(" not in text:
        return forward
    name = _unused("made_once", "_tensors", model)
    method = [f"    {name}_tensors = None", "", *_ONCE.format(name=name).split("\n"), ""]
    return [*method, *text.replace(f"{MAKE_ONCE}(", f"self.{name}(").split("\n")]


def _packing(model: str, forward: list[str]) -> list[str]:
    """With the method for packed weights.

    Where launches are replayed, packing is no part of what was recorded. A weight that changes in its place
    must then be noticed beforehand, like one that lies elsewhere.
    """
    text = "\n".join(forward)
    if f"{KEEP}(" not in text:
        return forward
    name = _unused("packed", "_weights|_versions", model)
    methods = [f"    {name}_weights = None", "", *_METHOD.format(name=name).split("\n"), ""]
    if WANTED in text:
        text = text.replace(WANTED, f"({WANTED}, self.{name}_versions())")
        methods += [*_VERSIONS.format(name=name).split("\n"), ""]
    elif "torch.cuda.graph(" in text:
        raise ValueError("launches are recorded, but not for weights as they are")
    return [*methods, *text.replace(f"{KEEP}(", f"self.{name}(").split("\n")]
