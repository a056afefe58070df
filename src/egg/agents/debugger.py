"""The debugger: the root cause of a failure and what to change, short."""

from __future__ import annotations

from dataclasses import dataclass

from egg.agents.asking import Asker
from egg.agents.contracts import DiagnosisReply, example_of, read, schema_of
from egg.agents.prompting import Prompter
from egg.agents.tooling import Toolkit
from egg.core.plan import Diagnosis, Unusable
from egg.core.roles import Brief, Failure


@dataclass(frozen=True)
class LlmDebugger:
    asker: Asker
    prompter: Prompter
    tools: Toolkit | None = None

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        schema = schema_of(DiagnosisReply)
        prompt = self.prompter.failure_prompt("debugger.md", brief, failure, example=example_of(schema))
        request = self.asker.request("debugger", prompt, schema)
        source = failure.candidate.source
        session = self.tools.session("debugger", brief, source) if self.tools is not None else None
        return self.asker.ask(request, lambda reply, cut: read(DiagnosisReply, reply).answer(), session)
