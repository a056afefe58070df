"""The command that serves runs and benches to a browser on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from egg.cli import run_options
from egg.cli.errors import error_boundary
from egg.cli.options import DebugOption, JsonOption
from egg.cli.render import clean
from egg.core.errors import MachineError, UsageError

PANEL = "Optimize programs"


def register(app: typer.Typer) -> None:
    app.command("view", rich_help_panel=PANEL)(view)


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="A run, a bench, or a folder of them; egg-runs if left out."),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="0 for one that is free.")
    ] = 8765,
    browser: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Serve runs and benches live to a browser on this machine: tables, charts and logs as they grow.

    Only this machine is answered, and nothing is changed. Ctrl-C ends it.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.cli.view_index import PlaceIndex
        from egg.cli.view_server import ViewServer

        place = folder or run_options.RUNS
        if not place.is_dir():
            raise UsageError(f"no such folder: {place}", "give the folder that holds runs or benches")
        try:
            server = ViewServer(PlaceIndex(place), port)
        except OSError as reason:
            raise MachineError(
                f"cannot listen on port {port}: {reason.strerror}", "use another one, as in --port 0"
            ) from None
        try:
            with server:
                _announce(server.address, place, as_json)
                if browser:
                    import webbrowser

                    webbrowser.open(server.address)
                server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _announce(address: str, place: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"address": address, "folder": str(place)}), flush=True)
    else:
        print(f"{clean(str(place))} at {address} (Ctrl-C ends it)", flush=True)
