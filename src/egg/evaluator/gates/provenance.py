"""Provenance: own kernels really ran, their result is used, and libraries did not do all the work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

import torch

from egg.core.evaluation import Provenance
from egg.core.policy import LibraryCalls
from egg.evaluator.gates import borrowed, contributed
from egg.evaluator.gates.counted import Counted, counted, may_pick, picks
from egg.evaluator.operators.lossy import Lossy
from egg.evaluator.operators.ops import TRUNCATION, Recorder
from egg.evaluator.operators.sketches import Sketch, Sketcher, explains
from egg.evaluator.operators.spent import Work
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.transport import protocol
from egg.evaluator.trial.levels import Profile
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial
from egg.evaluator.trial.watch import FIG_LEAF, Effected, Watch, listed

KERNELS_SECONDS = 60.0
MOST_UNCHANGED = 0.5
"""Of the answer's elements, without own kernels."""
HALF = 0.5
MOST_TIMED = 48
"""Kernels and operators whose times are kept, and characters of the name of one."""
LONGEST_NAME = 120
LEAST_SHARE = 0.005
"""Of the GPU time: a fused tail behind a library's product takes several times that."""


def run(trial: Trial) -> Notes:
    trial.connection.other_weights()  # a branch behind a gate that is zero as built is looked at too
    case = trial.reference.case("provenance", golden=False)
    trial.buffers.place(case)
    first = trial.ask(case, options=protocol.Options(traced=True, sketch=_sketch_terms(trial, case)))
    trial.checks.check_form(case, first.outputs)
    normal = [answer.clone() for answer in _answers(trial, case, first)]
    library = bool(first.record.ops) and trial.policy.library_calls is not LibraryCalls.FORBID
    wanted = borrowed.wanted_runs(case, normal, trial.sketch_seed) if library else ()
    terms = replace(_sketch_terms(trial, case), runs=wanted)
    second = trial.ask(
        case, options=protocol.Options(traced=True, poison=False, sketch=terms if wanted else None)
    )
    launches = second.record.launches or first.record.launches
    if not launches:
        raise Refused(
            "provenance.no_kernel", "no Triton kernel was launched during forward",
            "the work must be done by the file's own kernels",
        )  # fmt: skip
    if second.threads:
        raise Refused(
            "provenance.thread", f"{second.threads} threads were started: what they compute is not seen",
            "compute in the calling thread, on the current stream",
        )  # fmt: skip
    library = dict(Counter(second.record.ops) | Counter(first.record.ops))
    reference = counted(trial, case, _sketcher(trial, case))
    if trial.policy.library_calls is LibraryCalls.FORBID and may_pick(reference, first.record):
        reference = replace(reference, effects=replace(reference.effects, picks=picks(trial, case)))
    trial.watch = watch = _watch(trial, case, reference, steady=bool(second.record.launches))
    for reply in (first, second):
        watch.see(replace(reply.record, launches=launches))
    _check_single(trial, case, normal, first, reference)
    _check_copies(trial, case, second, reference)
    own = set(first.record.launches) | set(second.record.launches)
    times: Mapping[str, float] = {}
    if trial.device.type == "cuda":
        _read_kernels(trial, case)
        times = _spans(trial, case) if len(own) + len(library) > 1 else {}
    _check_kernels_matter(trial, case, normal, sorted(own), reference, terms)
    contributed.check(trial, second.record, reference)
    share = None
    if trial.device.type == "cuda" and _profiled(trial.settings.profile, library):
        share = _own_share(trial, case, own)
        if share is not None and share < LEAST_SHARE:
            raise Refused("provenance.fig_leaf", f"own kernels take {share:.2%} of the GPU time", FIG_LEAF)
        trial.connection.restart()  # a process that was profiled is not one to time
    trial.provenance = Provenance(launches, library, share, times)
    return {"kernels": launches, "library_ops": library, "own_share": share}


def _profiled(whose: Profile, library: Mapping[str, int]) -> bool:
    return whose is Profile.ALL or (whose is Profile.SHARED and bool(library))


def _answers(trial: Trial, case: Case, reply: protocol.Forwarded) -> list[torch.Tensor]:
    """Every output as a tensor, where it lies; one that was not given is NaN."""
    numbers = {form.path: math.nan if form.number is None else form.number for form in reply.outputs}
    return [
        torch.tensor(numbers.get(path, math.nan), dtype=torch.float64) if tensor is None else tensor
        for (path, _), tensor in zip(case.outputs, trial.buffers.outputs(), strict=True)
    ]


def _sketcher(trial: Trial, case: Case) -> Sketcher:
    terms = _sketch_terms(trial, case)
    return Sketcher(terms.seed, terms.sizes)


def _sketch_terms(trial: Trial, case: Case) -> protocol.SketchTerms:
    """The same places for both sides, drawn after the candidate was loaded."""
    numbers = [
        2 * t.numel() if t.is_complex() else t.numel() for _, t in case.outputs if isinstance(t, torch.Tensor)
    ]
    return protocol.SketchTerms(trial.sketch_seed, tuple(numbers))


def _watch(trial: Trial, case: Case, reference: Counted, *, steady: bool) -> Watch:
    elements = sum(t.numel() for _, t in case.outputs if isinstance(t, torch.Tensor))
    done = reference.compute, reference.moves, reference.work
    casts = TRUNCATION in reference.copies
    drops, effects = reference.drops, reference.effects
    return Watch(trial.policy, *done, elements, steady, reference.parts, casts, drops, effects)


def rules_at(trial: Trial, case: Case, *, steady: bool) -> Watch:
    """What calls are held to at the size of ``case``: the work of the reference is counted there."""
    lossy = Lossy()
    with Recorder(launched=lambda: 0, flow=lossy) as recorder:
        trial.reference.run(case.inputs, case.seed)
    work = recorder.work()[1]
    made = recorder.compute, recorder.moves, recorder.copies
    effects = trial.watch.effects if trial.watch is not None else Effected()
    reference = Counted(*made, work, (), (), recorder.parts, lossy.found, effects)
    return _watch(trial, case, reference, steady=steady)


def _check_kernels_matter(
    trial: Trial,
    case: Case,
    normal: list[torch.Tensor],
    kernels: list[str],
    reference: Counted,
    terms: protocol.SketchTerms,
) -> None:
    """Switch all own kernels off in a new instance: the output must change, and PyTorch must not find it.

    The second part tells a fig leaf from a rewrite: if, with the kernels off, some library
    operation still produces the answer, or something that the answer is a simple function of, then
    the kernels only carried it around.
    """
    sketcher = _sketcher(trial, case)
    given = zip(case.outputs, normal, strict=True)
    answers = [sketcher.sketch(t) for (_, expected), t in given if isinstance(expected, torch.Tensor)]
    try:
        trial.connection.fresh()
        reply = trial.ask(
            case,
            options=protocol.Options(traced=True, skip=tuple(kernels), sketch=terms),
        )
    except Fault:
        # It cannot even answer without them: they matter. An index that a kernel would have written may
        # have been garbage, which leaves a process on a GPU unusable.
        trial.connection.restart()
        return
    without = _answers(trial, case, reply)
    if all(map(same_values, normal, without)):
        raise Refused(
            "provenance.decoy", f"with {', '.join(kernels)} replaced by no-ops the output is the same",
            "the kernels' results are not used; something else computes the answer",
        )  # fmt: skip
    if reference.single or trial.policy.library_calls is LibraryCalls.FORBID:
        _check_share(normal, without, case, kernels)
    computed, moved = (tuple(map(_sketch, found)) for found in (reply.sketches, reply.moved))
    whole = answers and all(_found(answer, computed, moved, reference) for answer in answers)
    if whole or (borrowed.made_by_library(reply.found) and not borrowed.selects(trial, case, terms.seed)):
        ran = listed(Counter(reply.record.ops) + Counter(reply.record.moves))
        raise Refused(
            "provenance.fig_leaf", f"PyTorch finds the answer without {', '.join(kernels)}: {ran}", FIG_LEAF
        )
    trial.connection.fresh()


def _check_share(
    normal: Sequence[torch.Tensor], without: Sequence[torch.Tensor], case: Case, kernels: Sequence[str]
) -> None:
    """Of some output at least half must come from the kernels.

    What lies there without them counts as given where it is one constant, or what an input holds in the same
    place: a kernel that updates a few rows of a copy is honest.
    """
    shares = [_unchanged(a, b, case) for a, b in zip(normal, without, strict=True) if a.numel()]
    if shares and min(shares) > MOST_UNCHANGED:
        raise Refused(
            "provenance.decoy",
            f"with {', '.join(kernels)} replaced by no-ops {min(shares):.1%} of the output is the same",
            "the kernels write a small part of the answer; something else computes the rest",
        )


def _unchanged(normal: torch.Tensor, without: torch.Tensor, case: Case) -> float:
    if normal.shape != without.shape or normal.dtype != without.dtype:
        return 0.0
    same = (normal == without) | ((normal != normal) & (without != without))
    for given in case.tensors:
        if given.shape == normal.shape and given.dtype == normal.dtype:
            same &= normal != given.to(normal.device)
    kept = normal[same]
    if not kept.numel() or bool((kept == kept[0]).all()):
        return 0.0
    return kept.numel() / normal.numel()


def _check_single(
    trial: Trial,
    case: Case,
    normal: Sequence[torch.Tensor],
    reply: protocol.Forwarded,
    reference: Counted,
) -> None:
    """A reference of one operation: no library may find the answer between kernels, up to scale and offset.

    With the kernels off nothing of it is seen where a kernel in front feeds the library. A library's last
    step is honest (the sum of split products), so it must have done half of the reference's work.
    """
    spent = reply.record.work
    whole = Work(*astuple(spent))
    if not reference.single or not reference.work or not whole.covers(reference.work, HALF):
        return
    sketcher = _sketcher(trial, case)
    given = zip(case.outputs, normal, strict=True)
    answers = [sketcher.sketch(t) for (_, expected), t in given if isinstance(expected, torch.Tensor)]
    made = tuple(map(_sketch, (*reply.sketches, *reply.moved)))

    def library(answer: Sketch) -> bool:
        own = any(answer.multiple(one) for one in reference.inputs)
        return not own and any(answer.same_values(one) or answer.multiple(one) for one in made)

    if answers and all(answer is not None and library(answer) for answer in answers):
        ran = listed(Counter(reply.record.ops) + Counter(reply.record.moves))
        raise Refused("provenance.fig_leaf", f"PyTorch finds the answer between the kernels: {ran}", FIG_LEAF)


def _check_copies(trial: Trial, case: Case, reply: protocol.Forwarded, reference: Counted) -> None:
    """No library may make the answer of copies of the inputs, whatever their size and however it is counted.

    A reference that moves data itself is left out: there a copy may be the part that was taken over.
    """
    if reference.moving or not borrowed.made_of_inputs(reply.found):
        return
    if not borrowed.selects(trial, case, trial.sketch_seed):
        ran = listed(Counter(reply.record.ops) + Counter(reply.record.moves))
        raise Refused(
            "provenance.fig_leaf",
            f"PyTorch makes the answer of the inputs or copies of them: {ran}",
            FIG_LEAF,
        )


def _sketch(found: protocol.Sketched) -> Sketch:
    return Sketch(found.numel, found.total, found.norm, found.moments, found.samples)


def _found(
    answer: Sketch | None, computed: Sequence[Sketch], moved: Sequence[Sketch], reference: Counted
) -> bool:
    """Whether a library produced the answer, or what it simply follows from.

    Following from it says something only where the answer does not follow from an input or from an
    operation of the reference before its last one: a kernel that takes over a sigmoid behind a library's
    product is honest.
    """
    if answer is None:
        return False
    if any(answer.same_values(made) for made in computed):
        return True
    if any(answer.same_places(made) for made in moved):
        return not any(answer.same_places(given) for given in reference.inputs)
    inner = [made for made in reference.sketches if not answer.same_values(made) and not _near(answer, made)]
    known = (*inner, *reference.inputs)
    if not any(answer.follows(one) for one in known) and any(answer.follows(made) for made in computed):
        return True
    if any(explains(answer, (one, *reference.inputs)) for one in (*inner, *reference.inputs[:1])):
        return False
    return any(explains(answer, (made, *reference.inputs)) for made in computed)


def _near(answer: Sketch, made: Sketch) -> bool:
    """The reference's own answer, where the candidate's differs from it by rounding."""
    pairs = zip(answer.samples, made.samples, strict=True)
    scale = max((abs(value) for value in made.samples), default=0.0)
    return answer.numel == made.numel and all(abs(a - b) <= 1e-3 * scale for a, b in pairs)


def _read_kernels(trial: Trial, case: Case) -> None:
    """Have the candidate's process describe its kernels as they were compiled for this GPU.

    The candidate could forge all of it, so it is information for the next
    kernel, and no verdict rests on it: where it fails there are no descriptions, and a warning,
    and a new process goes on as if nothing had been asked. The instance that was called is
    replaced by a new one when its kernels are switched off, which is next.
    """
    trial.buffers.make_room()
    slots = trial.buffers.sets[0].inputs
    try:
        trial.connection.request(protocol.Watch(case.structure, slots, 0), KERNELS_SECONDS)
        with trial.sharing.apart():
            reply = trial.connection.request(protocol.Kernels(), KERNELS_SECONDS)
    except Fault as fault:
        trial.warnings.append(f"the kernels could not be described: {fault}"[:300])
        trial.connection.restart()
    else:
        trial.kernels = reply.kernels
        if reply.unread > 0:
            trial.warnings.append(f"{reply.unread} kernels more were launched than described")


def _spans(trial: Trial, case: Case) -> Mapping[str, float]:
    """Milliseconds of each own kernel and library operator, the longest first; information, as the kernels
    are: where it fails there are none."""
    trial.buffers.make_room()
    try:
        request = protocol.Spans(case.structure, trial.buffers.sets[0].inputs, 0)
        spent = trial.connection.request(request, KERNELS_SECONDS).microseconds
    except Fault as fault:
        trial.warnings.append(f"the kernels could not be timed one by one: {fault}"[:300])
        trial.connection.restart()
        return {}
    trial.buffers.place(case)  # a forward may write into its inputs
    longest = sorted(spent.items(), key=lambda one: -one[1])[:MOST_TIMED]
    return {name[:LONGEST_NAME]: microseconds / 1e3 for name, microseconds in longest}


def device_time(trial: Trial, case: Case) -> Mapping[str, float]:
    """Microseconds of the device by kernel name, over one warm call."""
    trial.buffers.make_room()
    request = protocol.Profile(case.structure, trial.buffers.sets[0].inputs, 0)
    profile = trial.connection.request(request, 120)
    if len(profile.streams) > 1:
        trial.warnings.append(f"work on {len(profile.streams)} streams")
    return profile.microseconds


def _own_share(trial: Trial, case: Case, own: set[str]) -> float | None:
    spent = device_time(trial, case)
    total = sum(spent.values())
    if not total:
        trial.warnings.append("the profiler saw no device activity: the share of own kernels is unknown")
        return None
    return sum(t for name, t in spent.items() if name in own) / total
