"""Designer and tuner: one change with its predicted effect, or that nothing is worth it."""

from __future__ import annotations

from dataclasses import dataclass

from egg.agents.asking import Asker
from egg.agents.contracts import example_of, plan_contract, read, schema_of
from egg.agents.prompting import Prompter
from egg.core.plan import Pass, Plan, Unusable
from egg.core.roles import Brief


@dataclass(frozen=True)
class LlmDesigner:
    asker: Asker
    prompter: Prompter

    def design(self, brief: Brief) -> Plan | Pass | Unusable:
        return _plan(self.asker, self.prompter, brief, "designer", "designer.md")


@dataclass(frozen=True)
class LlmTuner:
    """One prompt per tuning step."""

    asker: Asker
    prompter: Prompter

    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        stage = brief.assignment.stage
        if not stage.tunes:
            raise ValueError(f"stage {stage.value} has nothing to tune")
        return _plan(self.asker, self.prompter, brief, f"tuner.{stage.value}", f"tuner_{stage.value}.md")


def _plan(
    asker: Asker, prompter: Prompter, brief: Brief, purpose: str, template: str
) -> Plan | Pass | Unusable:
    """Ask with this stage's contract: its categories and metrics, and the skills on offer."""
    contract = plan_contract(brief.assignment, brief.skills)
    schema = schema_of(contract)
    prompt = prompter.prompt(template, brief, example=example_of(schema))
    request = asker.request(purpose, prompt, schema)
    return asker.ask(request, lambda reply, cut: read(contract, reply).answer())
