"""Draw the worlds: what following each built-in skill brings, by lot and not by choice.

    python benchmarks/learning/draw.py > benchmarks/learning/worlds.tsv

For every family of programs, stage and skill, each world says a factor on the speed, or a refusal.
Whether a skill works has nothing to do with what it promises; how much it brings where it works lies
below the middle of what it promises, and never above 2. For one pair of program and skill in six the
lot is drawn again for that program alone, so that programs of one family teach each other, and also
mislead each other.
"""

from __future__ import annotations

import hashlib
import sys

from world import WORLDS, first_kernels

from egg.core.stage import Stage
from egg.knowledge.catalogue import load
from egg.knowledge.skill import SkillFile

STAGES = (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY)
WORKS, IN_VAIN, SLOWER = 0.40, 0.70, 0.88
"""Of a hundred skills 40 work, 30 change nothing, 18 make it slower, 12 are refused."""
ODD = 1 / 6


def drawn(*words: object) -> float:
    """Between 0 and 1, the same for the same words, everywhere."""
    return int.from_bytes(hashlib.sha256("\n".join(map(str, words)).encode()).digest()[:6]) / 2**48


def effect(skill: SkillFile, *parts: object) -> str:
    kind, size = drawn("kind", *parts), drawn("size", *parts)
    if kind < WORKS:
        most = min(skill.gain.expected, 2.0)
        return f"{max(1.03, 1 + (most - 1) * (0.1 + 0.9 * size)):.3f}"
    if kind < IN_VAIN:
        return "1"
    return f"{0.6 + 0.35 * size:.3f}" if kind < SLOWER else "refused"


def main() -> None:
    kernels = first_kernels()
    families = sorted({kernel["family"] for kernel in kernels.values()})
    rows = []
    for skill in load():
        for stage in (stage for stage in STAGES if skill.serves(stage)):
            for of in (*families, *sorted(kernels)):
                effects = [
                    effect(skill, world, of, stage, skill.name)
                    if of in families or drawn("odd", world, of, stage, skill.name) < ODD
                    else ""
                    for world in WORLDS
                ]
                if any(effects):
                    rows.append((of, stage.value, skill.name, *effects))
    print("of", "stage", "skill", *(f"world {world}" for world in WORLDS), sep="\t")
    for row in sorted(rows):
        print(*row, sep="\t")


if __name__ == "__main__":
    sys.exit(main())
