"""The coder in its three modes: a first file, one change to the base, a repair.

A first file is written whole. Later the coder edits: the base for a plan, the failed file for a
repair; where little of the file stays, it may write the whole file again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from egg.agents.asking import Asker
from egg.agents.edit_replies import read_draft
from egg.agents.outline import parts_named
from egg.agents.prompting import Prompt, Prompter
from egg.agents.tooling import Toolkit
from egg.core.plan import Diagnosis, Draft, Plan, Unusable
from egg.core.roles import Brief, Failure


@dataclass(frozen=True)
class LlmCoder:
    asker: Asker
    prompter: Prompter
    tools: Toolkit | None = None

    def seed(self, brief: Brief) -> Draft | Unusable:
        skills = self.prompter.read(brief.skills, pattern=True)
        prompt = self.prompter.prompt("coder_seed.md", brief, skills=skills)
        return self._write("coder.seed", brief, prompt, None)

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        """The plan, and of the skills on offer only the one it follows."""
        followed = tuple(s for s in brief.skills if s.name == plan.skill)
        source = brief.base.candidate.source if brief.base is not None else None
        prompt = self.prompter.prompt(
            "coder_optimize.md",
            brief,
            plan=plan,
            skills=self.prompter.read(followed, pattern=True),
            opened=self._opened(brief, plan),
        )
        return self._write("coder.optimize", brief, prompt, source)

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        prompt = self.prompter.failure_prompt(
            "coder_repair.md",
            brief,
            failure,
            skills=self.prompter.read(brief.skills, pattern=True),
            diagnosis=diagnosis,
        )
        return self._write("coder.repair", brief, prompt, failure.candidate.source)

    def _opened(self, brief: Brief, plan: Plan) -> str:
        """What the plan names of the base and the outline hides."""
        if brief.base is None:
            return ""
        words = set(re.findall(r"\w+", f"{plan.change} {plan.bottleneck}"))
        hidden = self.prompter.base_shown(brief).hidden
        named = tuple(name for name in hidden if name.rpartition(".")[2] in words)
        return parts_named(brief.base.candidate.source, named, self.prompter.base_tokens)

    def _write(self, purpose: str, brief: Brief, prompt: Prompt, edited: str | None) -> Draft | Unusable:
        """``edited`` is the file that edits refer to; ``None`` for a first file."""
        request = self.asker.request(purpose, prompt, edited=edited or "")
        if not self.prompter.edits:
            edited = None
        if self.tools is None:
            return self.asker.ask(request, lambda reply, cut: read_draft(reply, edited, cut=cut))
        session = self.tools.session(purpose, brief, edited)
        return self.asker.ask(request, lambda reply, cut: session.read_draft(reply, cut=cut), session)
