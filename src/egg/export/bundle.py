"""A bundle: a run's claim with everything that a stranger needs to repeat it.

``bundle.json`` names every file with its SHA-256, the terms that the kernel was judged under, the run's seed
and target, and the machine. A reader recomputes all of it, and the content hashes that the evaluation itself
names: a bundle in which anything was changed is refused. Hashes prove that the files belong together, not who
wrote them; the digest of ``bundle.json`` is short enough to be published beside the claim.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg import __version__
from egg.api.runs import state_of
from egg.core.codec import to_json
from egg.core.errors import EggError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.source import Candidate, Task
from egg.engine.log import LOG
from egg.export.claims import claim_of
from egg.export.package import Claim, write_all

MANIFEST, TASK, KERNEL, EVALUATION = "bundle.json", "task.py", "kernel.py", "evaluation.json"
SCHEMA = "egg.bundle/1"
LARGEST = 1 << 28
"""Bytes of one file of a zip that are read."""


@dataclass(frozen=True)
class Bundle:
    claim: Claim
    target: str | None
    digest: str
    """Of the manifest, and so of everything."""


def write_bundle(run: Path, place: Path) -> str:
    """Pack the run; returns the digest. A name that ends in ``.zip`` makes one file."""
    state = state_of(run)
    claim = claim_of(run, state)
    settings = state.started.settings
    texts = {
        TASK: claim.task.source,
        KERNEL: claim.kernel.source,
        EVALUATION: json.dumps(claim.evaluation.to_json(), indent=2) + "\n",
        LOG: (run / LOG).read_text(encoding="utf-8"),
    }
    manifest = {
        "schema": SCHEMA,
        "egg": __version__,
        "task": claim.task.name,
        "task_hash": claim.task.hash,
        "task_sha256": claim.task.sha256,
        "kernel_hash": claim.kernel.hash,
        "kernel_sha256": claim.kernel.sha256,
        "policy": to_json(claim.evaluation.policy),
        "machine": to_json(claim.evaluation.machine),
        "seed": settings.seed,
        "target": settings.target,
        "verdict": state.closed.verdict if state.closed is not None else None,
        "files": {name: _sha256(text.encode("utf-8")) for name, text in texts.items()},
    }
    texts[MANIFEST] = json.dumps(manifest, indent=2) + "\n"
    if place.suffix != ".zip":
        write_all(place, texts)
    elif place.exists():
        raise UsageError(f"{place} exists", "name a file that does not exist yet")
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
    return _sha256(texts[MANIFEST].encode("utf-8"))[:16]


def read_bundle(place: Path) -> Bundle:
    """The bundle, with every hash recomputed; :class:`UsageError` where one differs or a file is missing."""
    held = _files(place)
    manifest = _json(held, MANIFEST, place)
    if manifest.get("schema") != SCHEMA or not isinstance(manifest.get("files"), dict):
        raise _refused(place, f"{MANIFEST} is not of the schema {SCHEMA}")
    for name, wanted in manifest["files"].items():
        if name not in held:
            raise _refused(place, f"{name} is missing")
        if _sha256(held[name]) != wanted:
            raise _refused(place, f"{name} is not the file that {MANIFEST} names")
    if missing := {TASK, KERNEL, EVALUATION} - manifest["files"].keys():
        raise _refused(place, f"{MANIFEST} does not name {', '.join(sorted(missing))}")
    try:
        evaluation = Evaluation.from_json(_json(held, EVALUATION, place))
        task = Task(str(manifest.get("task")), held[TASK].decode("utf-8"))
        kernel = Candidate(held[KERNEL].decode("utf-8"), "kernel")
    except (ValueError, TypeError, KeyError, EggError) as reason:
        raise _refused(place, f"its files cannot be read: {reason}") from None
    if (
        not _names(evaluation, task, kernel)
        or to_json(evaluation.policy) != manifest.get("policy")
        or not evaluation.accepted
    ):
        raise _refused(
            place, "the evaluation is not an acceptance of this kernel for this task on these terms"
        )
    target = manifest.get("target")
    claim = Claim(task, kernel, evaluation)
    return Bundle(claim, target if isinstance(target, str) else None, _sha256(held[MANIFEST])[:16])


def _names(evaluation: Evaluation, task: Task, kernel: Candidate) -> bool:
    """Whether an evaluation is on these files. One of an earlier version has their names alone; nothing is
    believed for that, because `egg verify` judges the kernel again."""
    whole = (evaluation.task_sha256, evaluation.candidate_sha256)
    if whole == ("", ""):
        return (evaluation.task_hash, evaluation.candidate_hash) == (task.hash, kernel.hash)
    return whole == (task.sha256, kernel.sha256)


def _files(place: Path) -> dict[str, bytes]:
    try:
        if place.is_dir():
            return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
        with zipfile.ZipFile(place) as archive:
            small = [info for info in archive.infolist() if info.file_size <= LARGEST]
            return {info.filename: archive.read(info) for info in small}
    except FileNotFoundError:
        raise UsageError(f"no such bundle: {place}", "give a folder or a zip of `egg bundle`") from None
    except (OSError, zipfile.BadZipFile) as reason:
        raise _refused(place, str(reason)) from None


def _json(held: dict[str, bytes], name: str, place: Path) -> dict[str, Any]:
    try:
        found = json.loads(held[name])
    except (KeyError, ValueError):
        raise _refused(place, f"{name} is missing or no JSON") from None
    if not isinstance(found, dict):
        raise _refused(place, f"{name} is no JSON object")
    return found


def _refused(place: Path, reason: str) -> UsageError:
    return UsageError(f"{place} is no sound bundle: {reason}", "ask for the bundle again; nothing was judged")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
