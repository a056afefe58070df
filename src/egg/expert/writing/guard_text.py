"""The guard's own functions, class and methods, as a file has them, and what they are called there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from egg.core.domain import NAME, Format
from egg.expert.emit.names import underscored
from egg.expert.graph import Graph
from egg.expert.writing.constructor import Constructor

CALLS = "CALLS"
"""What a file with containers among its arguments calls its domain: :data:`egg.core.domain.NAME` speaks of
arguments that are tensors or numbers themselves."""


@dataclass(frozen=True)
class Names:
    """What the guard's own things are called in a file, where nothing else has the name."""

    domain: str = NAME
    outside: str = "outside"
    check_inputs: str = "check_inputs"
    check_sizes: str = "check_sizes"
    check_shape: str = "check_shape"
    check_reach: str = "check_reach"
    check_weights: str = "check_weights"
    function: str = "ForwardOnly"
    forward_only: str = "forward_only"
    tied: str = "tied"
    admit: str = "admit"
    admitted: str = "admitted"
    modes: str = "modes"
    modal: str = "modal_layers"
    seen: str = "seen"
    held: str = "held"
    results: str = "results"
    laid_out_as: str = "laid_out_as"
    channels_last_as: str = "channels_last_as"
    tensors_in: str = "tensors_in"

    @classmethod
    def free(cls, graph: Graph, built: Constructor, functions: Iterable[str]) -> Names:
        """Those names, each with underscores behind it where values, sizes or the task have it already."""
        texts = "\n".join((*built.definitions, built.model, built.forward))
        own = vars(cls(domain=CALLS if graph.containers else NAME))
        taken = {*graph.values, *graph.symbols, *built.names, *functions, *re.findall(r"[A-Za-z_]\w*", texts)}
        found: dict[str, str] = {}
        for name, wanted in own.items():
            found[name] = wanted if name == "domain" else underscored(wanted, taken)
        return cls(**found)


REMEMBERED = """\
        if not 0 < len(self.{admitted}) < {kept}:
            self.{admitted} = set()
        self.{admitted}.add({seen})"""

FORGETTING = '''\
    def _apply(self, *arguments, **options):
        """``to``, ``half``, ``cuda``: the weights are to be looked at again."""
        self.{admitted} = frozenset()
        return super()._apply(*arguments, **options)

    def _load_from_state_dict(self, *arguments, **options):
        """``load_state_dict``, which may assign other tensors."""
        self.{admitted} = frozenset()
        return super()._load_from_state_dict(*arguments, **options)'''

REACHING = '''\
def {check_reach}(*counts):
    """Raise where a tensor has more elements than the 32-bit offsets of the kernels reach."""
    if max(counts) >= 2**31 - 2**24:
        raise {outside}(f"a tensor has {{max(counts)}} elements", "fewer than 2**31 - 2**24")'''

_FORWARD_ONLY = '''\
def {forward_only}(module, *inputs, **options):
    """What forward computes; where it depends on something that requires a gradient, tied to that."""
    with torch.no_grad():
        results = module.forward(*inputs, **options)
    given = [t for t in (*inputs, *options.values()) if isinstance(t, torch.Tensor)]
    sources = [t for t in (*given, *module.parameters()) if t.requires_grad]
    if not sources:
        return results
'''

IN_NAMED = (
    "return type(results)({tied}(result, sources) for result in results)",
    """held = [{tied}(result, sources) for result in results]
    return type(results)(held) if type(results) in (list, tuple) else type(results)(*held)""",
)
"""In a file that returns named tuples: what is replaced, and by what."""
_ALL_GIVEN = "[t for t in (*inputs, *options.values()) if isinstance(t, torch.Tensor)]"
IN_CONTAINERS = (_ALL_GIVEN, "{tensors_in}([*inputs, *options.values()])")
"""In a file that takes containers: what is replaced, and by what."""
TENSORS_IN = '''\
def {tensors_in}(value):
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in held for tensor in {tensors_in}(item)]'''

TYING = (
    _FORWARD_ONLY
    + """\
    if isinstance(results, torch.Tensor):
        return {function}.apply(results, *sources) if results.is_floating_point() else results
    tied = (
        {function}.apply(result, *sources) if result.is_floating_point() else result
        for result in results
    )
    return type(results)(tied)"""
)

TYING_NESTED = (
    _FORWARD_ONLY
    + '''\
    return {tied}(results, sources)


def {tied}(results, sources):
    """Results in the form they have, every floating one of them tied to the sources."""
    if isinstance(results, torch.Tensor):
        return {function}.apply(results, *sources) if results.is_floating_point() else results
    if isinstance(results, dict):
        return {{key: {tied}(result, sources) for key, result in results.items()}}
    return type(results)({tied}(result, sources) for result in results)'''
)
"""The same for results in a dictionary, or nested."""

DEFINITIONS = (
    '''\
def {outside}(given, wanted):
    """The error for what these kernels are not written for."""
    advice = "use the original module for anything else"
    return ValueError(f"{{given}}, and these kernels are for {{wanted}}: {{advice}}")''',
    '''\
def {check_inputs}(**inputs):
    """Raise where arguments are not tensors of the dtypes and ranks in {domain}, on one device."""
    for name, tensor in inputs.items():
        stated = {domain}["inputs"][name]
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{{name}} is {{tensor!r}}, and these kernels are for a tensor there")
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in stated["dtypes"]:
            raise {outside}(f"{{name}} is {{dtype}}", " or ".join(stated["dtypes"]))
        if tensor.dim() != len(stated["shape"]):
            raise {outside}(f"{{name}} has {{tensor.dim()}} dimensions", f"the shape {{stated['shape']}}")
    if len({{tensor.device for tensor in inputs.values()}}) > 1:
        raise {outside}("the inputs are on several devices", "one")''',
    '''\
def {check_sizes}(**sizes):
    """Raise where a size is smaller than {domain} says, or nothing is left of it."""
    for name, size in sizes.items():
        least = {domain}["sizes"].get(name, {{}}).get("least", 1)
        if size < least:
            raise {outside}(f"{{name}} is {{size}}", f"{{least}} or more")''',
    '''\
def {check_shape}(name, tensor, shape):
    """Raise where a tensor has another shape than the sizes of the call make it."""
    if tuple(tensor.shape) != shape:
        stated = {domain}["inputs"].get(name, {{}}).get("shape", "")
        given = f"{{name}} has the shape {{tuple(tensor.shape)}}"
        raise {outside}(given, f"{{shape}} {{stated}}".rstrip())''',
    REACHING,
    '''\
def {check_weights}(held, names, device, dtype, shape, stride=None):
    """Raise where weights are not as the kernels read them; contiguous, where no stride is given."""
    for name in names.split():
        tensor, found = held[name], held[name].stride()
        {check_shape}(name, tensor, shape)
        if tensor.dtype != dtype or tensor.device != device:
            given = f"{{name}} is {{tensor.dtype}} on {{tensor.device}}"
            raise {outside}(given, f"{{dtype}} on {{device}}")
        if stride is None and not tensor.is_contiguous():
            raise {outside}(f"{{name}} has the strides {{found}}", "contiguous weights")
        if stride and any(n > 1 and a != b for n, a, b in zip(shape, found, stride)):
            raise {outside}(f"{{name}} has the strides {{found}}", f"the strides {{stride}}")''',
    '''\
class {function}(torch.autograd.Function):
    """Ties a result to what it was computed from, so that a gradient is refused and not lost."""

    @staticmethod
    def forward(ctx, result, *sources):
        return result.detach()

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError("these kernels compute forward only: train with the original module")''',
    TYING,
)

FOLLOWING = {
    Format.PRESERVED: '''\
def {laid_out_as}(given, result):
    """A result in the memory layout of an input: its strides in their order, without gaps."""
    return torch.empty_like(given, dtype=result.dtype).copy_(result)''',
    Format.CHANNELS_LAST: '''\
def {channels_last_as}(given, result):
    """A result as convolutions and pools of PyTorch leave it: channels-last where the input is."""
    layout = {{4: torch.channels_last, 5: torch.channels_last_3d}}[given.dim()]
    followed = given.is_contiguous(memory_format=layout)
    return result.contiguous(memory_format=layout) if followed else result''',
}
"""Functions of a file whose results follow the layout of an input."""
