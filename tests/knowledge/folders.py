"""Folders of skills, written for a test."""

from __future__ import annotations

from pathlib import Path

BODY = """## When

{when}

## How

Do it.

## Expected

Less time.

## Risks

None.
"""


def write_skill(
    folder: Path,
    name: str,
    *,
    gate: str = "true",
    stage: str = "structure",
    categories: str = "operator_fusion",
    when: str = "Now.",
    **more: str,
) -> Path:
    """One ``SKILL.md`` in ``folder/name``; ``more`` are further lines of metadata."""
    metadata = {"stage": stage, "categories": categories, "families": "any", "hardware": "any", "gate": gate}
    metadata |= {"gain": "1.2-3", **more}
    if stage == "debugging":
        metadata.pop("categories")
    lines = "".join(f"  {key}: {value}\n" for key, value in metadata.items() if value)
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {name}\ndescription: What {name} does.\nmetadata:\n{lines}---\n"
    path.write_text(head + BODY.format(when=when), encoding="utf-8")
    return path
