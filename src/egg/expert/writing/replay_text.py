"""The methods of a ``ModelNew`` that replays its launches as a CUDA graph.

A graph holds addresses, not values. Weights are read in place, and graphs are made anew when one of them lies
elsewhere or a shape is another. Callers hand over inputs in the same few places again and again, so a graph
is recorded for places that come a second time, and reads them there; inputs in other places are copied to
where one graph for all of them reads. Results are copied out at every call. The first call with given shapes
makes the launches one by one, which compiles every kernel; a recording runs nothing. So every call runs every
kernel once: statistics and counters move as they would without a graph.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from egg.expert.graph import Graph, Origin
from egg.expert.nesting import PLAIN, places, whole_text
from egg.expert.writing.breaking import LIMIT
from egg.expert.writing.constructor import Constructor
from egg.expert.writing.layout import laid_out
from egg.expert.writing.replay import constants_of

OWN_NAMES = ("launches", "recording", "addresses", "recorded_for", "recorded", "fixed_inputs", "met",
             "layers_with")  # fmt: skip
"""Attributes of the class; a task that has one of them itself is not replayed."""
MANY = 48
"""Tensors at ``self`` beyond which they are found layer by layer: ``parameters()`` walks a tree of
generators, a few microseconds for each."""


def fits(graph: Graph, built: Constructor) -> bool:
    """Whether ``forward`` takes the tensors of the graph, beside them only defaults (which the guard holds it
    to), and the names of the methods are free."""
    (forward,) = ast.parse(f"{built.forward} ...").body
    assert isinstance(forward, ast.FunctionDef)
    arguments = forward.args
    special = arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs
    taken = re.search(rf"\b({'|'.join(OWN_NAMES)})\w*\b", built.model)
    names = [argument.arg for argument in arguments.args[1:]]
    others = len(names) - len(graph.arguments)
    tensors = names[: len(graph.arguments)] == list(graph.arguments)
    return not special and taken is None and tensors and others <= len(arguments.defaults)


def replaying(graph: Graph, guard: Sequence[str], launches: Sequence[str], header: str) -> list[str]:
    """The class's attributes and methods: ``launches`` is the body of the plain ``forward``."""
    names = [str(name) for name in graph.arguments]
    given = ", ".join(names)
    inputs = f"({given},)" if len(names) == 1 else f"({given})"
    plain = laid_out(re.sub(r"\bforward\b", "launches", header, count=1), 4)
    many, addresses = _addresses(graph)
    kept = ["recorded_for", "recorded", *(["layers_with"] if many else []), "fixed_inputs", "met"]
    return [
        *(f"    {name} = None" for name in kept),
        "",
        *laid_out(header, 4),
        *_DOCSTRING.split("\n"),
        *guard,
        *_FORWARD.format(given=given, first=names[0], inputs=inputs).split("\n"),
        *laid_out(f"return {_clones(graph)}", 8),
        "",
        *_RECORDING.split("\n"),
        "",
        *addresses,
        "",
        *plain,
        *launches,
    ]


_DOCSTRING = '''\
        """The launches: one by one at first, then recorded as a CUDA graph and replayed.

        The graph is for these shapes, and for weights that stay where they are (new values count).
        It cannot be copied: to copy the module, load its state_dict into a new one.
        """'''
_FORWARD = """\
        if {first}.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return self.launches({given})
        inputs = [t if t.data_ptr() % 16 == 0 else t.clone() for t in {inputs}]
        wanted = [(t.shape, t.stride(), t.dtype, t.device) for t in inputs], self.addresses()
        if self.recorded_for != wanted:
            self.recorded_for, self.recorded, self.fixed_inputs = None, {{}}, None
            self.met = {{tuple(t.data_ptr() for t in inputs)}}
            results = self.launches(*inputs)  # compiles the kernels
            self.recorded_for = wanted
        else:
            graph, results = self.recording(inputs)
            graph.replay()"""

_RECORDING = '''\
    def recording(self, inputs):
        """A graph of the launches, and the results that it writes; nothing runs.

        It reads inputs where they lie once the same places come again, as with most callers they do.
        Others are copied to where one graph reads them.
        """
        places = tuple(t.data_ptr() for t in inputs)
        if places not in self.recorded and (places not in self.met or len(self.recorded) > 8):
            self.met = {*self.met, places} if len(self.met) < 64 else {places}
            places = None
            if self.fixed_inputs is None:
                self.fixed_inputs = [torch.empty_like(t) for t in inputs]
            for fixed, given in zip(self.fixed_inputs, inputs):
                fixed.copy_(given)
            inputs = self.fixed_inputs
        if places not in self.recorded:
            graph = torch.cuda.CUDAGraph()
            pool = next((known.pool() for known, _ in self.recorded.values()), None)
            with torch.cuda.graph(graph, pool=pool):
                self.recorded[places] = graph, self.launches(*inputs)
        return self.recorded[places]'''


# -- results -------------------------------------------------------------------------------------------


def _clones(graph: Graph) -> str:
    """New tensors in the form of the results: what the graph writes is overwritten by the next call."""
    if graph.form == "tensor":
        return "results.clone()"
    if graph.form not in PLAIN:
        at = places(graph.form, len(graph.results))
        return whole_text(graph.form, [f"results{place}.clone()" for place in at])
    each = "result.clone() for result in results"
    return f"[{each}]" if graph.form == "list" else f"tuple({each})"


# -- addresses -----------------------------------------------------------------------------------------


def _addresses(graph: Graph) -> tuple[bool, list[str]]:
    """Whether there are many tensors at ``self``, and the method that tells where they all lie."""
    held = [value.path for value in graph.values.values() if value.origin is Origin.PARAMETER]
    names = list(dict.fromkeys(path.rsplit(".", 1)[-1] for path in held))
    others = constants_of(graph)
    if len(held) <= MANY or not all(name.isidentifier() for name in names):
        tensors = ", ".join(("*self.parameters()", "*self.buffers()", *others))
        doc = "Where the weights lie: a graph is good for these places only."
        body = laid_out(f"return [tensor.data_ptr() for tensor in ({tensors})]", 8)
        return False, ["    def addresses(self):", f'        """{doc}"""', *body]
    kept = [
        line
        for n in names
        for line in _item(f'"{n}": [', f'm for m in layers if getattr(m, "{n}", None) is not None', "]", 16)
    ]
    places = [
        line
        for n in names
        for line in _item("*(", f'm.{n}.data_ptr() for m in self.layers_with["{n}"]', ")", 12)
    ]
    places += [f"            {other}.data_ptr()," for other in others]
    built = ["            self.layers_with = {", *kept, "            }"]
    return True, [*_MANY_HEAD.split("\n"), *built, "        return [", *places, "        ]"]


def _item(opening: str, inner: str, closing: str, indent: int) -> list[str]:
    """An item of a list, on one line where it fits."""
    line = f"{' ' * indent}{opening}{inner}{closing},"
    if len(line) <= LIMIT:
        return [line]
    return [f"{' ' * indent}{opening}", f"{' ' * (indent + 4)}{inner}", f"{' ' * indent}{closing},"]


_MANY_HEAD = '''\
    def addresses(self):
        """Where the weights of all layers lie: a graph is good for these places only.

        The layers are looked up once, for going through parameters() at every call would take as long
        as the kernels: a weight that is replaced is seen, a layer that is replaced is not.
        """
        if self.layers_with is None:
            layers = list(self.modules())'''
