"""A run's memory as Markdown for prompts.

*Within* a stage the trajectory tells each attempt with its prediction beside its outcome,
the failures that must not be repeated, and the open repair chain by itself. *Between*
stages the handoffs tell the structure contract, how good the best kernel is, what was tried
and why it lost, and which bottleneck is open.

When room is short, details go before steps do, and old steps that taught nothing go before
promotions and wrong predictions, which teach the most. The contract, the failure signatures
and the counts of what was left out always stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.core.step import Contract, Decision, Handoff, Score, Step, Trajectory
from egg.memory import phrases
from egg.memory.budget import Passage, fit

HISTORY, CHAIN = 0, 1
"""Passages of the open repair chain outlast those of the history."""


def render_trajectory(trajectory: Trajectory, budget_tokens: int) -> str:
    """What happened so far in this stage; empty where nothing did."""
    steps, chain = trajectory.steps, trajectory.chain
    if not steps and not chain:
        return ""
    passages = [*_step_passages(steps), *_chain_passages(trajectory)]

    def compose(wordings: Sequence[str]) -> str:
        tried, repaired = wordings[: len(steps)], wordings[len(steps) :]
        return _sections(
            (f"## Tried in this stage ({trajectory.stage.value})", _listed(tried, "earlier step")),
            ("## Failures not to be repeated", _signatures(trajectory.failure_signatures)),
            ("## Open repair chain of this step", _listed(repaired, "earlier file")),
        )

    return fit(passages, compose, budget_tokens)


def render_handoffs(handoffs: tuple[Handoff, ...], budget_tokens: int, best: Score | None = None) -> str:
    """What earlier stages pass on, oldest first; empty before the first one ended.

    ``best`` is the score of the best kernel of all stages, the open one included.
    """
    if not handoffs:
        return ""
    tried = [step for handoff in handoffs for step in handoff.tried]
    passages = [*_step_passages(tried), *_ending_passages(handoffs)]
    contract = next((h.contract for h in reversed(handoffs) if h.contract is not None), None)
    failures = tuple(
        dict.fromkeys(s for h in handoffs for s in Trajectory(h.stage, h.tried).failure_signatures)
    )

    def compose(wordings: Sequence[str]) -> str:
        endings, rest = wordings[len(tried) :], list(wordings[: len(tried)])
        sections: list[tuple[str, str]] = [
            ("## Structure contract", render_contract(contract) if contract else ""),
            ("## Best kernel so far", render_score(best or handoffs[-1].best_score)),
        ]
        for handoff, ending in zip(handoffs, endings, strict=True):
            own, rest = rest[: len(handoff.tried)], rest[len(handoff.tried) :]
            body = "\n".join(part for part in (ending, _listed(own, "step")) if part)
            sections.append((f"## Stage {handoff.stage.value}", body))
        sections.append(("## Failures not to be repeated", _signatures(failures)))
        return _sections(*sections)

    return fit(passages, compose, budget_tokens)


def render_contract(contract: Contract) -> str:
    """Which kernels there are, how often each is launched, what it is made of, and what libraries do."""
    return phrases.contract(contract)


def render_score(score: Score | None) -> str:
    """How fast the best kernel is, and how far from eager and from the floor."""
    return phrases.sentence(phrases.score(score), phrases.PARAGRAPH)


def _step_passages(steps: Sequence[Step]) -> list[Passage]:
    """In full, as one line, not at all. The last step is what the next one answers to: it goes last."""
    last = len(steps) - 1
    return [
        Passage((_in_full(step), _as_line(step), ""), (HISTORY, int(i == last), _lesson(step), i))
        for i, step in enumerate(steps)
    ]


def _lesson(step: Step) -> int:
    """How much a step teaches the next one."""
    if step.decision is Decision.PROMOTED:
        return 3
    if phrases.missed(step):
        return 2
    return 1 if step.decision in (Decision.NOT_BETTER, Decision.FAILED) else 0


def _in_full(step: Step) -> str:
    lines = [
        f"- Step {step.number}{_kind(step)}: **{step.decision.value}**. {_reason(step, phrases.PARAGRAPH)}"
    ]
    if step.plan is not None:
        lines.append(f"  - change: {phrases.sentence(step.plan.change, phrases.PARAGRAPH)}")
        lines.append(f"  - against: {phrases.sentence(step.plan.bottleneck, phrases.PARAGRAPH)}")
        expected = f"{step.plan.prediction.metric.value}: {step.plan.prediction.expectation}"
        lines.append(f"  - expected to move: {phrases.sentence(expected, phrases.LINE)}")
        lines.append(f"  - {phrases.prediction_beside_outcome(step)}")
    if step.sweep is not None:
        lines.append(f"  - {phrases.sweep(step.sweep)}")
    if repairs := phrases.repairs(step):
        lines.append(f"  - {repairs}")
    return "\n".join(lines)


def _as_line(step: Step) -> str:
    change = f" {phrases.sentence(step.plan.change)}" if step.plan is not None else ""
    outcome = phrases.prediction_beside_outcome(step)
    outcome = f" {outcome[0].upper()}{outcome[1:]}." if outcome else ""
    reason = "" if outcome and step.gain is not None else f" {_reason(step, phrases.LINE)}"
    return f"- Step {step.number}{_kind(step)}: **{step.decision.value}**.{change}{outcome}{reason}".rstrip()


def _kind(step: Step) -> str:
    if step.plan is None:
        return ""
    skill = f", skill {phrases.one_line(step.plan.skill, phrases.LINE)}" if step.plan.skill else ""
    return f" ({step.plan.category.value}{skill})"


def _reason(step: Step, limit: int) -> str:
    return phrases.sentence(step.reason, limit)


def _chain_passages(trajectory: Trajectory) -> list[Passage]:
    """The newest file is the one to repair: it keeps its evidence longest."""
    return [
        Passage((*phrases.attempt_lines(number, attempt), ""), (CHAIN, number))
        for number, attempt in enumerate(trajectory.chain, start=1)
    ]


def _ending_passages(handoffs: tuple[Handoff, ...]) -> list[Passage]:
    """Why each stage ended and what it left open. Only the newest bottleneck is still open: it goes last."""
    passages = []
    for i, handoff in enumerate(handoffs):
        why = f"It ended: {phrases.sentence(handoff.reason)}"
        if handoff.open_bottleneck.strip():
            left = f"Open bottleneck: {phrases.sentence(handoff.open_bottleneck, phrases.PARAGRAPH)}"
            passages.append(Passage((f"{why}\n{left}", left, ""), (CHAIN, i)))
        else:
            passages.append(Passage((why, ""), (CHAIN, i)))
    return passages


def _listed(wordings: Sequence[str], noun: str) -> str:
    """The wordings that are shown, under a line that counts the others."""
    shown = [w for w in wordings if w]
    absent = len(wordings) - len(shown)
    note = [f"({phrases.count(absent, noun)} left out)"] if absent else []
    return "\n".join([*note, *shown])


def _signatures(found: tuple[str, ...]) -> str:
    return "\n".join(f"- {signature}" for signature in phrases.signatures(found))


def _sections(*sections: tuple[str, str]) -> str:
    """Titles with their text, where there is any."""
    return "\n\n".join(f"{title}\n{body}" for title, body in sections if body)
