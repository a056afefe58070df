"""The connection to a candidate's process: started, asked, given weights, and started anew."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from egg.evaluator.process.handle import Fault, ForkServer, WorkerHandle
from egg.evaluator.process.sharing import Sharing
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.rare import rare_weights
from egg.evaluator.task.unusual import Constants
from egg.evaluator.transport import protocol
from egg.evaluator.trial.buffers import Buffers
from egg.evaluator.trial.levels import LevelSettings
from egg.evaluator.trial.refused import Refused

COPY_SECONDS = 60.0
RAISED = "candidate.error"
TRUTH = "store 0 or 1 in a buffer of truth values: what other bits say is memory between calls"

Reply = TypeVar("Reply")


@dataclass
class Connection:
    """One candidate's process at a time, and the parameters that were agreed on with it."""

    forkserver: ForkServer
    settings: LevelSettings
    sharing: Sharing
    reference: Reference
    buffers: Buffers
    load: Callable[[], protocol.Load]
    """How the candidate is imported and built."""
    worker: WorkerHandle | None = None
    names: dict[str, str] = field(default_factory=dict)
    """The candidate's parameter names, each with the reference's name for it."""

    @property
    def process(self) -> WorkerHandle:
        assert self.worker is not None, "the candidate was not started"
        return self.worker

    def start(self, *, fence: bool = False, plain: bool = False) -> protocol.Built:
        """Fork a fresh worker, open the buffers there, import the candidate and build ``ModelNew``; without
        guards where it is to be ``plain``."""
        self.worker = self.forkserver.worker(fence=fence)
        self.worker.apart = self.sharing.apart
        self.forkserver.prepare()
        self.attach(second=False)
        load = self.load()
        return self.request(replace(load, restricted=False) if plain else load, self.settings.build_seconds)

    def attach(self, *, second: bool) -> None:
        arena = self.buffers.arena
        self.request(protocol.Attach(arena.handle(), second), COPY_SECONDS, arena.fds())

    def restart(self, *, fence: bool = False, plain: bool = False) -> None:
        """A new process for the same candidate, with the parameters agreed on."""
        if self.process.alive:
            self.check_integrity()
        self.process.end()
        self.start(fence=fence, plain=plain)
        self.share_weights()

    def request(
        self,
        request: protocol.Request[Reply],
        timeout: float | None = None,
        fds: tuple[int, ...] = (),
    ) -> Reply:
        self.sharing.give_way()
        return self.process.ask(request, timeout or self.settings.call_seconds, fds)

    def check_integrity(self) -> None:
        """Refuse a candidate that patched what the judge relies on in its process."""
        changed = self.request(protocol.Integrity(), COPY_SECONDS).changed
        if changed:
            raise Refused(
                "provenance.patched", f"the candidate's process changed {', '.join(changed)}",
                "assign only to attributes of the file's own objects",
            )  # fmt: skip

    def fresh(
        self, init: str | None = None, precision: str | None = None, *, wide: bool = False
    ) -> protocol.Built:
        """Replace the candidate's instance by a new one with the current weights, or one built otherwise."""
        return self.request(protocol.Fresh(init, precision, wide), self.settings.build_seconds)

    def as_built(self) -> bool:
        """A new instance with the weights of its constructor, and the reference with those of its own.

        Both drew them after one seed. Whether they are the same: a file may leave all values to
        ``load_state_dict``, and is never used otherwise then.
        """
        self.request(protocol.Fresh(as_built=True), self.settings.build_seconds)
        self.reference.restore()
        theirs, ours = self.candidate_state(), self.reference.initial
        return all(same_values(value, ours[name]) for name, value in theirs.items())

    def survive(self, fault: Fault) -> None:
        """Go on with a new instance behind an exception of the candidate's own: one that says that it does
        not take such inputs is believed. Any other fault is raised again."""
        if fault.reason != RAISED or not self.process.alive:
            raise fault
        self.fresh()

    # weights

    def agree_on(self, names: dict[str, str]) -> None:
        """Settle which of the candidate's parameters is which of the reference's, and share them."""
        self.names = names
        self.share_weights()

    def share_weights(self, how: protocol.Written = protocol.Written.LOADED, only: str = "") -> None:
        """Give the candidate the weights the reference holds now."""
        self.buffers.lay_weights(self.reference.module.state_dict())
        if self.names:
            self.request(protocol.Weights(self.names, self.buffers.weights, how, only), COPY_SECONDS)

    def reweigh(self, how: protocol.Written = protocol.Written.LOADED, only: str = "") -> None:
        """Other weights, or one that is another, by whatever way."""
        held = self.reference.module.state_dict()
        before = {name: value.clone() for name, value in held.items() if only and name != only}
        self.reference.reweigh()
        self.reference.module.load_state_dict(before, strict=False)
        self.share_weights(how, only)

    def other_weights(self) -> None:
        """Secret weights, where the reference still has an answer under them; else those as built.

        What a weight is as built (a gate of zero, a gain of one) must not spare a candidate any work.
        """
        self.reference.other_weights()
        self.share_weights()

    def rare_weights(self, known: Constants) -> None:
        """Secret weights with rare ones among them: zero, one, the constants of the candidate's text."""
        self.reference.reweigh()
        rare_weights(self.reference.module, known, secrets.randbits(48))
        self.share_weights()

    def restore_weights(self) -> None:
        self.reference.restore()
        self.share_weights()

    def share_unsaved(self) -> None:
        """Give the candidate's buffers that no ``state_dict`` holds what the reference's hold."""
        self.buffers.lay_unsaved()
        self.request(protocol.Unsaved(self.buffers.unsaved), COPY_SECONDS)

    def candidate_state(self) -> dict[str, torch.Tensor]:
        """The candidate's own values of the agreed parameters, as it built them."""
        self.request(protocol.State(self.names, self.buffers.weights), COPY_SECONDS)
        held = {theirs: self.buffers.view(self.buffers.weights[theirs]) for theirs in self.names.values()}
        for name, value in held.items():
            if value.dtype is torch.bool and bool((value.view(torch.uint8) > 1).any()):
                raise Refused("state.buffers", f"{name} holds bytes that are no truth values", TRUTH)
        return {name: value.clone() for name, value in held.items()}

    def end(self) -> None:
        if self.worker is not None:
            self.worker.end()
