"""The commands a worker obeys, one method each.

``warm`` readies the device before there is a candidate, ``canary`` proves that it works;
``fence`` arranges fenced memory and says what was noticed there;
``attach`` opens the oracle's memory, ``detach`` leaves a second one;
``load`` imports the candidate and builds ``ModelNew``;
``weights`` loads parameters and ``state`` copies them out; ``contenders`` loads other files beside it;
``forward``, ``recheck``, ``calls`` and ``time`` run it, ``gradients`` goes back as well;
``excerpt`` runs some programs of launches that are too long;
``fresh`` starts over with a new instance; ``configure`` says what autotuners take;
``capture`` compiles it for a GPU that is not there; ``watch`` notes what it launches; ``kernels`` describes
what either of them found; ``profile`` asks PyTorch's profiler.
``pattern`` and ``compile_pattern`` try a file that holds a whole pattern, program and kernels, instead.
"""

from __future__ import annotations

import contextlib
import linecache
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from egg.core.policy import Precision
from egg.evaluator.interpreter import undefined
from egg.evaluator.interpreter.session import by_lot, propagated
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.operators.sketches import Sketcher
from egg.evaluator.restrict.integrity import Snapshot
from egg.evaluator.task.gradients import differentiated
from egg.evaluator.task.program import HALF_DTYPES, precision_scope
from egg.evaluator.tensors import memory
from egg.evaluator.timing import stopwatch
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import exchange, freshen
from egg.evaluator.transport.arena import Slot
from egg.evaluator.worker import contenders, customops, faults, pretend
from egg.evaluator.worker import fence as fences
from egg.evaluator.worker.fence import Arrangement
from egg.evaluator.worker.held import parameters_of, state_of
from egg.evaluator.worker.hostreads import HostReads, recorded
from egg.evaluator.worker.importing import import_candidate
from egg.evaluator.worker.inputs import Inputs
from egg.evaluator.worker.instance import Instance
from egg.evaluator.worker.launches import (
    MOST_DESCRIBED,
    InterpretedLaunches,
    JitLaunches,
    described_launches,
)
from egg.evaluator.worker.outputs import aliases, copy_out, kind_of, leaves_of, shared_storages
from egg.evaluator.worker.settings import checked
from egg.evaluator.worker.threads import ThreadWatch

if TYPE_CHECKING:
    pass


class Session(Instance):
    """One candidate process, as the oracle commands it."""

    def serve(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Obey one command; what the candidate raises is answered as a fault.

        With ``keep_cache`` what PyTorch cached stays where it is: the next turn under the clock shall
        not begin with allocations.
        """
        arguments = {k: v for k, v in request.items() if k not in ("id", "command", "keep_cache")}
        if fds:
            arguments["fds"] = fds
        try:
            reply = getattr(self, f"on_{request['command']}")(**arguments) or {}
            if self._fence is not None:
                self._fence.sweep()
            elif self._arena is not None and not request.get("keep_cache"):
                memory.give_back_cache(self._device)
            return reply
        except BaseException as error:
            if self._fence is not None and self._fence.failed:
                return {"fault": {"reason": "limits.memory", "evidence": self._fence.failed}}
            return {"fault": faults.describe(error)}

    def on_warm(
        self, device: str, watch: bool, memory_fraction: float | None = None, fence: bool = False
    ) -> None:
        """Touch the device and set up the watch over launches, before there is a candidate."""
        self._device = torch.device(device)
        customops.install(direct=self._device.type != "cuda")
        if watch:
            interpreted = os.environ.get("TRITON_INTERPRET") == "1"
            self._launches = InterpretedLaunches() if interpreted else JitLaunches()
            self._threads = ThreadWatch()
        if self._device.type == "cuda":
            if fence:
                self._fence, self._unfenced = fences.raised(self._device)
            torch.cuda.set_device(self._device)
            torch.cuda.synchronize(self._device)
            if memory_fraction is not None and self._fence is None:
                torch.cuda.set_per_process_memory_fraction(memory_fraction, self._device)
            torch.zeros(1, device=self._device).add_(1).item()

    def on_fence(self, arrangement: str) -> dict[str, Any]:
        """Lay everything that comes in another way; inputs are made anew, and so must the instance be."""
        if self._fence is None:
            return {"unavailable": self._unfenced, "failed": "", "damaged": []}
        self._fence.sweep()
        self._fence.arrangement = Arrangement(arrangement)
        self._kept, self._held = [], []
        if self._arena is not None:
            self._inputs = Inputs(self._arena, self._device)
        return self._fence.report()

    def on_canary(self) -> dict[str, Any]:
        """Prove that this machine still runs a kernel and gets it right."""
        from egg.evaluator.worker.canary import increments

        return {"healthy": increments(self._device)}

    def on_attach(self, handle: dict[str, Any], fds: list[int] | None = None, second: bool = False) -> None:
        if second and self._arena is not None and self._inputs is not None:
            self._main = (self._arena, self._inputs)
        self._arena = arenas.attach(handle, fds or [])
        self._inputs = Inputs(self._arena, self._device)

    def on_detach(self) -> None:
        """Back from a second memory; weights that lay there are not loaded again."""
        assert self._arena is not None
        assert self._main is not None
        self._kept, self._held, self._loaded = [], [], None
        self._arena.close()
        (self._arena, self._inputs), self._main = self._main, None

    def on_load(
        self,
        source: str,
        init: str,
        seed: int,
        precision: str,
        target: dict[str, Any] | None = None,
        build: bool = True,
        restricted: bool = False,
    ) -> dict[str, Any]:
        """Import the candidate and build ``ModelNew`` as KernelBench builds it.

        Without ``build`` both are left to the capture: a file may ask for the GPU when it is imported.
        """
        if target is not None and os.environ.get("TRITON_INTERPRET") == "1":
            pretend.answer_for(GpuTarget(**target))
            self._pretence = pretend.ClaimCuda()
        self._restricted = restricted
        self._init = exchange.unwhole(init)
        policy = Precision(precision)
        precision_scope(policy).__enter__()  # for the rest of this process's life
        self._dtype = HALF_DTYPES.get(policy)
        imported: list[Any] = []

        def construct(candidate: Any) -> nn.Module:
            args, kwargs = self._init
            torch.manual_seed(seed)
            with torch.no_grad():
                return candidate.ModelNew(*args, **kwargs)

        def make() -> nn.Module:
            if not imported:
                imported.append(import_candidate(source, restricted=restricted))
            return self._settled(construct(imported[0]))

        self._make, self._construct = make, construct
        self._before_import = Snapshot()
        return self.on_fresh() if build else {"state": {}, "parameters": []}

    def on_integrity(self) -> dict[str, Any]:
        """Name what the candidate patched in this process, if anything."""
        return {"changed": self._before_import.changed() if self._before_import is not None else []}

    def on_contenders(
        self, sources: list[str | None], inputs: str, slots: list[Any], seed: int, threads: int
    ) -> dict[str, Any]:
        """Load other files beside the candidate, with its weights, and let all of them run once."""
        module = self._module
        assert module is not None
        state = state_of(module)
        weights = {name: state[name] for name in (self._loaded[0] if self._loaded else ())}
        arguments = self._arguments(inputs, slots)
        torch.manual_seed(seed)
        builders = [
            partial(self._contender, source, number, weights) if source is not None else None
            for number, source in enumerate(sources)
        ]
        (_, *self._contenders), (_, *unfit) = contenders.loaded(
            [lambda: module, *builders], partial(self._call_here, arguments), threads
        )
        self._synchronize()
        self._give_back(slots)
        return {"unfit": unfit}

    def _contender(self, source: str, number: int, weights: dict[str, Any]) -> nn.Module:
        assert self._construct is not None
        module = import_candidate(source, f"contender_{number}", restricted=self._restricted)
        return contenders.sharing(weights, partial(self._construct, module), self._settled)

    def on_fresh(self, init: str | None = None, precision: str | None = None) -> dict[str, Any]:
        """A new instance, as if the process had just started, with the weights last loaded.

        Or with other arguments, or in another dtype: then with the weights that it makes itself.
        """
        assert self._make is not None
        self._kept, self._held, self._module = [], [], None
        usual = (self._init, self._dtype)
        if init is not None or precision is not None:
            self._loaded = None
            self._init = exchange.unwhole(init) if init is not None else self._init
            self._dtype = HALF_DTYPES.get(Precision(precision)) if precision is not None else self._dtype
        try:
            self._module = self._make()
        finally:
            self._init, self._dtype = usual
        state = state_of(self._module)
        if self._loaded is not None:
            self.on_weights(*self._loaded)
        described = {name: {"shape": list(t.shape), "dtype": str(t.dtype)} for name, t in state.items()}
        return {"state": described, "parameters": list(parameters_of(self._module))}

    def on_weights(self, names: dict[str, str], slots: dict[str, Any]) -> None:
        """Load weights the way a user would: ``load_state_dict``, so that hooks and versions see it."""
        assert self._module is not None
        self._loaded = (names, slots)
        state = {own: self._view(slots[theirs]).clone() for own, theirs in names.items()}
        self._module.load_state_dict(state, strict=False)

    def on_state(self, names: dict[str, str], slots: dict[str, Any]) -> None:
        """Copy the module's own parameters and buffers out, for comparison."""
        assert self._module is not None
        state = state_of(self._module)
        for own, theirs in names.items():
            self._view(slots[theirs]).copy_(state[own])
        self._synchronize()

    def on_forward(
        self,
        inputs: str,
        slots: list[Any],
        outputs: list[Any],
        seed: int,
        traced: bool = False,
        poison: bool = True,
        skip: list[str] | None = None,
        keep: bool = False,
        training: bool | None = None,
        propagate: bool = False,
        native: bool = False,
        lot: int | None = None,
        sketch: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One forward; its outputs are described, and copied where they fit.

        Every operator of PyTorch that it runs is recorded, and every value that the host reads. While it is
        traced, memory it allocates holds NaN (``poison``) or zeros: a file that tells by what lies in fresh
        memory whether it is watched is wrong about one of the two. ``native``: what the language leaves
        undefined is answered as by the CPU that ran the reference.
        """
        assert self._launches is not None
        assert self._module is not None
        if training is not None:
            self._module.train(training)
        self._launches.reset()
        self._launches.skip(set(skip or ()))
        arguments = self._arguments(inputs, slots)
        launches = self._launches
        filled = (arenas.poison if poison else torch.Tensor.zero_) if traced else None
        recorder = Recorder(
            fill_empties=filled,
            sketcher=Sketcher(**sketch) if sketch is not None else None,
            given=arguments,
            launched=lambda: sum(launches.counts().values()),
        )
        torch.manual_seed(seed)
        extremes = propagated() if propagate else contextlib.nullcontext()
        drawn = by_lot(lot) if lot is not None else contextlib.nullcontext()
        answers = undefined.native() if native else contextlib.nullcontext()
        try:
            with extremes, drawn, answers, recorder, HostReads() as reads:
                result = self._call_checked(arguments)
            self._synchronize()
        finally:
            self._launches.skip(set())
        self._give_back(slots)
        leaves = leaves_of(result)
        if keep:
            self._kept = leaves
        described = self._deliver(leaves, outputs)
        return {
            "outputs": described,
            "aliases": aliases(leaves, arguments, self._module),
            "launched": self._launches.work(),
            **recorded(recorder, reads, launches),
            "threads": self._threads.started if self._threads else 0,
            "sketches": [found.to_json() for found in recorder.sketches],
            "moved": [found.to_json() for found in recorder.moved_sketches],
        }

    def on_excerpt(
        self, inputs: str, slots: list[Any], outputs: list[Any], masks: list[Any], seed: int
    ) -> dict[str, Any]:
        """One forward in which long launches run some of their programs; what those wrote is marked."""
        from egg.evaluator.worker import excerpt

        assert isinstance(self._launches, InterpretedLaunches)
        arguments = self._arguments(inputs, slots)
        torch.manual_seed(seed)
        reply, leaves = excerpt.run(self._launches, lambda: self._call(arguments))
        if leaves is None:
            return reply
        self._lay(excerpt.marks(leaves, reply.pop("partial")), masks)
        return reply | {"outputs": self._deliver(leaves, outputs)}

    def on_asked(self) -> dict[str, Any]:
        """With which numbers kernels were launched so far, in the interpreter."""
        launches = self._launches
        return {"asked": launches.asked() if isinstance(launches, InterpretedLaunches) else []}

    def on_configure(self, place: int) -> dict[str, Any]:
        """Which of its configurations every autotuner is to take; on a GPU it measures and takes its own."""
        launches = self._launches
        return launches.configure(place) if isinstance(launches, InterpretedLaunches) else {"most": 1}

    def on_gradients(
        self, inputs: str, slots: list[Any], gradients: dict[str, Any], seed: int
    ) -> dict[str, Any]:
        """Forward and backward under grad mode; gradients are copied where they belong."""
        assert self._module is not None
        arguments = self._arguments(inputs, slots)
        torch.manual_seed(seed)
        with self._pretence:
            found = differentiated(self._module, arguments, seed, checked(self._module))
        self._synchronize()
        for name, gradient in found.gradients.items():
            if name in gradients:
                self._lay([(name, gradient)], [gradients[name]])
        self._synchronize()
        given = [name for name, value in found.gradients.items() if value is not None]
        return {"requires": list(found.requires), "error": found.error[:600], "given": given}

    def on_recheck(self, outputs: list[Any]) -> dict[str, Any]:
        """Copy out again the outputs that an earlier ``forward`` was told to keep, for the last time."""
        kept, self._kept = self._kept, []
        return {"outputs": self._deliver(kept, outputs)}

    def on_held(self, number: int, outputs: list[Any]) -> dict[str, Any]:
        """Copy out again what call ``number`` of those with ``keep`` returned."""
        return {"outputs": self._deliver(self._held[number], outputs)}

    def on_drop(self) -> dict[str, Any]:
        """Let go of everything held, and say which of it shared its memory."""
        held, self._held = self._held, []
        within = ((number, aliases(leaves, [], None)) for number, leaves in enumerate(held))
        return {"shared": shared_storages(held), "within": [[n, pairs] for n, pairs in within if pairs]}

    def on_calls(
        self, sets: list[Any], moves: list[Any], reserve: list[Any], seeds: list[int], keep: int = 0
    ) -> None:
        """One call per entry of ``moves``, rotating over the sets; every output is delivered.

        Those of the first ``keep`` calls are held as well, as a caller may hold them.
        """
        prepared = [self._arguments(s["inputs"], s["slots"]) for s in sets]
        destinations = [[o and self._view(o) for o in s["outputs"]] for s in sets]
        before = self._before(sets, moves, reserve, seeds)
        for call in range(len(moves)):
            before(call)
            result = self._call(prepared[call % len(sets)])
            copy_out(result, destinations[call % len(sets)])
            if call < keep:
                self._held.append(leaves_of(result))
            del result
        self._synchronize()
        for given in sets:
            self._give_back(given["slots"])

    def on_time(
        self,
        sets: list[Any],
        moves: list[Any],
        recheck: int,
        outputs: list[Any],
        reserve: list[Any],
        seeds: list[int],
        contender: int | None = None,
    ) -> dict[str, Any]:
        """Time one call per entry of ``moves``, rotating over the sets; deliver the output of one of them.

        It is delivered right behind its call, which spares a copy that would lie there until the end.
        """
        module = self._module if contender is None else self._contenders[contender]
        prepared = [self._arguments(s["inputs"], s["slots"]) for s in sets]
        milliseconds, _ = stopwatch.time_calls(
            lambda call: self._call(prepared[call % len(prepared)], module),
            len(moves),
            self._device,
            before=self._before(sets, moves, reserve, seeds),
            keep=recheck,
            copied=lambda result: self._lay(leaves_of(result), outputs),
        )
        self._synchronize()
        for given in sets:
            self._give_back(given["slots"])
        return {"milliseconds": milliseconds}

    def _before(
        self, sets: list[Any], moves: list[Any], reserve: list[Any], seeds: list[int]
    ) -> Callable[[int], None]:
        """What precedes each call: its inputs get new values out of the reserve, and the generator a seed.

        The moves go through views of their own, whose version counters the candidate's
        tensors do not share: nothing about a tensor tells that it is being timed.
        """
        assert self._inputs is not None
        inputs = self._inputs
        tensors = [[inputs.alias(Slot.from_json(slot)) for slot in s["slots"]] for s in sets]
        spare = [[inputs.near(Slot.from_json(slot)) for slot in slots] for slots in reserve]
        torch.manual_seed(seeds[0] if seeds else 0)

        def before(call: int) -> None:
            freshen.apply(tensors[call % len(tensors)], spare, moves[call])
            if seeds:
                torch.manual_seed(seeds[call])

        return before

    def on_observe(
        self, sets: list[Any], moves: list[Any], reserve: list[Any], seeds: list[int]
    ) -> dict[str, Any]:
        """The calls of a timing session once more, in the same process, each recorded."""
        assert self._launches is not None
        launches = self._launches
        prepared = [self._arguments(s["inputs"], s["slots"]) for s in sets]
        before = self._before(sets, moves, reserve, seeds)
        seen: list[dict[str, Any]] = []
        for call in range(len(moves)):
            before(call)
            launches.reset()
            arguments = prepared[call % len(sets)]
            recorder = Recorder(launched=lambda: sum(launches.counts().values()), given=arguments)
            with recorder, HostReads() as reads:
                result = self._call(arguments)
            kinds = [kind_of(leaf) for _, leaf in leaves_of(result) if isinstance(leaf, torch.Tensor)]
            seen.append(recorded(recorder, reads, launches) | {"kinds": kinds})
            del result
        self._synchronize()
        for given in sets:
            self._give_back(given["slots"])
        return {"calls": seen}

    def on_watch(self, inputs: str, slots: list[Any], seed: int) -> None:
        """Note every kernel that one warm call launches.

        A call that replays a CUDA graph launches none itself: then a new instance is watched.
        """
        launches = self._launches
        if not isinstance(launches, JitLaunches):
            return
        with launches.watching() as watched:
            for attempt in range(2):
                if attempt:
                    self.on_fresh()
                torch.manual_seed(seed)
                self._call(self._arguments(inputs, slots))
                self._synchronize()
                if watched:
                    break
        self._watched = watched

    def on_kernels(self, every: bool = False) -> dict[str, Any]:
        """Resources and work of the kernels that were noted or captured; the GPU is not needed for it."""
        watched, self._watched = self._watched, []
        return described_launches(watched, len(watched) if every else MOST_DESCRIBED)

    def on_profile(self, inputs: str, slots: list[Any], seed: int) -> dict[str, Any]:
        """Device time by kernel name and the streams used, over one warm call."""
        arguments = self._arguments(inputs, slots)
        torch.manual_seed(seed)
        return stopwatch.profile_call(lambda: self._call(arguments), self._device)

    def on_capture(
        self,
        inputs: str,
        specs: list[Any],
        target: dict[str, Any],
        example: str | None = None,
        init: str | None = None,
    ) -> dict[str, Any]:
        """Run the forward at full size on fake tensors and compile every launch for ``target``.

        Where its host code needs values, first on ``example``, with the module built as ``init`` says.
        """
        from egg.evaluator.worker.precompile import precompile

        assert self._make is not None
        self._device = torch.device("cuda")
        small = None if init is None else partial(self._made_otherwise, exchange.unwhole(init))
        reply, self._watched = precompile(self._make, inputs, specs, target, example, small)
        return reply

    def on_follow(self, inputs: str, specs: list[Any], target: dict[str, Any], init: str) -> dict[str, Any]:
        """Run the forward on fake tensors of another size and say what it launches; nothing is compiled."""
        from egg.evaluator.worker.precompile import followed

        self._device = torch.device("cuda")
        return followed(partial(self._made_otherwise, exchange.unwhole(init)), inputs, specs, target)

    def _made_otherwise(self, init: Any) -> nn.Module:
        assert self._make is not None
        usual, self._init = self._init, init
        try:
            return self._make()
        finally:
            self._init = usual

    def on_pattern(self, source: str, target: dict[str, Any] | None) -> dict[str, Any]:
        """Interpret a pattern, as if ``target`` were there, and hold it to its own reference."""
        from egg.evaluator.worker import pattern

        launches = self._launches
        assert launches is not None
        if target is not None:
            pretend.answer_for(GpuTarget(**target))
        linecache.clearcache()  # another pattern may have been read from the same file
        with pretend.ClaimCuda() if target is not None else contextlib.nullcontext():
            return pattern.answered(lambda: pattern.run(import_candidate(source), launches))

    def on_compile_pattern(self, source: str, target: dict[str, Any]) -> dict[str, Any]:
        """Compile a pattern's kernels for ``target``."""
        from egg.evaluator.worker import pattern

        linecache.clearcache()
        return pattern.answered(
            lambda: pattern.compiled(lambda: import_candidate(source), GpuTarget(**target))
        )
