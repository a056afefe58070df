"""Convolutions that a library computes on the tensor cores, in the layout that it computes in.

A library's convolutions on the tensor cores run on tensors with the channels last: all of 16-bit operands,
and those of fp32 images that PyTorch computes in TF32. Handed anything else, it turns its operands around and
its result back, or takes a slower algorithm. So what such a convolution reads and makes lies with the
channels last, and so does whatever stands between two of them: norms, pointwise operators, pools and
concatenations follow. Arguments and results stay as the caller has them, and what reads
or makes one of those turns it on the way. A bias is added by what follows: the library would pass over the
whole result once more for it, at a fraction of the bandwidth.

With the channels last, a convolution of one tap is a product of the positions with the weight, which is what
one of 16-bit operands becomes wherever its operand and result lie so: the library's products are as fast, and
ours take along what follows. In fp32 it stays a convolution: PyTorch computes those in TF32 by default, and
products not. So does a 16-bit convolution whose windows do not overlap, transposed or not
(:mod:`egg.expert.algebra.disjoint`). One of one tap that stands apart from all others needs no other layout:
it is a product over the channels of each image (:mod:`egg.expert.algebra.across`). A convolution of an image
that was doubled before is computed on the image as it was (:mod:`egg.expert.algebra.upsampled`).

An argument that lies otherwise is turned by a kernel of ours, once for all that read it: PyTorch's copy
between the two layouts reads or writes single elements, at a fraction of the bandwidth. So is what views make
of a tensor, as a pixel shuffle, a channel shuffle or tokens put together to an image: the kernel that
computes the tensor stores it in that order, and no pass is left for the views.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from egg.expert.algebra.across import convolutions_across, is_aligned
from egg.expert.algebra.disjoint import blocks_as_products, is_disjoint
from egg.expert.algebra.upsampled import PHASES, by_phases
from egg.expert.emit.names import underscored
from egg.expert.graph import HALF, Graph, Node, Origin, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, as_size, product

FOLLOWING = frozenset({"pointwise", "where", "norm", "pool", "resample", "cat"})
"""Their results may lie as their operands do."""
MOST_DIMENSIONS = 5
IMAGES = 4
"""Dimensions of images with a batch and channels."""
FEW_CHANNELS = 8
"""Input channels up to which the library computes in fp32."""
LEAST_COPIED = 2**18
"""Elements of an operand from which on a kernel turns it: a smaller copy costs its launch either way."""
LEAST_PASSED = 2**20
"""Elements of a result from which on a kernel adds its bias, or turns it."""


def channels_last(graph: Graph, left: Callable[[str], bool], single: bool = True) -> Graph:
    """The same program with other layouts between its nodes; ``left``: whether the convolution that makes a
    value is computed by a library; ``single``: whether those of fp32 are laid out as well."""
    return _of_halves(_of_singles(graph, left) if single else graph, left)


def _of_halves(graph: Graph, left: Callable[[str], bool]) -> Graph:
    graph = by_phases(graph, left)
    every = {node.output for node in graph.nodes if node.op == "conv" and suits(graph, node)}
    called = {name for name in every if left(name) or PHASES in graph.producers[name].attributes}
    beside = _beside(graph, every) if called else set[str]()
    if beside:
        graph, every, called = convolutions_across(graph, beside), every - beside, called - beside
    if called:
        products = {name for name in every if _taps_once(graph, name) or _is_disjoint(graph, name)}
        graph = _laid_out(graph, called | products)
    lying = {name for name in every if _operands_lie_last(graph, graph.producers[name])}
    single = {name for name in lying if _taps_once(graph, name)}
    blocks = {
        name for name in lying - single if _is_disjoint(graph, name) and not _copied(graph, name, called)
    }
    graph = _with_passes(graph, called - single - blocks)
    graph = _as_products(graph, single) if single else graph
    return blocks_as_products(graph, blocks) if blocks else graph


def _of_singles(graph: Graph, left: Callable[[str], bool]) -> Graph:
    """With fp32 convolutions of images in that layout.

    Worth it are those that would turn around what the program itself makes (:func:`wants_last`). All others
    follow: such of one tap and of few channels, which gain nothing by themselves, and those that kernels of
    ours compute, which load and store by strides: behind something that lies so, or in front of it.
    """
    images = [node for node in graph.nodes if node.op == "conv" and _of_single_images(graph, node)]
    called = {node.output for node in images if left(node.output)}
    called -= _beside(graph, called)
    if not any(wants_last(graph, graph.producers[name]) for name in called):
        return graph
    own = [node for node in images if node.output not in called]
    suited, before = set(called), 0
    while len(suited) > before:
        before = len(suited)
        turned = _turned(graph, [graph.producers[name] for name in suited])
        suited |= {node.output for node in own if node.inputs[0] in turned or _meets(graph, node, turned)}
    return _with_passes(_laid_out(graph, suited, called), called)


def _meets(graph: Graph, node: Node, turned: Collection[str]) -> bool:
    """Whether what follows a convolution of ours lies with the channels last. It stores its tiles of channels
    by positions along either side, whatever its operand looks like; a stencil's have one side only, that of
    its operand."""
    met = {
        name for reader in graph.consumers[node.output] if reader.op in FOLLOWING for name in reader.outputs
    }
    return as_size(node["groups"]) == ONE and bool(met & set(turned))


def _of_single_images(graph: Graph, node: Node) -> bool:
    """Whether a convolution is one of fp32 images."""
    x, made = graph.value(str(node.inputs[0])), graph.value(node.outputs[0])
    return x.dtype == "float32" and x.rank == made.rank == IMAGES


def wants_last(graph: Graph, node: Node) -> bool:
    """Whether the library turns around what an fp32 convolution in TF32 reads: unless one tap makes a product
    over the channels of each image of it, with positions that such products can load."""
    x, weight = (graph.value(str(name)) for name in node.inputs[:2])
    single = all(size == ONE for size in (*weight.shape[2:], *map(as_size, node["stride"])))
    positions = product(x.shape[2:])
    in_place = positions.value == 1 or (single and is_aligned(positions, x.dtype))
    return rounds_as_laid(graph, node) and not in_place


def rounds_as_laid(graph: Graph, node: Node) -> bool:
    """Whether the library computes a convolution of fp32 images in TF32, and the program decides where these
    lie, or they have one position: then all layouts are the same."""
    x, weight = (graph.value(str(name)) for name in node.inputs[:2])
    rounds = as_size(node["groups"]) == ONE and weight.shape[1].value > FEW_CHANNELS
    laid = x.origin is Origin.NODE or product(x.shape[2:]).value == 1
    return rounds and laid and not node["transposed"] and _of_single_images(graph, node)


def _laid_out(graph: Graph, suited: Collection[str], copying: Collection[str] | None = None) -> Graph:
    """``copying``: the convolutions that need their operands so; all, unless they are named."""
    turned = _turned(graph, [graph.producers[name] for name in suited])
    values = {name: _laid(value) if name in turned else value for name, value in graph.values.items()}
    copying = suited if copying is None else copying
    return _operands_turned(replace(graph, values=values), copying, turned)


def _operands_turned(graph: Graph, suited: Collection[str], turned: Collection[str]) -> Graph:
    """Copies with the channels last of the arguments and views that convolutions read, for these and for what
    else reads them to make something that lies so."""
    read = dict.fromkeys(str(graph.producers[name].inputs[0]) for name in sorted(suited))
    copied = [name for name in read if _is_to_be_copied(graph, graph.value(name))]
    if not copied:
        return graph
    values, named, copies = dict(graph.values), dict[str, str](), dict[str, Node]()
    for source in copied:
        name = named[source] = underscored(f"{source}_last", values)
        values[name] = replace(_laid(graph.value(source)), name=name, origin=Origin.NODE, path="")
        copies[source] = Node("pointwise", (source,), (name,), {"fn": "cast", "scalars": ()}, "copy")
    nodes = [node for source, node in copies.items() if graph.value(source).origin is Origin.INPUT]
    for node in graph.nodes:
        follows = node.op in FOLLOWING and node.outputs[0] in turned
        if follows or (node.outputs and node.outputs[0] in suited):
            rank = graph.value(node.outputs[0]).rank
            inputs = (n if n is None or graph.value(n).rank < rank else named.get(n, n) for n in node.inputs)
            node = node.with_inputs(*inputs)
        nodes += [node, *(copies[name] for name in node.outputs if name in copies)]
    return graph.rebuilt(tuple(nodes), values)


def _is_to_be_copied(graph: Graph, value: Value) -> bool:
    """Whether it is an argument, or a view of something, that lies otherwise."""
    node = graph.producer(value.name)
    fixed = value.origin is Origin.INPUT if node is None else node.op == "view"
    positions = product(value.shape[2:]).value
    large = positions > 1 and value.shape[1].value > 1 and value.elements.value >= LEAST_COPIED
    return fixed and value.rank >= 4 and large and not lies_last(value)


def suits(graph: Graph, node: Node) -> bool:
    """Whether a convolution has operands of 16 bits and images for a result."""
    x, made = graph.value(str(node.inputs[0])), graph.value(node.outputs[0])
    images = x.rank == made.rank or PHASES in node.attributes
    return x.dtype in HALF and 3 <= x.rank <= MOST_DIMENSIONS and images


def last_stride(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """Strides of a dense tensor whose channels are the innermost dimension."""
    inner = contiguous_stride((shape[0], *shape[2:], shape[1]))
    return (inner[0], inner[-1], *inner[1:-1])


def _laid(value: Value) -> Value:
    return replace(value, stride=last_stride(value.shape))


# -- which values --------------------------------------------------------------------------------------


def _turned(graph: Graph, convolutions: Collection[Node]) -> set[str]:
    """Operands and results of the convolutions, and what is connected with them by operators that follow."""
    makers = {id(node) for node in convolutions}
    found: set[str] = set()
    waiting = [str(name) for node in convolutions for name in (node.inputs[0], node.outputs[0])]
    while waiting:
        name = waiting.pop()
        node = graph.producer(name)
        if name in found or node is None or not _free(graph, name):
            continue
        if node.op not in FOLLOWING and id(node) not in makers:
            continue
        found.add(name)
        shape = graph.value(name).shape
        if node.op in FOLLOWING:
            waiting += [str(n) for n in _images(graph, node, node.inputs) if _alike(graph, node, n, shape)]
        for reader in graph.consumers[name]:
            if reader.op in FOLLOWING:
                waiting += _images(graph, reader, reader.outputs[:1])
    return found


def _images(graph: Graph, node: Node, names: Collection[str | None]) -> list[str]:
    rank = max(graph.value(name).rank for name in node.outputs)
    return [name for name in names if name is not None and graph.value(name).rank == rank]


def _alike(graph: Graph, node: Node, name: str, shape: tuple[Size, ...]) -> bool:
    """Whether an operand is as large as the result, a piece of it, or what a pool or a resize reads."""
    return node.op in ("pool", "resample", "cat") or graph.value(name).shape == shape


def _free(graph: Graph, name: str) -> bool:
    """Whether the plan may choose where a value lies: one of the program's own, dense, with positions."""
    value = graph.value(name)
    dense = value.origin is Origin.NODE and value.rank >= 3 and value.contiguous and not value.lent
    return dense and name not in graph.results and product(value.shape[2:]).value > 1


# -- what a pass behind a convolution does -----------------------------------------------------------


def _with_passes(graph: Graph, convolutions: Collection[str]) -> Graph:
    """A bias as an addition of its own, and the turn of a result that the caller wants otherwise as a copy.

    What follows takes an addition along. Behind a convolution whose result is returned a pass of its own
    does both: it reads and writes at the memory's bandwidth, which PyTorch's pass for a bias and its copy
    between two layouts do not, and a recorded graph writes the result where the caller keeps it. A small
    result costs the launch either way.
    """
    values, nodes, renamed = dict(graph.values), list[Node](), dict[str, str]()
    for old in graph.nodes:
        node = old.with_inputs(*(None if name is None else renamed.get(name, name) for name in old.inputs))
        if node.op != "conv" or node.output not in convolutions or not _has_pass(graph, old):
            nodes.append(node)
            continue
        made = graph.result(node)
        values[made.name] = _laid(made) if _is_to_be_turned(graph, old) else made
        passed = underscored(f"{made.name}_{'biased' if _has_bias(node) else 'turned'}", values)
        values[passed] = replace(made, name=passed)
        renamed[made.name] = passed
        nodes += [node.with_inputs(*node.inputs[:2]), *_pass(graph, node, passed, values)]
    results = tuple(renamed.get(str(name), name) for name in graph.results)
    return replace(graph, nodes=tuple(nodes), values=values, results=results) if renamed else graph


def _pass(graph: Graph, node: Node, passed: str, values: dict[str, Value]) -> list[Node]:
    if not _has_bias(node):
        return [Node("pointwise", (node.output,), (passed,), {"fn": "cast", "scalars": ()}, "copy")]
    bias = graph.value(str(node.inputs[2]))
    spread = underscored(f"{node.output}_bias", values)
    shape = (*bias.shape, *(Size(1) for _ in graph.result(node).shape[2:]))
    values[spread] = Value(spread, shape, bias.dtype, contiguous_stride(shape))
    return [
        Node("view", (bias.name,), (spread,), {"how": "reshape"}, "reshape"),
        Node("pointwise", (node.output, spread), (passed,), {"fn": "add", "scalars": ()}, "add"),
    ]


def _has_pass(graph: Graph, node: Node) -> bool:
    if node.output not in graph.results:
        return _has_bias(node)
    large = graph.result(node).elements.value >= LEAST_PASSED
    return large and (_has_bias(node) or _is_to_be_turned(graph, node))


def _has_bias(node: Node) -> bool:
    return len(node.inputs) > 2 and node.inputs[2] is not None


def _is_to_be_turned(graph: Graph, node: Node) -> bool:
    """Whether the library makes a result with the channels last that is returned otherwise."""
    x, made = graph.value(str(node.inputs[0])), graph.result(node)
    return made.name in graph.results and made.contiguous and not x.contiguous and not lies_last(made)


# -- one tap -------------------------------------------------------------------------------------------


def _taps_once(graph: Graph, name: str) -> bool:
    """Whether every position of a convolution's result depends on one position of the operand."""
    node = graph.producers[name]
    x, weight, made = (graph.value(str(name)) for name in (*node.inputs[:2], node.outputs[0]))
    steps = (*node["stride"], *node["dilation"], node["groups"])
    plain = not node["transposed"] and all(as_size(step) == ONE for step in steps)
    still = all(as_size(size) == as_size(0) for size in node["padding"])
    images = PHASES not in node.attributes and x.shape[2:] == made.shape[2:]
    held = weight.origin is Origin.PARAMETER
    return plain and still and images and held and all(size == ONE for size in weight.shape[2:])


def _beside(graph: Graph, suited: Collection[str]) -> set[str]:
    """Convolutions of one tap whose operands and results lie with contiguous positions, and with which no
    convolution is connected that wants its channels last."""
    convolutions = {node.output for node in graph.nodes if node.op == "conv"}
    found = {name for name in suited if _taps_once(graph, name) and _lies_first(graph, name)}
    while True:
        others = [graph.producers[name] for name in convolutions - found]
        touched = _turned(graph, others) | {str(node.inputs[0]) for node in others}
        apart = {name for name in found if not {name, graph.producers[name].inputs[0]} & touched}
        if apart == found:
            return found
        found = apart


def _lies_first(graph: Graph, name: str) -> bool:
    """Whether a convolution's operand and result are contiguous, with positions that a product can load."""
    x, made = graph.value(str(graph.producers[name].inputs[0])), graph.value(name)
    return x.contiguous and made.contiguous and is_aligned(product(x.shape[2:]), x.dtype)


def _is_disjoint(graph: Graph, name: str) -> bool:
    node = graph.producers[name]
    return PHASES not in node.attributes and is_disjoint(graph, node)


def _copied(graph: Graph, name: str, called: Collection[str]) -> bool:
    """Whether the library's product would need a copy of the operand's blocks, which its convolution reads in
    place."""
    return name in called and not graph.producers[name]["transposed"]


def _operands_lie_last(graph: Graph, node: Node) -> bool:
    """Whether a convolution's operand and result have the channels last."""
    return all(lies_last(graph.value(str(name))) for name in (node.inputs[0], node.outputs[0]))


def lies_last(value: Value) -> bool:
    """Whether a value is dense with its channels innermost."""
    wanted = zip(value.shape, value.stride, last_stride(value.shape), strict=True)
    return all(size == ONE or step == other for size, step, other in wanted)


def _as_products(graph: Graph, convolutions: Collection[str]) -> Graph:
    """Positions times the weight, between views that move nothing."""
    values, nodes = dict(graph.values), list[Node]()

    def view(source: str, shape: tuple[Size, ...], name: str, **how: object) -> str:
        """A dense value of that shape."""
        name = underscored(name, values)
        values[name] = Value(name, shape, values[source].dtype, contiguous_stride(shape))
        nodes.append(Node("view", (source,), (name,), how, str(how["how"])))
        return name

    for node in graph.nodes:
        if not node.outputs or node.outputs[0] not in convolutions:
            nodes.append(node)
            continue
        x, weight, made = (graph.value(str(name)) for name in (*node.inputs[:2], node.outputs[0]))
        positions = (x.shape[0], *x.shape[2:])
        rows, (outputs, inputs) = product(positions), weight.shape[:2]
        inner = (0, *range(2, x.rank), 1)
        last = view(x.name, (*positions, inputs), f"{made.name}_last", how="permute", dims=inner)
        left = view(last, (rows, inputs), f"{made.name}_rows", how="reshape")
        matrix = view(weight.name, (outputs, inputs), f"{made.name}_matrix", how="reshape")
        right = view(matrix, (inputs, outputs), f"{made.name}_weight", how="permute", dims=(1, 0))
        values[right] = replace(values[right], stride=(ONE, inputs))
        times = underscored(f"{made.name}_product", values)
        values[times] = Value(times, (rows, outputs), made.dtype, contiguous_stride((rows, outputs)))
        bias = [name for name in node.inputs[2:3] if name is not None]
        nodes.append(Node("matmul", (left, right, *bias), (times,), {}, node.label))
        spread = view(times, (*positions, outputs), f"{made.name}_images", how="reshape")
        back = (0, made.rank - 1, *range(1, made.rank - 1))
        nodes.append(Node("view", (spread,), (made.name,), {"how": "permute", "dims": back}, "permute"))
    return graph.rebuilt(tuple(nodes), values)
