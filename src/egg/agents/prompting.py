"""Prompts: Markdown templates filled with what a role is given.

Two messages. The *system* message depends on the run alone (rules, policies, example, program,
GPU), so it is the same for every role and step and a provider can cache it. The *user* message
begins with the base and its evidence, which stay the same for every role until a kernel is
promoted: the second mark for the cache is behind them. The role's own text comes last. An
undefined name in a template is an error, never an empty string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from egg.agents.editing import BadEdit, definitions, lines_of
from egg.agents.exemplars import examples_shown
from egg.agents.generated import Generated, generated
from egg.agents.outline import Shown, within_budget
from egg.core.conversation import Message, Speaker
from egg.core.facts import Facts
from egg.core.parts import COMPILED, EDITS, EVIDENCE, FEW_SHOT, SHORT_MEMORY
from egg.core.roles import Brief, Failure, Skill
from egg.core.settings import SKILL_SHARE
from egg.core.step import Contract
from egg.core.tokens import estimate_tokens
from egg.memory.diagnosis import render_diagnosis
from egg.memory.render import render_contract, render_handoffs, render_trajectory

PROMPTS = "prompts"
HANDOFF_SHARE = 0.4
"""Of the room for memory, the most that earlier stages may take; this stage has the rest."""


INHERITED_SHARE = 0.3
"""The same for what the built-in team tried in its own run."""
PATTERN_SHARE = 0.3
"""Room for the runnable pattern of a skill, relative to that for memory."""
EXEMPLAR_SHARE = 0.6
"""Room for kernels of like programs, which stand in the system message, relative to that for memory."""
GENERATED_SHARE = 0.4
"""Room for the text of kernels that torch.compile generated, in the system message as well."""
LEAST_BASE = 2_000
"""Tokens of a kernel file that are shown however small the room for memory is."""
WHOLE = 1_000_000
"""Tokens: no file is as long."""
BASE_SHARE = 2.0
"""Room for the text of the base, relative to that for memory; a longer file is shown as an outline."""
FORWARD = "ModelNew.forward"


MEMORIES = ("contract", "inherited", "handoffs", "trajectory")
"""What a prompt remembers, by its names in the templates."""
SEED = "coder_seed.md"
"""The one template that builds on no file."""


@dataclass(frozen=True)
class Prompt:
    """The messages of one question, and the estimated tokens of their parts."""

    messages: tuple[Message, ...]
    parts: Mapping[str, int]


@dataclass(frozen=True)
class Prompter:
    """Fills templates for one team. ``prompt_tokens`` is the room for what is remembered."""

    prompt_tokens: int
    tool_calls: int = 0
    """Tools that the coder and the debugger may call before they answer."""
    without: frozenset[str] = frozenset()
    """Parts that are left out, of :data:`egg.core.parts.PARTS`."""

    @property
    def edits(self) -> bool:
        """Whether a reply may be edits; else files are shown and written whole."""
        return EDITS not in self.without

    @property
    def base_tokens(self) -> int:
        """Room for the text of one kernel file."""
        return max(LEAST_BASE, int(self.prompt_tokens * BASE_SHARE)) if self.edits else WHOLE

    def base_shown(self, brief: Brief) -> Shown:
        """The base as every role sees it: whole, or an outline with the kernels that take the time."""
        if brief.base is None:
            return Shown("")
        known = brief.diagnosis.kernels if brief.diagnosis is not None else ()
        shares = {FORWARD: 0.5, **{found.kernel: found.share for found in known}}
        return within_budget(brief.base.candidate.source, self.base_tokens, shares)

    def failed_shown(self, brief: Brief, failure: Failure) -> Shown:
        """The file that failed; of a long one what the evidence names and what differs from the base."""
        facts = failure.refusal.facts if failure.refusal is not None else None
        named = {facts.function, *facts.functions} if facts is not None else set()
        base = brief.base.candidate.source if brief.base is not None else ""
        changed = differing(base, failure.candidate.source)
        shares = {FORWARD: 0.5, **dict.fromkeys(changed, 1.0), **dict.fromkeys(named, 2.0)}
        return within_budget(failure.candidate.source, self.base_tokens, shares)

    def failure_prompt(self, template: str, brief: Brief, failure: Failure, **more: Any) -> Prompt:
        """The same for a role that repairs: with the failed file, the failure and the open repair chain."""
        return self.prompt(
            template,
            without_chain(brief),
            failure=failure,
            failed=self.failed_shown(brief, failure),
            chain=failure.chain,
            **more,
        )

    def prompt(self, template: str, brief: Brief, **more: Any) -> Prompt:
        """System and user message for ``template``. What is in ``more`` overrides what the brief gives."""
        writes = template.startswith("coder")
        few_shot = FEW_SHOT not in self.without
        exemplars = examples_shown(brief.exemplars, int(self.prompt_tokens * EXEMPLAR_SHARE))
        run = {
            **_run_context(brief),
            "few_shot": few_shot,
            "exemplars": exemplars if few_shot else (),
            "generated": self._generated(brief),
        }
        step = {**self._step_context(brief), "writes": writes, **more}
        system, role = _filled("system.md", **run), _filled(template, **step)
        base = _filled("base.md", **step) + "\n" if brief.base is not None or template != SEED else ""
        messages = (
            Message(Speaker.SYSTEM, system, len(system)),
            Message(Speaker.USER, base + role, len(base)),
        )
        return Prompt(messages, _parts(system, _filled("parts/facts.md", **run), base, role, step))

    def _generated(self, brief: Brief) -> Generated | None:
        """What torch.compile generated, unless an experiment leaves it out."""
        if COMPILED in self.without:
            return None
        return generated(brief.compiled, int(self.prompt_tokens * GENERATED_SHARE))

    def read(self, skills: tuple[Skill, ...], *, pattern: bool = False) -> tuple[Skill, ...]:
        """Skills as a prompt has them: bodies while they fit, and for a coder the first pattern."""
        fitting = within(skills, int(self.prompt_tokens * SKILL_SHARE))
        pattern = pattern and FEW_SHOT not in self.without
        shown = next((skill.name for skill in skills if skill.pattern), "") if pattern else ""
        room = int(self.prompt_tokens * PATTERN_SHARE)
        return tuple(
            replace(s, pattern=within_budget(s.pattern, room).text if s.name == shown else "")
            for s in fitting
        )

    def _step_context(self, brief: Brief) -> dict[str, Any]:
        inherited, handoffs, trajectory = self._memory(brief)
        contract = contract_of(brief)
        return {
            "assignment": brief.assignment,
            "contract": render_contract(contract).strip() if contract else "",
            "inherited": inherited,
            "weighed": brief.weighed,
            "handoffs": handoffs,
            "trajectory": trajectory,
            "base": brief.base,
            "shown": self.base_shown(brief),
            "best": brief.best,
            "held_back": brief.diagnosis,
            "skills": self.read(brief.skills),
            "versions": versions(brief),
            "objection": brief.objection,
            "tool_calls": self.tool_calls,
            "evidence": EVIDENCE not in self.without,
            "edits": self.edits,
            "drafts": tuple(self._drafted(brief, source) for source in brief.drafts),
        }

    def _drafted(self, brief: Brief, source: str) -> str:
        """What an earlier draft of the same question defines that the base does not, by name."""
        base = brief.base.candidate.source if brief.base is not None else ""
        return ", ".join(differing(base, source)) or "nothing by name"

    def _memory(self, brief: Brief) -> tuple[str, str, str]:
        """What the built-in team tried, handoffs and trajectory in the room there is; the last gets what the
        others leave.

        The contract stands in a section of its own, so the handoffs leave it out.
        """
        if SHORT_MEMORY in self.without:
            return "", "", render_trajectory(brief.trajectory, self.prompt_tokens).strip()
        before = tuple(replace(h, contract=None) for h in brief.inherited)
        inherited = render_handoffs(before, int(self.prompt_tokens * INHERITED_SHARE)).strip()
        handed = tuple(replace(h, contract=None) for h in brief.handoffs)
        best = brief.best.score if brief.best is not None else None
        handoffs = render_handoffs(handed, int(self.prompt_tokens * HANDOFF_SHARE), best).strip()
        room = max(0, self.prompt_tokens - estimate_tokens(inherited) - estimate_tokens(handoffs))
        return inherited, handoffs, render_trajectory(brief.trajectory, room).strip()


def _parts(system: str, task: str, base: str, role: str, step: Mapping[str, Any]) -> dict[str, int]:
    """Tokens of each part of a prompt; ``role`` is what remains of the user message without the others."""
    facts = estimate_tokens(task)
    own = {
        "memory": estimate_tokens("\n".join(step[name] for name in MEMORIES)),
        "skills": sum(estimate_tokens(f"{s.description}\n{s.body}\n{s.pattern}") for s in step["skills"]),
        "failure": estimate_tokens(step["failed"].text) if "failed" in step else 0,
    }
    counted = {
        "rules": estimate_tokens(system) - facts,
        "task": facts,
        "base": estimate_tokens(base),
        **own,
        "role": max(0, estimate_tokens(role) - sum(own.values())),
    }
    return {name: tokens for name, tokens in counted.items() if tokens}


def correction(problem: str, *, cut: bool, tokens: int, json: bool, edits: bool = False) -> str:
    """The complaint about a reply that cannot be used."""
    problem = problem.rstrip(".")
    return _filled("correction.md", problem=problem, cut=cut, tokens=tokens, json=json, edits=edits)


def versions(brief: Brief) -> str:
    """The versions of PyTorch and Triton that judge the kernels; empty where they are not known."""
    if brief.machine is None:
        return ""
    return f"torch {brief.machine.torch}, triton {brief.machine.triton}, Python {brief.machine.python}"


def differing(before: str, after: str) -> tuple[str, ...]:
    """Names of the definitions of ``after`` whose text is not that of ``before``."""
    try:
        old, new = _texts(before), _texts(after)
    except BadEdit:
        return ()
    return tuple(name for name, text in new.items() if old.get(name) != text)


def _texts(source: str) -> dict[str, str]:
    lines = lines_of(source)
    return {d.name: "".join(lines[d.first - 1 : d.last]) for d in definitions(source)}


def without_chain(brief: Brief) -> Brief:
    """For repairs: they see the open repair chain with the failure, not with the history."""
    return replace(brief, trajectory=replace(brief.trajectory, chain=()))


def contract_of(brief: Brief) -> Contract | None:
    """The structure in force: the latest that a stage handed on."""
    return next((h.contract for h in reversed(brief.handoffs) if h.contract is not None), None)


def within(skills: tuple[Skill, ...], room: int) -> tuple[Skill, ...]:
    """All skills, those whose bodies no longer fit without them."""
    kept: list[Skill] = []
    for skill in skills:
        room -= estimate_tokens(skill.body)
        kept.append(skill if room >= 0 else replace(skill, body=""))
    return tuple(kept)


# -- templates -------------------------------------------------------------------------------------


def _run_context(brief: Brief) -> dict[str, Any]:
    return {
        "task": brief.task,
        "policy": brief.policy,
        "gpu": brief.facts.gpu,
        "program": brief.facts.program,
        "software": brief.facts.software,
        "limit": _limit(brief.facts),
        "example_task": prompt_file("example_task.py"),
        "example_kernel": prompt_file("example_kernel.py"),
    }


def _limit(facts: Facts) -> str:
    """Which roof the program is under: the slower of moving its bytes and doing its operations."""
    program, gpu = facts.program, facts.gpu
    if program is None or not (gpu.bandwidth and gpu.peak_flops):
        return ""
    moving, computing = program.least_bytes / gpu.bandwidth, program.flops / gpu.peak_flops
    return "memory traffic" if moving >= computing else "arithmetic"


def prompt_file(name: str) -> str:
    """The text of a file of the prompts' folder."""
    return resources.files("egg.agents").joinpath(PROMPTS, *name.split("/")).read_text(encoding="utf-8")


def _filled(template: str, **context: Any) -> str:
    return _environment().get_template(template).render(**context).strip() + "\n"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(prompt_file),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        fenced=fenced,
        clipped=clipped,
        demoted=demoted,
        listed=listed,
        counted=counted,
        diagnosed=render_diagnosis,
        number=number,
        value=lambda value: f"{value:.6g}",
        ms=lambda value: f"{number(value)} ms",
        times=lambda value: f"{value:.2f}x",
        percent=lambda value: f"{number(100 * value)}%",
        size=lambda value: scaled(value, ("B", "KiB", "MiB", "GiB", "TiB"), 1024),
        rate=lambda value: scaled(value, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"), 1000),
        work=lambda value: scaled(value, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"), 1000),
    )
    return environment


def fenced(text: str, tag: str = "") -> str:
    """``text`` in a fence longer than any inside it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{tag}\n{text.strip(chr(10))}\n{fence}"


def clipped(text: str, most: int) -> str:
    """At most so many characters: the beginning and the end, where compilers say what matters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def demoted(text: str) -> str:
    """Headings one level further down, to stand under another one."""
    return re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)


def listed(items: Iterable[str], most: int) -> str:
    """A list with runs of the same item shown once, and the middle left out where it is long."""
    runs: list[tuple[str, int]] = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    lines = [f"- {item}" + (f" (x{count})" if count > 1 else "") for item, count in runs]
    if len(lines) > most:
        half = most // 2
        lines = [*lines[:half], f"- ... {len(lines) - 2 * half} more ...", *lines[-half:]]
    return "\n".join(lines)


def counted(names: Mapping[str, int]) -> str:
    """``norm_rows, matmul x2``."""
    shown = [name + (f" x{count}" if count > 1 else "") for name, count in list(names.items())[:30]]
    return ", ".join(shown) + (f" and {len(names) - 30} more" if len(names) > 30 else "") or "none"


def number(value: float) -> str:
    """Three significant digits, without an exponent where that reads well."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def scaled(value: float, units: tuple[str, ...], step: int) -> str:
    for unit in units[:-1]:
        if value < step:
            return f"{number(value)} {unit}"
        value /= step
    return f"{number(value)} {units[-1]}"
