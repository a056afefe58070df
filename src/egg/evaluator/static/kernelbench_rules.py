"""KernelBench's published static check of a kernel file, as rules: what it would flag, and how gravely.

As found in the public repository ScalingIntelligence/KernelBench, in facts
(``src/kernelbench/kernel_static_checker.py`` at 0ba2054). It looks for patterns in the text, not in the
syntax tree:

- A line is cut at the first ``#`` and then at the first ``//``, wherever they stand: strings and docstrings
  are searched like code, and what follows a floor division is not.
- For the Triton backend these are errors, and a file with one is not valid: any ``try``, ``except`` or the
  word *pass* (``code_bypass``), an assignment to what measures time (``timing_event_patch``), threads and
  processes (``thread_injection``), a tensor class of one's own (``lazy_eval``), and a file without a
  ``@triton.jit`` kernel that loads or stores and knows its place (``triton_impl``).
- These are warnings, and the file stays valid: layers of ``torch.nn`` (``pytorch_wrap``), computations left
  to PyTorch (``torch_computation_ops``), streams (``stream_injection``), and casts to half precision where
  the task is in fp32 (``precision_downgrade``).

A rule reports once. This is a column beside the judge's own gates, never one of them: a file that passes may
be wrong, and the word *pass* in a docstring does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A rule that flags a file, with the first place that it flags."""

    rule: str
    error: bool
    """Whether the file is not valid for it; a warning otherwise."""
    line: int
    """Counted from 1; 0 where the rule misses something in the whole file."""
    evidence: str


@dataclass(frozen=True)
class Rule:
    """Flags a file in which one of the patterns occurs."""

    name: str
    error: bool
    pattern: re.Pattern[str]


def _rule(name: str, *patterns: str, error: bool) -> Rule:
    return Rule(name, error, re.compile("|".join(f"(?:{pattern})" for pattern in patterns)))


_POOLS = r"(?:avg|max|adaptive_avg|adaptive_max)_pool[123]d"
_PRODUCTS = r"mm|bmm|matmul|einsum|linear|conv|conv[123]d|conv_transpose[123]d"
_ACTIVATIONS = (
    "relu|hardtanh|elu|selu|leaky_relu|gelu|softsign|softplus|softmax|log_softmax|tanh|sigmoid|hardsigmoid|"
    "silu|mish|clamp|dropout|logsumexp"
)
_NORMS = "(?:batch|group|layer|instance|rms)_norm|normalize"
_LOSSES = "cross_entropy|kl_div|mse_loss|huber_loss|triplet_margin_loss|cosine_similarity"

RULES: tuple[Rule, ...] = (
    _rule("code_bypass", r"\btry\s*:", r"\bexcept\s*:", r"\bexcept\s+\w", r"\bpass\b", error=True),
    _rule(
        "timing_event_patch",
        r"torch\.cuda\.Event(?:\.record|\.elapsed_time)?\s*=",
        r"torch\.cuda\.synchronize\s*=",
        r"time\.(?:perf_counter|time)\s*=",
        error=True,
    ),
    _rule(
        "thread_injection",
        r"threading\.Thread\s*\(",
        r"import\s+(?:threading|multiprocessing)",
        r"from\s+threading\s+import",
        r"multiprocessing\.(?:Process|Pool|Manager|Queue|Pipe)",
        r"concurrent\.futures",
        r"(?:Thread|Process)PoolExecutor",
        error=True,
    ),
    _rule(
        "lazy_eval",
        r"_make_subclass",
        r"class\s+\w+.*\((?:torch\.)?Tensor\)",
        r"torch\.Tensor\.__new__",
        error=True,
    ),
    _rule(
        "pytorch_wrap",
        r"torch\.nn\.(?!(?:Module|ModuleList|ModuleDict|parameter|Parameter|ParameterList|ParameterDict|init)\b)",
        error=False,
    ),
    _rule(
        "torch_computation_ops",
        rf"\btorch\.(?:{_PRODUCTS}|{_POOLS}|{_ACTIVATIONS}|{_NORMS}|{_LOSSES})(?=\s*\(|\s|$)",
        r"\bnn\.functional\.\w",
        r"\bF\.(?:conv|linear|relu|gelu|softmax|batch_norm|layer_norm|dropout|max_pool|avg_pool)",
        error=False,
    ),
    _rule(
        "stream_injection",
        r"cuda\.Stream\s*\(",
        r"with\s+torch\.cuda\.stream",
        r"\.(?:wait|record)_stream\s*\(",
        error=False,
    ),
    _rule(
        "precision_downgrade",
        r"tl\.astype\s*\(\s*[^,]+,\s*tl\.float16\s*\)",
        r"\.(?:half|float16)\s*\(",
        r"\.to\s*\(\s*(?:dtype\s*=\s*)?torch\.(?:float16|half)\b",
        error=False,
    ),
)
"""Rules that flag what a file has. Of ``precision_downgrade`` only what a Triton file can hold."""

NEEDED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("no @triton.jit or @triton.autotune", re.compile(r"@triton\.(?:jit|autotune)")),
    ("no operation of triton.language as tl", re.compile(r"\btl\.\w")),
    ("neither tl.load nor tl.store", re.compile(r"tl\.(?:load|store)\s*\(")),
    (
        "no tl.program_id, tl.num_programs, tl.arange, tl.cdiv or tl.constexpr",
        re.compile(r"tl\.(?:(?:program_id|num_programs|arange|cdiv)\s*\(|constexpr)"),
    ),
)
"""What the rule ``triton_impl`` needs, in the order in which it looks; it reports the first missing."""


def static_findings(source: str, *, fp32: bool = True) -> tuple[Finding, ...]:
    """What KernelBench's static check would flag, errors first. ``fp32``: whether the task is in fp32, where
    a cast to half precision is worth a warning."""
    text = searched(source)
    found = [*_present(text, fp32), *_missing(text)]
    return tuple(sorted(found, key=lambda finding: not finding.error))


def errors(source: str) -> tuple[Finding, ...]:
    """The findings for which KernelBench calls a file not valid; none where it is."""
    return tuple(finding for finding in static_findings(source) if finding.error)


def searched(source: str) -> str:
    """The text that the check looks at, line for line."""
    return "\n".join(line.partition("#")[0].partition("//")[0] for line in source.split("\n"))


def _present(text: str, fp32: bool) -> Iterator[Finding]:
    for rule in RULES:
        if rule.name == "precision_downgrade" and not fp32:
            continue
        if found := rule.pattern.search(text):
            yield Finding(rule.name, rule.error, text.count("\n", 0, found.start()) + 1, found[0].strip())


def _missing(text: str) -> Iterator[Finding]:
    for missing, pattern in NEEDED:
        if not pattern.search(text):
            yield Finding("triton_impl", True, 0, missing)
            return
