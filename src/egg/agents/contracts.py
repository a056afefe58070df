"""What a designer, a tuner and a debugger must reply, as types: the schema, the example and the check
all come from them.

The planner's contract is made anew for each question, with the categories, metrics and skills
allowed there as enumerations. Schemas follow the strict subset that providers enforce: every
property required, nothing else allowed, what may be absent is ``null``; limits that subset does
not know (numbers of words, ranges) are stated in the descriptions and checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Optional

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from egg.agents.extraction import Unreadable, json_objects
from egg.core.plan import Diagnosis, Pass, Plan, Prediction
from egg.core.roles import Assignment, Skill
from egg.core.stage import Category, Metric

DIAGNOSIS_WORDS = 30
BOTTLENECK_WORDS = 60
CHANGE_WORDS = 250
EXPECTATION_WORDS = 25
REASON_WORDS = 60
LARGEST_SPEEDUP = 1000.0


def _filled_in(value: str) -> str:
    """Text that says something: a placeholder copied from the example does not."""
    text = value.strip()
    if not text:
        raise ValueError("must not be empty")
    if text.startswith("<") and text.endswith(">"):
        raise ValueError("is the placeholder of the example, not an answer")
    return text


def _at_most(words: int) -> AfterValidator:
    def check(value: str) -> str:
        count = len(value.split())
        if count > words:
            raise ValueError(f"has {count} words, at most {words} are allowed")
        return value

    return AfterValidator(check)


def _identifier(value: Any) -> Any:
    """``Operator Fusion`` means ``operator_fusion``."""
    return value.strip().lower().replace(" ", "_").replace("-", "_") if isinstance(value, str) else value


def _ratio(value: Any) -> Any:
    """``"1.4x"`` means 1.4."""
    return value.strip().lower().removesuffix("x").rstrip() if isinstance(value, str) else value


def _nothing(value: Any) -> Any:
    """``""`` and ``"none"`` mean null where null is allowed."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "none", "null", "n/a") else value


FilledIn = AfterValidator(_filled_in)


class Reply(BaseModel):
    """Base of the contracts: unknown keys are passed over when reading, forbidden in the schema."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class DiagnosisReply(Reply):
    """The debugger's contract."""

    critical_issue: Annotated[str, FilledIn, _at_most(DIAGNOSIS_WORDS)] = Field(
        description=f"root cause, not symptom; at most {DIAGNOSIS_WORDS} words"
    )
    modification_plan: Annotated[str, FilledIn, _at_most(DIAGNOSIS_WORDS)] = Field(
        description=f"what to change, and where in the file; at most {DIAGNOSIS_WORDS} words"
    )

    def answer(self) -> Diagnosis:
        return Diagnosis(self.critical_issue, self.modification_plan)


class PlanReply(Reply):
    """The contract of designer and tuner. Analysis first, so that the verdict follows from it."""

    bottleneck: Annotated[str, FilledIn, _at_most(BOTTLENECK_WORDS)] = Field(
        description=f"what limits the base now, with the number that shows it; "
        f"at most {BOTTLENECK_WORDS} words"
    )
    worth_optimizing: bool = Field(
        description="whether one change within this stage should gain more than noise"
    )
    category: Any
    change: Annotated[str, FilledIn, _at_most(CHANGE_WORDS)] | None = Field(
        default=None,
        description="the one change, concrete enough to write the code from: which kernel, which lines, "
        f"which values; at most {CHANGE_WORDS} words; null when not worth it",
    )
    predicted_speedup: float | None = Field(
        default=None, description="base time over new time, 1.0 is no change; null when not worth it"
    )
    metric: Any
    expectation: Annotated[str, FilledIn, _at_most(EXPECTATION_WORDS)] | None = Field(
        default=None,
        description=f"how that metric moves, from which number to which; at most {EXPECTATION_WORDS} words; "
        "null when not worth it",
    )
    skill: Any
    reason: Annotated[str, FilledIn, _at_most(REASON_WORDS)] | None = Field(
        default=None,
        description=f"why nothing is worth it; at most {REASON_WORDS} words; null when something is",
    )

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        forgiving = {
            "category": _identifier,
            "metric": _identifier,
            "predicted_speedup": _ratio,
        }
        optional = ("category", "change", "predicted_speedup", "metric", "expectation", "skill", "reason")
        plain = {k: _nothing(v) if k in optional else v for k, v in data.items()}
        return {k: forgiving[k](v) if k in forgiving else v for k, v in plain.items()}

    @model_validator(mode="after")
    def _complete(self) -> PlanReply:
        """A plan has all its parts; a pass has its reason."""
        if not self.worth_optimizing:
            if self.reason is None:
                raise ValueError("worth_optimizing is false, so reason must say why")
            return self
        needed = ("category", "change", "predicted_speedup", "metric", "expectation")
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"worth_optimizing is true, so {', '.join(missing)} must not be null")
        if not 1.0 <= (self.predicted_speedup or 0.0) <= LARGEST_SPEEDUP:
            raise ValueError(
                f"predicted_speedup is {self.predicted_speedup}: a change worth making is predicted "
                f"between 1 and {LARGEST_SPEEDUP:g} times the base's speed"
            )
        return self

    def answer(self) -> Plan | Pass:
        if not self.worth_optimizing:
            return Pass(self.reason or "")
        prediction = Prediction(self.predicted_speedup or 1.0, Metric(self.metric), self.expectation or "")
        return Plan(Category(self.category), self.bottleneck, self.change or "", prediction, self.skill)


def plan_contract(assignment: Assignment, skills: tuple[Skill, ...]) -> type[PlanReply]:
    """The planner's contract with this stage's categories and metrics and the skills on offer."""
    categories = tuple(c.value for c in assignment.categories)
    metrics = tuple(m.value for m in assignment.metrics or tuple(Metric))
    names = tuple(s.name for s in skills)
    return create_model(
        "PlanReply",
        __base__=PlanReply,
        category=(
            _one_of(categories),
            Field(default=None, description="the one kind of change; null when not worth it"),
        ),
        metric=(
            _one_of(metrics),
            Field(default=None, description="the one metric that shows the effect; null when not worth it"),
        ),
        skill=(
            _one_of(names),
            Field(default=None, description="the offered skill the change follows, or null"),
        ),
    )


def _one_of(values: tuple[str, ...]) -> Any:
    return Optional[Literal[values]] if values else None  # noqa: UP045


# -- the schema, the example, the check ------------------------------------------------------------


def schema_of(contract: type[Reply]) -> dict[str, Any]:
    """The contract as a strict JSON schema."""
    return _strict(contract.model_json_schema())


def _strict(node: Any) -> Any:
    """Required all, nothing else allowed, no titles or defaults; a constant is an enumeration of one."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {k: _strict(v) for k, v in node.items() if k not in ("title", "default")}
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    if isinstance(node.get("properties"), dict):
        plain["properties"] = {name: _strict(value) for name, value in node["properties"].items()}
        plain["required"] = list(node["properties"])
        plain["additionalProperties"] = False
        plain.pop("description", None)
    return plain


def example_of(schema: Mapping[str, Any]) -> str:
    """A reply of the right form with a description in the place of each value."""
    return json.dumps({n: _placeholder(p) for n, p in schema["properties"].items()}, indent=2)


def _placeholder(schema: Mapping[str, Any]) -> Any:
    kinds = schema.get("anyOf", [schema])
    first = kinds[0]
    if first.get("type") == "boolean":
        return True
    if first.get("type") == "null":
        return None
    if "enum" in first:
        return f"<{schema['description']}; one of: {', '.join(first['enum'])}>"
    form = "a number: " if first.get("type") == "number" else ""
    return f"<{form}{schema['description']}>"


def read(contract: type[Reply], reply: str) -> Any:
    """The last object in a reply that keeps the contract; else what is wrong with the last one."""
    objects = json_objects(reply)
    if not objects:
        raise Unreadable("no JSON object was found in the reply")
    problems: list[str] = []
    for found in objects:
        try:
            return contract.model_validate(found)
        except ValidationError as error:
            problems.append(_problems(error))
    raise Unreadable(problems[0])


def _problems(error: ValidationError) -> str:
    """One line per field, in words."""
    lines = []
    for item in error.errors(include_url=False, include_context=False):
        place = ".".join(str(p) for p in item["loc"] if isinstance(p, str) and not p.startswith("function"))
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] not in ("value_error", "missing"):
            message += f", not {json.dumps(item['input'])[:120]}"
        lines.append(f"{place}: {message}" if place else message)
    return "; ".join(dict.fromkeys(lines))
