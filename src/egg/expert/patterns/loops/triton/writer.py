"""One kernel of the loops pattern: where its programs are, the passes over its rows, and what it stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from egg.expert.emit.kernel import DeviceFunction, Kernel
from egg.expert.emit.reader import address, pointer_stem
from egg.expert.emit.triton.scalar import stored
from egg.expert.graph import Node, Value
from egg.expert.index import Index
from egg.expert.patterns.loops.domain import PICK
from egg.expert.patterns.loops.padding import padded_choices
from egg.expert.patterns.loops.rare import rare_choices
from egg.expert.patterns.loops.statistics import Statistic
from egg.expert.patterns.loops.triton import gathering
from egg.expert.patterns.loops.triton.choosing import chosen_rarely, loaded_where_chosen
from egg.expert.patterns.loops.triton.gathering import HELPERS, Tile
from egg.expert.patterns.loops.triton.hooks import hook_of
from egg.expert.patterns.loops.triton.selecting import FUNCTIONS, Order, selected
from egg.expert.patterns.loops.triton.state import State
from egg.expert.sizes import ONE


@dataclass
class Writer(State):
    """Writes one kernel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for anchor in self.work.anchors.splits:
            for which, name in enumerate(self.work.nodes[anchor].outputs):
                self.reader.hooks[name] = hook_of(self, anchor, which)
        for node, place in padded_choices(self.work.graph, self.work.group.nodes):
            self.reader.hooks[node.output] = partial(loaded_where_chosen, self.reader, node, place)
        for node in self.rare:
            self.reader.hooks[node.output] = partial(chosen_rarely, self.reader, node)
        self._position()

    @cached_property
    def rare(self) -> list[Node]:
        """Choices that are branches of the program."""
        return list(rare_choices(self.work.graph, self.work.group.nodes)) if self.form == "blocks" else []

    # -- where a program is ------------------------------------------------------------------------

    @property
    def along(self) -> str:
        """What stands behind a vector along the row so that it broadcasts."""
        return "[None, :]" if self.plan.rows else ""

    @cached_property
    def factors(self) -> list[tuple[str, str]]:
        """Coordinates of a program, slowest first, with how many there are; what is always 0 is left out."""
        domain, (outer, kept, reduced) = self.work.domain, self.work.domain.names
        found: list[tuple[str, str]] = []
        if domain.outer_size != ONE:
            found.append((outer, domain.outer_size.code()))
        if domain.kept_size != ONE:
            count = domain.kept_size.code()
            blocks = self.plan.rows or self.form == "strip"
            found.append((f"{kept}_block", f"tl.cdiv({count}, BLOCK_X)") if blocks else (kept, count))
        if self.form in ("blocks", "strip", "apply"):
            found.append((f"{reduced}_block", f"tl.cdiv({domain.reduced_size.code()}, BLOCK_R)"))
        elif self.form == "stretch":
            found.append(("split", "SPLITS"))
        return found

    def _position(self) -> None:
        body, domain, wide = self.body, self.work.domain, ".to(tl.int64)" if self.work.far else ""
        program = f"tl.program_id(0){wide}"
        if self.form == "apply":
            program = f"tl.num_programs(0) - 1 - {program}"
        factors = self.factors
        body.taken |= {name for name, _ in factors} | {"program"}
        if len(factors) == 1:
            body.line(f"{factors[0][0]} = {program}")
        elif factors:
            body.line(f"program = {program}")
            for place_, (name, count) in enumerate(factors):
                below = [_operand(c) for _, c in factors[place_ + 1 :]]
                text = (
                    "program"
                    if not below
                    else f"program // {below[0] if len(below) == 1 else '(' + ' * '.join(below) + ')'}"
                )
                body.line(f"{name} = {text}" + ("" if place_ == 0 else f" % {_operand(count)}"))
        _, kept, _ = domain.names
        if self.plan.rows:
            body.line(f"{kept} = ({kept}_block * BLOCK_X + tl.arange(0, BLOCK_X))[:, None]")
            if not self.plan.x_divides:
                self._mask(kept, f"{kept} < {domain.kept_size.code()}")
        self._columns()
        if domain.chosen is not None:
            count = domain.chosen.reduced_size
            body.line(f"{PICK} = {self._vector('tl.arange(0, PICKS)')}")
            if count.factors or count.number & (count.number - 1):
                self._mask(PICK, f"{PICK} < {count.code()}")

    def _columns(self) -> None:
        body, domain, reduced = self.body, self.work.domain, self.work.domain.names[2]
        size = domain.reduced_size.code()
        lanes = "tl.arange(0, BLOCK_R)" + (".to(tl.int64)" if self.work.far_along else "")
        match self.form:
            case "blocks" | "apply":
                body.line(f"{reduced} = {self._vector(f'{reduced}_block * BLOCK_R + tl.arange(0, BLOCK_R)')}")
            case "strip":
                at = f"{reduced}_block * BLOCK_R + tl.arange(0, BLOCK_R)"
                body.line(f"{reduced} = tl.minimum({at}, {size} - 1)")
                if domain.kept_size != ONE:
                    body.line(f"first = {domain.names[1]}_block * BLOCK_X")
                self.reader.outside |= {reduced, "first"}
            case "whole":
                body.line(f"{reduced} = {self._vector(lanes)}")
            case "looped" | "stretch":
                body.line(f"lane = {self._vector(lanes)}")
                if self.form == "stretch" and self.work.scans:
                    body.taken |= {"low", "high"}
                    share = f"tl.cdiv(tl.cdiv({size}, BLOCK_R), SPLITS) * BLOCK_R"
                    body.line(f"low = split * ({share})")
                    body.line(f"high = tl.minimum(low + {share}, {size})")
            case _:
                return
        if self.form in ("blocks", "whole", "apply"):
            self.reader.outside |= {reduced}
            if not self.plan.r_divides:
                self._mask(reduced, f"{reduced} < {size}")

    def _vector(self, text: str) -> str:
        if not self.plan.rows:
            return text
        return f"({text})[None, :]" if "+" in text else f"{text}[None, :]"

    def _mask(self, index: str, text: str) -> None:
        self.masks[index] = self.body.let(f"{index}_mask", text)

    # -- passes over a row -------------------------------------------------------------------------

    def at_once(self, statistics: Iterable[Statistic]) -> None:
        """Gather from registers."""
        for statistic in statistics:
            text, name = self._element(statistic), statistic.name
            position, tile = self.work.domain_of(name).names[2], self.tile_of(name)
            if statistic.kind == "selection":
                self.states[name] = selected(
                    Order(self.work.graph, statistic.node, self.body, tile, self.taken_tile, position), text
                )
            else:
                self.states[name] = gathering.at_once(
                    statistic, self.body, tile, text, position, self.length_of(name)
                )

    def looped(self, statistics: list[Statistic], stores: Iterable[str] = ()) -> None:
        """One pass over the row, or over this program's share of it: gather, and store what can be.

        Programs that share a row take its blocks in turn, so that at any time all of them read from one
        region of memory, as a plain copy would; for a scan they take one stretch each. A pass over what was
        read before goes backwards: the cache still holds the end of it.
        """
        reduced, size = self.work.domain.names[2], self.work.domain.reduced_size.code()
        low, end, step = "0", size, "BLOCK_R"
        if self.form == "stretch" and self.work.scans:
            low, end = "low", "high"
        elif self.form == "stretch":
            low, step = "split * BLOCK_R", "SPLITS * BLOCK_R"
        plain = Tile(self.plan.rows, folded=self.plan.folded, chunked=self.plan.lanes > 0)
        lanes = {s.name: gathering.start(s, self.body, plain, reduced) for s in statistics}
        scans = self.work.scans
        again = self.work.depth > 0 and not statistics  # what was read last is still in the cache
        backwards = any(node.get("reverse") for node in scans) if scans else again
        head = f"for start in range({low}, {end}, {step}):"
        if backwards:
            head = f"for block in range(tl.cdiv({size}, {step})):"
        self.body.taken |= {"start", "block"}
        with self.reader.loop(head):
            if backwards:
                moved = f" + {low}" if low != "0" else ""
                self.body.line(f"start = (tl.cdiv({size}, {step}) - 1 - block) * {_operand(step)}{moved}")
            self.body.line(f"{reduced} = start + lane")
            if not self.plan.r_divides or (backwards and low != "0"):
                self.body.line(f"{reduced}_mask = {reduced} < {size}")
                self.body.taken.add(f"{reduced}_mask")
                self.masks[reduced] = f"{reduced}_mask"
            for statistic in statistics:
                text = self._element(statistic)
                turn = f"start // {_operand(step)}"
                gathering.take(statistic, self.body, self.tile, lanes[statistic.name], text, reduced, turn)
            for name in stores:
                self.store(name)
        self.masks.pop(reduced, None)
        for statistic in statistics:
            left = f"{_operand(size)} - lane" if low == "0" else f"{_operand(size)} - {low} - lane"
            count = f"((tl.maximum({left}, 0) + {step} - 1) // {_operand(step)}).to(tl.float32)"
            if statistic.kind == "moments":
                count = self.body.let("count", f"tl.broadcast_to({count}, {plain.shape})")
            self.states[statistic.name] = gathering.joined(
                statistic, self.body, plain, lanes[statistic.name], count
            )

    def _element(self, statistic: Statistic) -> str:
        split = self.work.anchors.splits[statistic.name]
        domain, tile = self.work.domain_of(statistic.name), self.tile_of(statistic.name)
        text = self.reader.read(str(statistic.node.inputs[0]), domain.index(split))
        return (
            text
            if text.isidentifier()
            else self.body.let("v", text if "tl." in text else f"{text} + tl.zeros({tile.shape}, tl.float32)")
        )

    # -- partial states ----------------------------------------------------------------------------

    def leave(self, statistics: Iterable[Statistic]) -> None:
        """Store the joined states of this program's stretch, or of its row where it has all of it."""
        for statistic in statistics:
            whole = self.form != "stretch"
            for part, text in zip(statistic.parts, self.states[statistic.name], strict=True):
                if whole and part not in statistic.row_parts:
                    continue
                at = self._state_at(statistic, part, "" if whole else "split")
                self.body.line(f"tl.store({at}, {text}{self._row_mask()})")

    def recall(self, statistics: Iterable[Statistic]) -> None:
        """The states of whole rows, as a kernel before this one left them."""
        other = ", other=0" if self._row_mask() else ""
        for statistic in statistics:
            loaded = {
                part: self.body.let(
                    f"{statistic.stem}_{part}",
                    f"tl.load({self._state_at(statistic, part, '')}{self._row_mask()}{other})",
                )
                for part in statistic.row_parts
            }
            self.states[statistic.name] = tuple(loaded.get(part, "") for part in statistic.parts)

    def fetch(self, statistics: Iterable[Statistic]) -> None:
        """Join the partial states of a row."""
        statistics = list(statistics)
        if not statistics:
            return
        tile = Tile(self.plan.rows, "", "SPLITS")
        split = self.body.let("splits", self._vector("tl.arange(0, SPLITS)"))
        for statistic in statistics:
            state = []
            for part in statistic.parts:
                at = self._state_at(statistic, part, split)
                other = ", other=0" if self._row_mask() else ""
                state.append(
                    self.body.let(f"{statistic.stem}_{part}", f"tl.load({at}{self._row_mask()}{other})")
                )
            self.states[statistic.name] = gathering.joined(statistic, self.body, tile, tuple(state), state[0])

    def fetch_before(self, totals: Iterable[Statistic]) -> None:
        """Join the totals of the stretches before this program's."""
        splits = self.body.let("splits", self._vector("tl.arange(0, SPLITS)"))
        row = self.masks.get(self.work.domain.names[1])
        mask = f"({splits} < split) & {row}" if row else f"{splits} < split"
        for total in totals:
            (part,) = total.parts
            at, other = self._state_at(total, part, splits), gathering.neutral_of(total)
            text = f"tl.load({at}, mask={mask}, other={other})"
            state = self.body.let(f"{total.stem}_{part}", text)
            tile = Tile(self.plan.rows, "", "SPLITS")
            (self.before[total.name],) = gathering.joined(total, self.body, tile, (state,), state)

    def _state_at(self, statistic: Statistic, part: str, split: str) -> str:
        """Where a part of a row's state is: that of a stretch, or without ``split`` that of the row."""
        tensor = part_name(statistic, part) if split else row_name(statistic, part)
        pointer = self.parts.setdefault(tensor, "") or self.body.name(f"{tensor}_ptr")
        self.parts[tensor] = pointer
        place = self._place_of_part(split)
        return f"{pointer} + {place}" if place else pointer

    def _place_of_part(self, split: str) -> str:
        """Neighbours in memory are neighbours on the lanes: the parts of a row, or the rows of a part."""
        domain = self.work.domain
        if not domain.kept_flat.terms:
            return split
        row = _operand(domain.kept_flat.code())
        if not split:
            return row
        if domain.names[1] == "col":
            return f"{split} * {_operand((domain.outer_size * domain.kept_size).code())} + {row}"
        return f"{row} * SPLITS + {split}"

    def _row_mask(self) -> str:
        mask = self.masks.get(self.work.domain.names[1])
        return f", mask={mask}" if mask else ""

    # -- results -----------------------------------------------------------------------------------

    def load_kept(self) -> None:
        """Load what results keep, before the first branch: loads behind one wait for those before it."""
        for node in self.rare:
            if node.output in self.work.writes:
                old = self.work.graph.value(str(node.inputs[2]))
                self.reader.read(old.name, self.work.writes[node.output])

    def store_all(self, names: Iterable[str]) -> None:
        """All is loaded before anything is stored: a load behind a store waits for it, since the compiler
        does not know that they lie apart."""
        names = list(names)
        for name in names:
            if name not in self.work.scatters:
                self.reader.read(name, self.work.writes[name])
        for name in names:
            self.store(name)

    def store(self, name: str) -> None:
        """A result to its tensor, a new value to its buffer."""
        index = self.work.writes[name]
        if name in self.work.scatters:
            self._scatter(name, index)
            return
        text = self.reader.read(name, index)
        if name in self.work.updates:
            buffer = self.work.graph.value(self.work.updates[name])
            self._store(buffer, index, text, self.reader.pointer(buffer))
        if name in self.work.made:
            value = self.work.graph.value(name)
            self._store(value, index, text, self._out(value))

    def _store(self, value: Value, index: Index, text: str, pointer: str) -> None:
        at = address(value, index)
        masks = [self.masks[s] for s in sorted(at.symbols()) if s in self.masks]
        mask = f", mask={' & '.join(masks)}" if masks else ""
        where = pointer if not at.terms else f"{pointer} + {at}"
        self.body.line(f"tl.store({where}, {stored(text, value.dtype)}{mask})")

    def _scatter(self, name: str, index: Index) -> None:
        """Elements join what is at the places that they are for, in any order: programs may meet there."""
        node, value = self.work.scatters[name], self.work.graph.value(name)
        _, kept, reduced = self.work.domain.names
        axes = {kept, reduced} if self.work.is_full(name) else {kept}
        sizes = {kept: self.work.domain.kept_size, reduced: self.work.domain.reduced_size}
        if self.work.domain.chosen and PICK in frozenset[str]().union(*(at.symbols() for at in index)):
            axes, sizes[PICK] = {kept, PICK}, self.work.domain.chosen.reduced_size
        met = frozenset(axis for axis in axes & self.reader.axes if sizes[axis] != ONE)
        text, at, inside = self.reader.scattered(node, index, met)
        masks = [self.masks[axis] for axis in (kept, reduced, PICK) if axis in axes and axis in self.masks]
        masks += [inside] if inside else []
        mask = f", mask={' & '.join(masks)}" if masks else ""
        where = f"{self._out(value)} + {at}" if at.terms else self._out(value)
        given = f"{where}, {stored(text, value.dtype)}{mask}"
        if node["fn"] == "store":
            self.body.line(f"tl.store({given})")
        else:
            join = {"sum": "add"}.get(node["fn"], node["fn"])
            self.body.line(f'tl.atomic_{join}({given}, sem="relaxed")')

    def _out(self, value: Value) -> str:
        if value.name not in self.outs:
            self.outs[value.name] = self.body.name(f"{pointer_stem(value)}_ptr")
        return self.outs[value.name]

    # -- the text ----------------------------------------------------------------------------------

    def constants(self) -> tuple[str, ...]:
        return self.kernel.constants()

    def finished(self, doc: str, constants: Mapping[str, str]) -> Kernel:
        """The kernel; ``constants``: what the host calls those of the launch."""
        kernel = self.kernel
        kernel.doc = doc
        kernel.meta = {name: constants.get(name, "") for name in kernel.meta}
        kernel.add_pointers(self.reader.pointers)
        for tensor, pointer in {**self.outs, **self.parts}.items():
            kernel.results[pointer] = tensor
        return kernel

    def helpers(self) -> list[DeviceFunction]:
        """Functions that the lines call."""
        read = self.kernel.reads()
        known = {**HELPERS, **FUNCTIONS}
        return [DeviceFunction(name, source) for name, source in known.items() if name in read]

    def grid(self, constants: Mapping[str, str]) -> str:
        """How many programs, as ``forward`` says it."""
        texts = []
        for _, count in self.factors:
            text = count.replace("tl.cdiv", "triton.cdiv")
            for name, spelled in constants.items():
                text = re.sub(rf"\b{name}\b", spelled, text)
            texts.append(text if len(self.factors) == 1 else _operand(text))
        return " * ".join(texts) or "1"


def part_name(statistic: Statistic, part: str) -> str:
    return f"{statistic.name}_{part}"


def row_name(statistic: Statistic, part: str) -> str:
    """Of the tensor of whole rows' states."""
    return f"{part_name(statistic, part)}_of_row"


def _operand(text: str) -> str:
    return f"({text})" if " " in re.sub(r"\([^()]*\)", "", text) else text
