"""A domain in one line for a person."""

from __future__ import annotations

from collections.abc import Iterator

from egg.core.domain import Domain, Format, Gradients, Layout, Output, Size, TensorInput


def words_of(domain: Domain) -> str:
    """One line for a person: ``any batch_size; hidden as constructed; x in float32, any layout``."""
    return "; ".join(_clauses(domain))


def _clauses(domain: Domain) -> Iterator[str]:
    free = [size for size in domain.sizes if not size.module]
    if free:
        yield "any " + ", ".join(size.name + _bound(size) for size in free)
    if held := [size.name for size in domain.sizes if size.module]:
        yield f"{', '.join(held)} as constructed"
    for given in domain.inputs:
        if isinstance(given, TensorInput):
            numbers = [f"{n} in dimension {at}" for at, n in enumerate(given.shape) if isinstance(n, int)]
            fixed = f", {', '.join(numbers)} only" if numbers else ""
            yield f"{given.name} in {' or '.join(given.dtypes)}, {_layout(given.layout)}{fixed}"
        elif not given.free:
            yield f"{given.name} = {given.value!r} only"
    for argument in domain.arguments:
        if not argument.free:
            yield f"{argument.name} = {argument.value!r} only"
    if len(domain.modes) == 1:
        yield f"{domain.modes[0].value} mode only"
    yield from dict.fromkeys(filter(None, map(_output, domain.outputs)))
    if domain.elements:
        yield "fewer than 2**31 - 2**24 elements in a tensor"
    yield "forward only" if domain.gradients is Gradients.NONE else "forward and backward"


def _bound(size: Size) -> str:
    return "" if (size.least, size.multiple) == (1, 1) else f" ({size.rule})"


def _layout(layout: Layout) -> str:
    return {
        Layout.ANY: "contiguous or not",
        Layout.CONTIGUOUS: "contiguous only",
        Layout.CHANNELS_LAST: "channels-last only",
    }[layout]


def _output(output: Output) -> str:
    return {
        Format.FIXED: "",
        Format.PRESERVED: f"output laid out as {output.input}",
        Format.CHANNELS_LAST: f"output channels-last where {output.input} is",
        Format.UNSTATED: "output in one layout whatever the inputs' is",
    }[output.format]
