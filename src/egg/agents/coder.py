"""The coder in its three modes: a first file, one change to the base, a repair."""

from __future__ import annotations

from dataclasses import dataclass

from egg.agents.asking import Asker
from egg.agents.extraction import extract_code
from egg.agents.prompting import Prompter, without_chain
from egg.core.conversation import Message
from egg.core.plan import Diagnosis, Draft, Plan, Unusable
from egg.core.roles import Brief, Failure


@dataclass(frozen=True)
class LlmCoder:
    asker: Asker
    prompter: Prompter

    def seed(self, brief: Brief) -> Draft | Unusable:
        return self._write("coder.seed", self.prompter.messages("coder_seed.md", brief))

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        """The plan, and of the skills on offer only the one it follows."""
        followed = tuple(s for s in brief.skills if s.name == plan.skill)
        messages = self.prompter.messages("coder_optimize.md", brief, plan=plan, skills=followed)
        return self._write("coder.optimize", messages)

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        messages = self.prompter.messages(
            "coder_repair.md", without_chain(brief), failure=failure, chain=failure.chain, diagnosis=diagnosis
        )
        return self._write("coder.repair", messages)

    def _write(self, purpose: str, messages: tuple[Message, ...]) -> Draft | Unusable:
        request = self.asker.request(purpose, messages)
        return self.asker.ask(request, lambda reply, cut: Draft(_printable(extract_code(reply, cut=cut))))


def _printable(source: str) -> str:
    """Half a surrogate pair, which JSON can smuggle in, fits in no file."""
    return source.encode("utf-8", "replace").decode("utf-8")
