"""Tools of the coder and the debugger: what a model may look at and try before it answers.

A question opens a *session*. The model calls tools through its provider's own tool calling; each call goes
through the run's journal, so that a log replays without running anything. A tool takes a kernel in the form
of the answer: edits of the file that the question is about, or a whole file. Every file that was made so is
a numbered draft: later edits may build on it, and ``use draft N`` is an answer that repeats no text.

Calls are bounded in number by the budget, and each result in its length. The last reply is asked for with
calls forbidden, so a session always ends with an answer or with an unusable one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from egg.agents.edit_replies import read_draft
from egg.agents.extraction import Unreadable, answer_text, fenced_blocks
from egg.agents.outline import parts_named
from egg.agents.prompting import clipped, fenced
from egg.core.conversation import Tool, ToolCall
from egg.core.plan import Draft
from egg.core.roles import Brief

RESULT_SHARE = 0.25
"""Room for one result, relative to that for memory."""
CHARACTERS_PER_TOKEN = 3
NO_CALLS_LEFT = "No calls are left. Answer now, in the form that the question asks for."
_FENCED = re.compile(r"^\s*```", re.MULTILINE)
USE = re.compile(r"use draft (\d+)", re.IGNORECASE)

KERNEL = {
    "type": "string",
    "description": "In the form of the reply: edits (`# edit: replace NAME` ...) of the file that the "
    "question is about, or a whole kernel file.",
}
ON = {
    "type": "integer",
    "description": "The draft that the edits build on, by its number; without, the file of the question.",
}


def _taking(required: Sequence[str] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TOOLS = (
    Tool(
        "compile",
        "Compile a kernel file for the target GPU without running it: errors, or per kernel registers, "
        "spills, shared memory, tensor-core instructions and the width of loads. Seconds.",
        _taking(["kernel"], kernel=KERNEL, on=ON),
    ),
    Tool(
        "code",
        "The compiled code of one kernel for the target GPU: instructions by kind with widths and shapes, "
        "then the hottest loop as machine code and as PTX, each instruction with its line of the file. "
        "Without a kernel, of the file of the question. Seconds.",
        _taking(
            name={
                "type": "string",
                "description": "The kernel's function, as `matmul`; `matmul:2` is its second specialisation. "
                "Not needed where the file launches one kernel.",
            },
            kernel=KERNEL,
            on=ON,
        ),
    ),
    Tool(
        "judge",
        "Judge a kernel file as the run will: whether it is right on hidden inputs, and its time where a GPU "
        "measures it. Slower than compile.",
        _taking(["kernel"], kernel=KERNEL, on=ON),
    ),
    Tool(
        "profile",
        "Where the time of a kernel file goes and what limits it; without a kernel, of the file of the "
        "question.",
        _taking(kernel=KERNEL, on=ON),
    ),
    Tool(
        "time",
        "Time several kernel files side by side with the base, unchecked: which of them is the fastest.",
        _taking(["kernels"], kernels={"type": "array", "items": KERNEL}, on=ON),
    ),
    Tool(
        "read",
        "The text of one definition of the file of the question, as `ModelNew.forward`: for what an outline "
        "leaves out.",
        _taking(["name"], name={"type": "string", "description": "A function, class, method or constant."}),
    ),
    Tool(
        "skill",
        "An expert technique in full with a pattern that runs; for words that name none, the techniques "
        "that speak of them.",
        _taking(["name"], name={"type": "string", "description": "Its name, or a few words."}),
    ),
    Tool(
        "kernels", "Accepted kernels of earlier runs for programs like this one, with their speed.", _taking()
    ),
)


class Instruments(Protocol):
    """What the tools work with: a judge, a compiler, a profiler, skills, earlier runs."""

    @property
    def names(self) -> frozenset[str]:
        """The tools that work in this run."""
        ...

    def use(self, name: str, brief: Brief, kernels: Sequence[str], about: str) -> str:
        """The result of a tool for the model to read; ``kernels`` are whole files."""
        ...

    def record(self, purpose: str, call: ToolCall, run: Callable[[], str]) -> str:
        """The result of ``run``, or what the log has for this call."""
        ...


def result_characters(prompt_tokens: int) -> int:
    """How long one result may be where memory has room for so many tokens."""
    return int(prompt_tokens * RESULT_SHARE * CHARACTERS_PER_TOKEN)


class BadCall(Exception):
    """A call that cannot be run; the model reads why."""


@dataclass(frozen=True)
class Toolkit:
    """Opens a session for each question."""

    instruments: Instruments
    calls: int
    prompt_tokens: int

    def session(self, purpose: str, brief: Brief, file: str | None) -> Session:
        """``file`` is what edits refer to; ``None`` for a first kernel."""
        return Session(self, purpose, brief, file)

    @property
    def result_characters(self) -> int:
        return result_characters(self.prompt_tokens)


class Session:
    """The tools of one question: calls left, and the drafts that were made."""

    def __init__(self, kit: Toolkit, purpose: str, brief: Brief, file: str | None) -> None:
        self._kit = kit
        self._purpose = purpose
        self._brief = brief
        self._file = file
        self._drafts: list[Draft] = []
        self.left = kit.calls

    @property
    def tools(self) -> tuple[Tool, ...]:
        names = self._kit.instruments.names
        if self._file is None:
            names = names - {"read", "profile"}
        if self._brief.base is None:
            names = names - {"time"}
        return tuple(tool for tool in TOOLS if tool.name in names)

    def call(self, call: ToolCall) -> str:
        """Run one call and count it. Whatever is wrong with it is its result."""
        if self.left <= 0:
            return NO_CALLS_LEFT
        self.left -= 1
        first = len(self._drafts)
        try:
            arguments = self._arguments(call)
            kernels = self._kernels(arguments)
        except (BadCall, Unreadable) as problem:
            error = f"Error: {problem}"
            shown = self._kit.instruments.record(self._purpose, call, lambda: error)
            return f"{shown}\n\nCalls left: {self.left}."
        made = ", ".join(f"draft {n + 1}" for n in range(first, len(self._drafts)))
        result = self._kit.instruments.record(
            self._purpose, call, lambda: self._result(call.name, kernels, str(arguments.get("name", "")))
        )
        shown = clipped(result, self._kit.result_characters)
        return (f"{made[0].upper()}{made[1:]}.\n\n" if made else "") + f"{shown}\n\nCalls left: {self.left}."

    def read_draft(self, reply: str, *, cut: bool = False) -> Draft:
        """The answer: a draft that was made before, by its number, or edits or a file as without tools."""
        text = answer_text(reply)
        named = USE.findall(text)
        if len(set(named)) == 1 and not fenced_blocks(text):
            return self._draft(int(named[0]))
        return read_draft(reply, self._file, cut=cut)

    def _result(self, name: str, kernels: Sequence[str], about: str) -> str:
        if name == "read":
            text = parts_named(self._file or "", (about,), self._kit.prompt_tokens)
            return text or f"Error: the file defines no {about!r}"
        return self._kit.instruments.use(name, self._brief, kernels, about)

    def _arguments(self, call: ToolCall) -> dict[str, Any]:
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            raise BadCall(
                f"there is no tool {call.name!r}; there are {', '.join(t.name for t in self.tools)}"
            )
        try:
            found = json.loads(call.arguments or "{}")
        except json.JSONDecodeError as reason:
            raise BadCall(
                f"the arguments are no JSON ({reason}); a long file is cut off there: use edits"
            ) from None
        if not isinstance(found, dict):
            raise BadCall("the arguments are no JSON object")
        known = tool.parameters["properties"]
        for name, value in found.items():
            if name not in known:
                raise BadCall(f"{call.name} takes no {name!r}; it takes {', '.join(known) or 'nothing'}")
            if not isinstance(value, _KINDS[known[name]["type"]]):
                raise BadCall(f"{name} is to be of type {known[name]['type']}")
        required = [*tool.parameters["required"]]
        if self._file is None and "kernel" in known:
            required.append("kernel")  # there is no file of the question to stand for it
        if missing := [name for name in dict.fromkeys(required) if not found.get(name)]:
            raise BadCall(f"{call.name} needs {', '.join(missing)}")
        return found

    def _kernels(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The files that a call is about, each of them a draft from now on."""
        texts = arguments.get("kernels") or ([arguments["kernel"]] if arguments.get("kernel") else [])
        on = arguments.get("on")
        below = self._draft(on).source if on else self._file
        drafts = []
        for text in texts:
            if not isinstance(text, str):
                raise BadCall("a kernel is text")
            drafts.append(read_draft(text if _FENCED.search(text) else fenced(text, "python"), below))
        self._drafts += drafts
        if not drafts and self._file is not None:
            return (self._file,)
        return tuple(draft.source for draft in drafts)

    def _draft(self, number: int) -> Draft:
        if not 1 <= number <= len(self._drafts):
            there = f"there are {len(self._drafts)}" if self._drafts else "there is none yet"
            raise Unreadable(f"there is no draft {number}: {there}")
        return self._drafts[number - 1]


_KINDS: Mapping[str, type] = {"string": str, "integer": int, "array": list}
