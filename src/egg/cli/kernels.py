"""The commands of the kernel store: what ``torch.compile(backend="egg")`` met, and what became of it."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egg.cli.errors import error_boundary
from egg.cli.inputs import check_days
from egg.cli.lazy import command_group
from egg.cli.options import DebugOption, JsonOption
from egg.cli.render import clean, console, print_outcome
from egg.cli.tables import pairs, table
from egg.cli.words import plural
from egg.core.codec import to_json
from egg.core.errors import UsageError
from egg.store import Entry, Rejected, Store, Tuned, store_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

PANEL = "Look at what is known"
STATES = ("recorded", "tuned", "rejected")

StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        help="The kernel store; EGG_STORE, or egg/kernels under the user's data.",
    ),
]
StateOption = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="Of one state only: recorded, tuned, rejected.")
]
KeysArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY...]", help="Entries, by key or its beginning; all where left out."),
]
kernels = command_group(
    "kernels", 'The kernel store of torch.compile(backend="egg"): list, read, share, prune.'
)


def register(app: typer.Typer) -> None:
    app.add_typer(kernels, rich_help_panel=PANEL)


def opened(folder: Path | None) -> Store:
    """The store that was named, or the user's; a folder that is named must be there."""
    place = store_folder(folder, os.environ)
    if folder is not None and not place.is_dir():
        raise UsageError(f"no such folder: {folder}", "give the folder of a store")
    return _at(place)


@kernels.command("list")
def list_entries(
    state: StateOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Every graph that programs recorded, the heaviest first: how often it ran, and what became of it."""
    with error_boundary(debug=debug, as_json=as_json):
        place = opened(store)
        found = _of_state(place, state)
        if as_json:
            rows = [entry_json(entry) for entry in found]
            print(json.dumps({"store": str(place.folder), "entries": rows}, indent=2))
        elif found:
            shown = table("graph", "state", "calls", "compiled", "GPU", "what became of it", numbers=(2, 3))
            for entry in found:
                counts = (str(entry.seen.calls), str(entry.seen.compiled))
                gpu = clean(entry.claim.gpu or "none")
                shown.add_row(entry.name, entry.state.kind, *counts, gpu, clean(state_words(entry)))
            console().print(shown)
            print(f"{plural(len(found), 'graph')} in {clean(str(place.folder))}")
        else:
            print(f"no entries in {clean(str(place.folder))}")


@kernels.command("show")
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="An entry, by key or its beginning.")],
    task: Annotated[bool, typer.Option("--task", help="Print the task file alone.")] = False,
    kernel: Annotated[bool, typer.Option("--kernel", help="Print the kernel file alone.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """One entry: the graph, the terms it holds under, and the verdict."""
    with error_boundary(debug=debug, as_json=as_json):
        place = opened(store)
        entry = place.named(key)
        if task:
            print(entry.task, end="")
        elif kernel:
            path = place.kernel_path(entry)
            if path is None:
                raise UsageError(
                    f"{entry.key} is {entry.state.kind} and has no kernel", "see `egg kernels list`"
                )
            print(path.read_text(encoding="utf-8"), end="")
        elif as_json:
            print(json.dumps({**entry_json(entry), "entry": to_json(entry)}, indent=2))
        else:
            console().print(_entry_view(entry))


@kernels.command("prune")
def prune(
    state: StateOption = None,
    days: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", help="Whose verdict is older.")
    ] = None,
    others: Annotated[
        bool, typer.Option("--other-versions", help="Made with other versions of torch, triton or egg.")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Delete entries for which all of the given conditions hold, with their kernels and runs."""
    with error_boundary(debug=debug, as_json=as_json):
        if state is None and days is None and not others:
            raise UsageError("nothing says what to delete", "give --state, --older-than or --other-versions")
        check_days(days)
        place = opened(store)
        found = [entry for entry in _of_state(place, state) if _old(entry, days) and _other(entry, others)]
        count = len(found) if dry else place.remove(found)
        message = f"{'would delete' if dry else 'deleted'} {plural(count, 'graph')}"
        print_outcome({"deleted": 0 if dry else count, "matching": len(found)}, message, as_json)


@kernels.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A store to write to; made where needed.")],
    keys: KeysArgument = None,
    state: StateOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Copy entries with their kernels to another folder, which is a store of its own."""
    with error_boundary(debug=debug, as_json=as_json):
        source = opened(store)
        chosen = _of_state(source, state)
        if keys:
            named = {source.named(key).key for key in keys}
            chosen = [entry for entry in chosen if entry.key in named]
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file", "give a folder")
        count = _at(folder).take_in(source, chosen)
        print_outcome(
            {"exported": count, "folder": str(folder)},
            f"{plural(count, 'graph')} -> {folder}",
            as_json,
        )


@kernels.command("import")
def import_folder(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Another store, or one that was exported.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Take in the entries of another store. A kernel is code: import from those you trust alone."""
    with error_boundary(debug=debug, as_json=as_json):
        if not folder.is_dir():
            raise UsageError(f"no such folder: {folder}", "give the folder of a store")
        source = _at(folder)
        found = source.entries()
        count = _at(store_folder(store, os.environ)).take_in(source, found)
        message = f"{plural(count, 'graph')} taken in, {len(found) - count} known already"
        print_outcome({"read": len(found), "taken": count}, message, as_json)


# -- views -------------------------------------------------------------------------------------------


def entry_json(entry: Entry) -> dict[str, Any]:
    state = entry.state
    return {
        "key": entry.key,
        "state": state.kind,
        "reason": state.reason if isinstance(state, Rejected) else None,
        "kernel": state.kernel if isinstance(state, Tuned) else None,
        "speedups": to_json(state.speedups) if isinstance(state, Tuned) else {},
        "seen": {**to_json(entry.seen), "weight": entry.seen.weight},
        "gpu": entry.claim.gpu,
        "versions": {name: getattr(entry.claim, name) for name in ("torch", "triton", "egg")},
        "policy": to_json(entry.claim.policy),
        "failures": list(entry.failures),
    }


def state_words(entry: Entry) -> str:
    state = entry.state
    if isinstance(state, Rejected):
        return state.reason
    if not isinstance(state, Tuned):
        return "not tuned yet"
    if not state.measured:
        return "verified; no GPU measured it"
    return ", ".join(f"{found.median:.2f}x over {name}" for name, found in state.speedups.items())


def _entry_view(entry: Entry) -> RenderableType:
    claim = entry.claim
    rows = [
        ("key", entry.key),
        ("state", f"{entry.state.kind}: {clean(state_words(entry))}"),
        ("decided", entry.when or "not yet"),
        ("seen", f"{plural(entry.seen.calls, 'call')}, compiled {plural(entry.seen.compiled, 'time')}"),
        ("GPU", clean(claim.gpu or "none")),
        ("versions", clean(f"torch {claim.torch}, triton {claim.triton}, egg {claim.egg}")),
        ("policy", f"precision {claim.policy.precision}, library calls {claim.policy.library_calls}"),
        *(("failed in use", clean(failure)) for failure in entry.failures),
        *(("takes", clean(line)) for line in claim.inputs),
        ("graph", clean(claim.graph)),
    ]
    return pairs(rows)


def _at(folder: Path) -> Store:
    def notice(text: str) -> None:
        console(sys.stderr).print(f"egg: {clean(text)}", style="yellow", soft_wrap=True)

    return Store(folder, notice)


def _of_state(store: Store, state: str | None) -> list[Entry]:
    if state is not None and state not in STATES:
        raise UsageError(f"unknown state: {state!r}", f"one of {', '.join(STATES)}")
    return [entry for entry in store.entries() if state in (None, entry.state.kind)]


def _old(entry: Entry, days: float | None) -> bool:
    if days is None:
        return True
    limit = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return bool(entry.when) and entry.when <= limit


def _other(entry: Entry, wanted: bool) -> bool:
    if not wanted:
        return True
    from egg.api.tuning import Here

    here = Here.now()
    return not here.same_versions(entry.claim)
