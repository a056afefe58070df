"""What keeps a kernel file to its domain: a question at the top of ``forward``, and answers behind it.

A call is known by its signature: shapes and dtypes of its tensors, the modes that decide what the program
computes, and values that are no tensors. One look into a set admits a signature that was met before; at any
other, ``admit`` compares everything with the domain, the module's own tensors included, and raises or
remembers. The set is bounded, and empty again as soon as weights may be others (``to``, ``load_state_dict``).
Devices are no part of the signature: where a module goes to another, ``to`` has emptied the set, and Triton
refuses a tensor that its GPU cannot read.

Layouts are no part of the signature either: every layout is brought into the one that kernels read. Where the
reference's results follow the layout of an input, those of a call in another layout are brought into it.

Under grad mode results are tied to whatever they were computed from by a function whose ``backward`` raises:
a gradient is refused, never lost.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from egg.core.domain import Format, Mode, Output, ValueInput
from egg.expert.emit.names import words
from egg.expert.graph import Graph, Origin, Value
from egg.expert.nesting import PLAIN, names_in_form, places, whole_text
from egg.expert.parts import spelled
from egg.expert.reading.held import held_sizes, input_values, rules
from egg.expert.reading.held import reach as reached
from egg.expert.reading.rows import attribute_text, dimension_text
from egg.expert.sizes import Size
from egg.expert.writing.breaking import LIMIT
from egg.expert.writing.domain import follows_inputs, written_inputs
from egg.expert.writing.guard_table import weight_tables
from egg.expert.writing.guard_text import (
    DEFINITIONS,
    FOLLOWING,
    FORGETTING,
    IN_CONTAINERS,
    IN_NAMED,
    REACHING,
    REMEMBERED,
    TENSORS_IN,
    TYING,
    TYING_NESTED,
    Names,
)
from egg.expert.writing.layout import laid_out
from egg.expert.writing.literals import TEXT, TYPE, differs, literal_text
from egg.expert.writing.parameters import Parameters

FEW = 2
"""Modules whose mode is asked one by one; more are kept in a list."""
KEPT = 256
"""Signatures that are remembered."""


@dataclass(frozen=True)
class Guard:
    """Writes the guard of one file."""

    graph: Graph
    header: str
    """``def forward(self, x):``"""
    names: Names
    counts: tuple[str, ...] = ()
    """Numbers of elements that offsets of the kernels must reach."""

    # -- forward -------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """What stands at the top of ``forward``."""
        n = self.names
        seen = list(self._signature())
        text = [
            *self._given.unpacking(n.outside),
            *self._absent(),
            f"{n.seen} = ({', '.join(seen)}{',' if len(seen) == 1 else ''})",
            f"if {n.seen} not in self.{n.admitted} or torch.is_autocast_enabled():",
            f"    self.{n.admit}({', '.join((n.seen, *self._given.whole))})",
            "if torch.is_grad_enabled():",
            f"    return {n.forward_only}({', '.join(('self', *self._given.whole_call))})",
            *self._other_layouts(),
        ]
        return laid_out("\n".join(text), 8)

    def _absent(self) -> Iterator[str]:
        """A tensor that was left out has no shape to ask for; :func:`admit` raises and names it."""
        tensors = [value.path for value in input_values(self.graph)]
        given = self._given
        asked = [name for place, name in enumerate(tensors) if place or name in given.optional]
        conditions = [f"{name} is None" for name in asked if name not in given.rest]
        if len(conditions) < len(asked):
            conditions.append(f"any(argument is None for argument in {given.star})")
        if conditions:
            yield f"if {' or '.join(conditions)}:"
            yield f"    self.{self.names.admit}({', '.join(('None', *self._given.whole))})"

    def _other_layouts(self) -> Iterator[str]:
        """Where results follow the layout of an input: a call with gaps or in another order goes through
        contiguous copies, and its results into the layout that the reference's have. The question takes the
        place of a request for contiguous memory, so a contiguous call pays nothing for it."""
        n, tensors = self.names, [value.path for value in input_values(self.graph)]
        if not follows_inputs(self.graph):
            return
        asked = " and ".join(f"{name}.is_contiguous()" for name in tensors)
        asked = asked if len(tensors) == 1 else f"({asked})"
        if len(asked) > LIMIT - len("if not :") - 8:
            asked = f"all([{', '.join(f'{name}.is_contiguous()' for name in tensors)}])"
        handed = self._given.handed({name: f"{name}.contiguous()" for name in tensors})
        call = f"self.forward({', '.join(handed)})"
        yield f"if not {asked}:"
        if self.graph.form == "tensor":
            yield f"    return {self._followed(self.graph.usage.outputs[0], call)}"
            return
        yield f"    {n.results} = {call}"
        outputs = self.graph.usage.outputs
        at = places(self.graph.form, len(outputs))
        texts = [self._followed(output, n.results + place) for output, place in zip(outputs, at, strict=True)]
        yield f"    return {whole_text(self.graph.form, texts)}"

    def _followed(self, output: Output, result: str) -> str:
        match output.format:
            case Format.PRESERVED:
                return f"{self.names.laid_out_as}({output.input}, {result})"
            case Format.CHANNELS_LAST:
                return f"{self.names.channels_last_as}({output.input}, {result})"
        return result

    def _signature(self) -> Iterator[str]:
        graph, usage = self.graph, self.graph.usage
        for value in input_values(graph):
            yield from (f"{value.path}.shape", f"{value.path}.dtype")
            if value.name in written_inputs(graph):
                yield f"{value.path}.is_contiguous()"
        for given in usage.values:
            yield from self._of_value(given)
        if self._many:
            yield f"*self.{self.names.modes}()"
        else:
            yield from self._modes()

    def _of_value(self, given: ValueInput) -> Iterator[str]:
        """A value is compared with care by ``admit``; here it must only never be taken for another."""
        if given.free:
            yield f"type({given.name})"
        elif given.value is None or isinstance(given.value, bool):
            yield f"{given.name} is {given.value}"
        elif isinstance(given.value, list) or str(given.value).startswith((TEXT, TYPE)):
            yield f"repr({given.name})"
        else:
            yield from (f"type({given.name})", given.name)

    @property
    def _layers(self) -> tuple[str, ...]:
        """Paths of the layers whose mode the program was captured in and is right in alone."""
        usage = self.graph.usage
        return (*usage.modal, *usage.frozen) if len(usage.modes) == 1 else ()

    def _modes(self) -> Iterator[str]:
        for path in self._layers:
            yield f"{attribute_text(path)}.training" if path else "self.training"

    @property
    def _device(self) -> str | None:
        given = input_values(self.graph)
        return f"{given[0].path}.device" if given else None

    @property
    def _given(self) -> Parameters:
        return Parameters.of(self.graph, self.header)

    # -- the class -----------------------------------------------------------------------------------

    def attributes(self) -> list[str]:
        """Class attributes: what an instance starts with."""
        lines = [f"    {self.names.admitted} = frozenset()"]
        if self._many:
            lines.append(f"    {self.names.modal} = None")
        return lines

    @property
    def _many(self) -> bool:
        return len(self._layers) > FEW

    def methods(self) -> list[str]:
        n = self.names
        lines = laid_out(f"def {n.admit}(self, {', '.join((n.seen, *self._given.names))}):", 4)
        lines += [
            f'        """Raise for a call outside {n.domain}; remember the signature of one inside."""',
            *laid_out("\n".join(self._checks()), 8),
            *REMEMBERED.format(admitted=n.admitted, kept=KEPT, seen=n.seen).split("\n"),
        ]
        if self._many:
            lines += ["", *self._mode_method()]
        return [*lines, "", *FORGETTING.format(admitted=n.admitted).split("\n")]

    def _mode_method(self) -> list[str]:
        n = self.names
        listed = ", ".join(map(literal_text, self._layers))
        return [
            f"    def {n.modes}(self):",
            '        """Whether each layer that computes otherwise in the other mode is in training."""',
            f"        if self.{n.modal} is None:",
            *laid_out(f"self.{n.modal} = [self.get_submodule(path) for path in ({listed})]", 12),
            f"        return [layer.training for layer in self.{n.modal}]",
        ]

    def _checks(self) -> Iterator[str]:
        n, tensors = self.names, input_values(self.graph)
        yield from self._value_checks()
        if tensors:
            yield f"{n.check_inputs}({', '.join(f'{value.path}={value.path}' for value in tensors)})"
        yield "if torch.is_autocast_enabled():"
        yield f'    raise {n.outside}("autocast is enabled", "the dtypes they are given")'
        yield from self._mode_checks()
        yield from self._sizes()
        yield from self._reach()
        for value in tensors:
            if not self._bound(value):
                yield f'{n.check_shape}("{value.path}", {value.path}, {_tuple(value.shape)})'
            if value.name in written_inputs(self.graph):
                yield f"if not {value.path}.is_contiguous():"
                wanted = "a contiguous one there, which they write into"
                yield f'    raise {n.outside}("{value.path} has gaps", "{wanted}")'
        yield from self._held()

    def _value_checks(self) -> Iterator[str]:
        n = self.names
        for given in self.graph.usage.values:
            shown = f'f"{given.name} is {{{given.name}!r}}"'
            if given.free:
                yield f"if isinstance({given.name}, bool) or not isinstance({given.name}, (int, float)):"
                yield f'    raise {n.outside}({shown}, "a number")'
                continue
            yield f"if isinstance({given.name}, torch.Tensor) or {differs(given.name, given.value)}:"
            yield f"    raise {n.outside}({shown}, {literal_text(literal_text(given.value))})"

    def _mode_checks(self) -> Iterator[str]:
        usage, layers = self.graph.usage, self._layers
        if not layers:
            return
        mode = usage.modes[0]
        other = Mode.EVAL if mode is Mode.TRAIN else Mode.TRAIN
        training = mode is Mode.TRAIN
        asked = f"self.{self.names.modes}()" if self._many else f"[{', '.join(self._modes())}]"
        if usage.frozen:
            captured = f"[{training}] * {len(usage.modal)} + [{not training}] * {len(usage.frozen)}"
            yield f"if {asked} != {captured}:"
            yield f'    raise {self.names.outside}("a layer is in another mode", "modes as constructed")'
            return
        yield f"if not all({asked}):" if training else f"if any({asked}):"
        yield f'    raise {self.names.outside}("a layer is in {other.value} mode", "{mode.value} mode")'

    def _sizes(self) -> Iterator[str]:
        """The sizes that shapes are made of, and that those which the caller chose are large enough.

        A size that a parameter has is read there, so that an input is compared with the module.
        """
        graph, texts = self.graph, self._texts()
        values = [v for v in graph.values.values() if v.origin is not Origin.NODE]
        values += [graph.value(name) for name in _flat(graph.results)]
        needed = {s.name for v in values for size in (*v.shape, *v.stride) for s in size.factors}
        needed |= {name for count in self.counts for name in words(count)}
        exact = {name: parts for name, parts in graph.exact.items() if name in texts}
        needed |= {word for name, parts in exact.items() for text in (name, *parts) for word in words(text)}
        computed = self._computed_too(texts)
        needed |= {word for name, text in computed.items() for word in (name, *words(text))}
        needed |= {word for pair in graph.within for text in pair for word in words(text)}
        needed |= self._of_several(texts)
        held = held_sizes(graph)
        asked = [name for name in graph.symbols if name in needed and name not in held]
        for name in reversed(list(texts)):
            if name in needed:
                needed |= words(texts[name])
        yield from (f"{name} = {text}" for name, text in texts.items() if name in needed and name != text)
        if asked:
            yield f"{self.names.check_sizes}({', '.join(f'{name}={name}' for name in asked)})"
        for name, text in computed.items():
            yield f"if {name} != {text}:"
            yield f'    raise {self.names.outside}(f"{name} is {{{name}}}", f"{{{text}}}, {text}")'
        for whole, times in exact.values():
            shown = f'f"{whole} is {{{whole}}}"'
            yield f"if ({whole}) % ({times}):"
            yield f'    raise {self.names.outside}({shown}, f"a multiple of {{{times}}}")'
        for reach, whole in graph.within:
            yield f"if {reach} > {whole}:"
            yield f'    raise {self.names.outside}(f"{reach} is {{{reach}}}", f"at most {{{whole}}}")'

    def _computed_too(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Sizes that a parameter has and an operator computes from those of inputs: both must agree."""
        graph, computed = self.graph, rules(self.graph)
        return {
            name: text
            for name, text in computed.items()
            if text != graph.symbols[name] and texts[name] != text and words(text) <= computed.keys()
        }

    def _of_several(self, texts: Mapping[str, str]) -> set[str]:
        """Computed sizes that may be too small though no single size of the caller is."""
        shapes = (value.shape for value in self.graph.values.values())
        shown = {symbol.name for shape in shapes for size in shape for symbol in size.factors}
        computed = [name for name in shown & texts.keys() if re.search(r" - | // ", texts[name])]
        roots = {
            name: [n for n in reached(texts, name) if ".shape[" in texts.get(n, "")] for name in computed
        }
        return {name for name in computed if len(roots[name]) > 1}

    def _reach(self) -> Iterator[str]:
        """Sizes may be as large as 32 bits count."""
        if self.counts:
            yield f"{self.names.check_reach}({', '.join(self.counts)})"

    def _texts(self) -> dict[str, str]:
        """How each size is found."""
        texts = dict(rules(self.graph))
        for value in self.graph.values.values():
            if value.origin is Origin.PARAMETER:
                for dim, size in enumerate(value.shape):
                    name = size.code()
                    if name in texts and "self." not in texts[name]:
                        texts[name] = dimension_text(value, dim)
        return texts

    def _bound(self, value: Value) -> bool:
        """Whether a shape needs no check: each of its sizes is read from it."""
        texts = self._texts()
        found = [texts.get(size.code()) for size in value.shape]
        return found == [dimension_text(value, dim) for dim in range(value.rank)]

    def _held(self) -> Iterator[str]:
        """The module's own tensors: shapes, dtypes, device, and that they are contiguous where they were."""
        n, graph = self.names, self.graph
        rows: dict[str, list[str]] = {}
        for value in graph.values.values():
            if value.origin is Origin.PARAMETER:
                rows.setdefault(_laid(value), []).append(value.path)
        if rows:
            yield f"{n.held} = {{**dict(self.named_parameters()), **dict(self.named_buffers())}}"
        device = self._device or f"next(iter({n.held}.values())).device"
        check = f"{n.check_weights}({n.held}, {{paths}}, {device}, {{dtype}}, {{shape}})"
        tables, rows = weight_tables(
            rows, check, frozenset({*graph.symbols, *self._given.names, *vars(n).values()})
        )
        yield from tables
        for laid, paths in rows.items():
            call = f"{n.check_weights}({n.held}, {literal_text(' '.join(paths))}, {device}, {laid})"
            yield call if len(call) <= LIMIT - 8 else self._wide(paths, device, laid)
        for value in graph.values.values():
            if value.origin is Origin.CONSTANT:
                given = f"{{{literal_text(value.path)}: {spelled(graph, value.name)}}}"
                place = f"{spelled(graph, value.name)}.device"
                yield f"{n.check_weights}({given}, {literal_text(value.path)}, {place}, {_laid(value)})"

    def _wide(self, paths: Sequence[str], device: str, laid: str) -> str:
        """The names in a text of several lines."""
        names = textwrap.wrap(" ".join(paths), LIMIT - 12, break_long_words=False, break_on_hyphens=False)
        dtype, _, shape = laid.partition(", ")
        shapes = [f"    {text}," for text in shape.replace("), (", ")|(").split("|")]
        lines = [f"{self.names.check_weights}(", f"    {self.names.held},", '    """']
        lines += [*(f"    {line}" for line in names), '    """,', f"    {device},", f"    {dtype},"]
        return "\n".join([*lines, *shapes, ")"])

    # -- module level --------------------------------------------------------------------------------

    def definitions(self) -> list[list[str]]:
        """Functions and the class that the methods use."""
        found = {output.format for output in self.graph.usage.outputs if follows_inputs(self.graph)}
        tying = TYING if self.graph.form in PLAIN else TYING_NESTED
        texts = [text for text in DEFINITIONS if self.counts or text is not REACHING]
        texts = [tying if text is TYING else text for text in texts]
        if names_in_form(self.graph.form, len(self.graph.results)):
            texts = [text.replace(*IN_NAMED) for text in texts]
        if self.graph.containers:
            texts = [TENSORS_IN, *(text.replace(*IN_CONTAINERS) for text in texts)]
        texts += [text for form, text in FOLLOWING.items() if form in found]
        return [text.format(**vars(self.names)).split("\n") for text in texts]


def _laid(value: Value) -> str:
    """Dtype, shape, and strides where it is not contiguous."""
    stride = "" if value.contiguous else f", {_tuple(value.stride)}"
    return f"torch.{value.dtype}, {_tuple(value.shape)}{stride}"


def _tuple(sizes: Sequence[Size]) -> str:
    texts = [size.code() for size in sizes]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _flat(results: Iterable[object]) -> Iterator[str]:
    for result in results:
        if isinstance(result, str):
            yield result
        elif isinstance(result, list | tuple):
            yield from _flat(result)
