"""The llm team: one model behind four roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from egg.agents.asking import Asker
from egg.agents.coder import LlmCoder
from egg.agents.debugger import LlmDebugger
from egg.agents.planners import LlmDesigner, LlmTuner
from egg.agents.prompting import Prompter
from egg.agents.tooling import Instruments, Toolkit
from egg.llm.client import Client, OnText, ignore_text


class LlmTeam:
    """A :class:`egg.core.roles.Team` whose members all ask ``client``; it may give roles models of their own.

    ``prompt_tokens`` is the room for what a run remembers in one prompt, ``reply_tokens`` the
    most one reply may have; ``reply_per_base`` raises that for a long file. Replies may come
    from a model, a script or a person: prompts, contracts and corrections are the same. With
    ``instruments`` the coder and the debugger may call tools, ``tool_calls`` of them for one answer.
    ``without`` names parts of prompts that an experiment leaves out (:mod:`egg.core.parts`).
    """

    def __init__(
        self,
        client: Client,
        *,
        prompt_tokens: int,
        reply_tokens: int,
        reply_per_base: float = 0.0,
        temperature: float | None = None,
        efforts: Mapping[str, str] | None = None,
        on_text: OnText = ignore_text,
        instruments: Instruments | None = None,
        tool_calls: int = 0,
        without: Collection[str] = (),
    ) -> None:
        asker = Asker(client, reply_tokens, temperature, on_text, efforts or {}, reply_per_base)
        tools = Toolkit(instruments, tool_calls, prompt_tokens) if instruments and tool_calls else None
        prompter = Prompter(prompt_tokens, tools.calls if tools is not None else 0, frozenset(without))
        self._designer = LlmDesigner(asker, prompter)
        self._tuner = LlmTuner(asker, prompter)
        self._coder = LlmCoder(asker, prompter, tools)
        self._debugger = LlmDebugger(asker, prompter, tools)

    @property
    def designer(self) -> LlmDesigner:
        return self._designer

    @property
    def tuner(self) -> LlmTuner:
        return self._tuner

    @property
    def coder(self) -> LlmCoder:
        return self._coder

    @property
    def debugger(self) -> LlmDebugger:
        return self._debugger
