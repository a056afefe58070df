"""``egg mcp``: the verbs of runs, the judge and the skills as tools of the Model Context Protocol (stdio)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from egg import __version__
from egg.cli.errors import error_boundary
from egg.cli.options import DebugOption
from egg.core.errors import EggError, MachineError

if TYPE_CHECKING:
    from mcp.server import MCPServer

PANEL = "Answer by hand, judge elsewhere"


def register(app: typer.Typer) -> None:
    app.command("mcp", rich_help_panel=PANEL)(mcp_command)


def mcp_command(debug: DebugOption = False) -> None:
    """Serve EGG's tools to a coding agent (Model Context Protocol on standard input and output).

    The agent's configuration starts this command; docs/mcp.md has the lines. Exit 0 when the agent
    closes its end, 3 where the mcp package is missing.
    """
    with error_boundary(debug=debug, as_json=False):
        server().run("stdio")


def server() -> MCPServer:
    """The server with all of its tools."""
    try:
        from mcp.server import MCPServer
    except ModuleNotFoundError:
        raise MachineError("the package mcp is not installed", "pip install 'egg-kernels[mcp]'") from None
    from egg.cli.mcp_tools import INSTRUCTIONS, TOOLS

    made = MCPServer("egg", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for name, tool in TOOLS.items():
        made.tool(name=name, structured_output=False)(as_text(tool))
    return made


def as_text(tool: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """The tool with its result as JSON text, and mistakes as errors that the agent can read."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def called(*arguments: Any, **options: Any) -> str:
        try:
            return json.dumps(tool(*arguments, **options), indent=1)
        except EggError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise ToolError(f"{error.message}{hint}") from None

    called.__annotations__ = {**tool.__annotations__, "return": "str"}
    return called
