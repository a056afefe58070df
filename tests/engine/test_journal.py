"""The journal by itself: what is read back, what is asked, what does not fit."""

from __future__ import annotations

import pytest

from egg.core.conversation import Completion, Finish, Message, Request, Speaker, Usage
from egg.core.errors import UsageError
from egg.core.events import SCHEMA, Answered, Event, Exchanged, Proposed, RunStarted, StageOpened
from egg.core.plan import Draft, Exhausted, Pass
from egg.core.stage import Stage
from egg.core.step import Origin
from egg.engine.journal import Diverged, Journal, OverBudget
from egg.engine.waiting import EndOfLog
from tests.engine.scripts import FACTS, TASK, settings

STARTED = RunStarted(SCHEMA, "r", "0", TASK, settings(), FACTS)


def exchanged(text: str, purpose: str = "coder.seed") -> Exchanged:
    request = Request(purpose, (Message(Speaker.USER, "?"),), 10)
    return Exchanged(request, Completion(text, Finish.STOP, Usage(3, 4), "m", 0.5, 1.0))


def journal(*events: Event) -> tuple[Journal, list[Event]]:
    written: list[Event] = []

    def append(event: Event) -> Event:
        written.append(event)
        return event

    return Journal([STARTED, *events], append), written


def no_model() -> Completion:
    raise AssertionError("no model may be called")


def test_a_call_without_its_answer_is_read_back_and_the_next_is_made() -> None:
    book, written = journal(exchanged("wrong form"))

    def ask() -> Draft:
        first = book.exchange(exchanged("").request, no_model)
        second = book.exchange(exchanged("").request, lambda: exchanged("right").completion)
        return Draft(f"{first.text}, {second.text}")

    assert book.answer("coder.seed", 1, ask) == Draft("wrong form, right")
    assert [event.kind for event in written] == ["model.exchanged", "role.answered"]
    assert (book.state.ledger.calls, book.state.ledger.cost) == (2, 1.0)


def test_a_call_that_is_not_needed_any_more_answers_nobody_else() -> None:
    book, _ = journal(exchanged("first"), exchanged("second"))
    book.answer("coder.seed", 1, lambda: Draft(book.exchange(exchanged("").request, no_model).text))
    reply = book.answer(
        "designer",
        2,
        lambda: Pass(book.exchange(exchanged("").request, lambda: exchanged("mine").completion).text),
    )
    assert reply == Pass("mine")
    assert book.state.ledger.calls == 3


def test_a_call_not_made_for_want_of_budget_is_an_answer() -> None:
    book, written = journal()

    def ask() -> Draft:
        raise OverBudget("it could pass --max-tokens 10")

    assert book.answer("coder.seed", 1, ask) == Exhausted("it could pass --max-tokens 10")
    again = Journal([STARTED, *written], None)
    assert again.answer("coder.seed", 1, ask) == Exhausted("it could pass --max-tokens 10")


def test_another_decision_diverges_and_names_its_line() -> None:
    book, _ = journal(StageOpened(Stage.SEED, None))
    with pytest.raises(Diverged, match=r"event 2: the log has stage\.opened"):
        book.decide(StageOpened(Stage.MEMORY, None))


def test_another_question_diverges() -> None:
    book, _ = journal(Answered("designer", 1, Pass("no"), 0.0))
    with pytest.raises(Diverged, match=r"a question to coder\.seed in step 1"):
        book.answer("coder.seed", 1, lambda: Draft(""))


def test_where_nothing_may_be_added_the_log_ends() -> None:
    with pytest.raises(EndOfLog):
        Journal([STARTED], None).answer("coder.seed", 1, lambda: Draft(""))


def test_two_files_of_one_name_are_not_recorded() -> None:
    book, written = journal()
    book.decide(Proposed(1, Origin.SEED, "0123456789abcdef", "one\n"))
    book.decide(Proposed(2, Origin.SEED, "0123456789abcdef", "one\n"))
    with pytest.raises(UsageError, match="two kernel files of this run have the name 0123456789abcdef"):
        book.decide(Proposed(3, Origin.SEED, "0123456789abcdef", "another\n"))
    assert len(written) == 2
