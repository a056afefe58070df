"""The first request of a role, and its texts."""

from __future__ import annotations

from egg.agents.team import LlmTeam
from egg.core.conversation import Request
from egg.core.roles import Brief, Failure
from egg.core.stage import Stage
from egg.llm.scripted import ScriptedClient
from tests.agents.briefs import (
    DIAGNOSIS,
    FAILURE,
    KERNEL,
    PLAN,
    brief,
)

PURPOSES = (
    "designer",
    "tuner.mapping",
    "tuner.tiling",
    "tuner.memory",
    "coder.seed",
    "coder.optimize",
    "coder.repair",
    "debugger",
)
STAGES = {
    "designer": Stage.STRUCTURE,
    "coder.seed": Stage.SEED,
    "tuner.tiling": Stage.TILING,
    "tuner.memory": Stage.MEMORY,
}


def request(
    purpose: str, given: Brief | None = None, *, room: int = 3000, failure: Failure = FAILURE
) -> Request:
    """The first request of a role."""
    client = ScriptedClient(lambda _: "nothing")
    team = LlmTeam(client, prompt_tokens=room, reply_tokens=1000)
    given = given or brief(stage_of(purpose))
    match purpose:
        case "designer":
            team.designer.design(given)
        case "coder.seed":
            team.coder.seed(given)
        case "coder.optimize":
            team.coder.optimize(given, PLAN)
        case "coder.repair":
            team.coder.repair(given, failure, DIAGNOSIS)
        case "debugger":
            team.debugger.diagnose(given, failure)
        case _:
            team.tuner.tune(given)
    return client.requests[0]


def stage_of(purpose: str) -> Stage:
    return STAGES.get(purpose, Stage.MAPPING)


def texts(purpose: str, given: Brief | None = None, **options) -> tuple[str, str]:
    system, user = request(purpose, given, **options).messages
    return system.text, user.text


LONG = KERNEL + "".join(
    f'\n\ndef helper_{i}(x):\n    """Step {i}."""\n' + "".join(f"    x = x * {i} + {j}\n" for j in range(60))
    for i in range(12)
)
