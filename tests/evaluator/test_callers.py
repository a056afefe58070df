"""Calls in a row are shared out among kinds of callers."""

from __future__ import annotations

from egg.evaluator.gates import callers
from egg.evaluator.transport.protocol import GradMode


def test_every_part_has_its_share() -> None:
    parts = [callers.ALIKE, callers.VARIED, callers.INFERENCE, callers.AS_BUILT]
    for total in (32, 160, 1600):
        found = callers.lengths(total, parts)
        assert sum(found) == total
        assert all(length >= total * part.share // 8 for length, part in zip(found, parts, strict=True))


def test_calls_are_of_several_kinds() -> None:
    manners = callers.varied(160, elsewhere=True)
    assert len(manners) == 160
    assert {manner.grad for manner in manners} == {GradMode.OFF, GradMode.FROZEN}
    assert 48 < sum(manner.elsewhere for manner in manners) <= callers.MOST_ELSEWHERE
    assert sum(manner.refills for manner in manners) > 48
    assert not any(manner.elsewhere for manner in callers.varied(160, elsewhere=False))
