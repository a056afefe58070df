"""A group of commands whose modules are imported when a command is called, not when the group is listed.

``egg --help`` and shell completion need names and one sentence each. They come from a table; the module that
implements a command, with everything it imports, is loaded only when that command runs. The help of the group
is written by click's plain formatter: Typer's own imports a Markdown parser and a highlighter to print it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


def command_group(name: str, help: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A command that has commands of its own; without one it prints its help."""
    return typer.Typer(
        name=name,
        cls=cls,
        help=help,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_commands(app: typer.Typer, panel: str, commands: Mapping[str, Callable[..., None]]) -> None:
    """Add commands by name, listed under ``panel`` in the help."""
    for name, function in commands.items():
        app.command(name, rich_help_panel=panel)(function)


@dataclass(frozen=True)
class Entry:
    """One command: its name, the module whose ``register`` adds it, and its line in the help."""

    name: str
    module: str
    panel: str
    help: str


class LazyGroup(TyperGroup):
    """Lists its commands from ``entries`` and imports one when it is asked for."""

    entries: ClassVar[tuple[Entry, ...]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = next((entry for entry in self.entries if entry.name == cmd_name), None)
        if entry is None:
            return None
        if cmd_name not in self.commands:
            self._load(ctx, entry.module)
        return self.commands[cmd_name]

    def _load(self, ctx: Any, module: str) -> None:
        """Take over every command that the module registers, each under its own name."""
        loaded = typer.Typer(callback=lambda: None)
        import_module(module).register(loaded)
        group: Any = typer.main.get_group(loaded)
        for name, command in group.commands.items():
            _hide_flag_types(command, ctx)
            self.commands[name] = command

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            _hide_flag_type(param)
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])
        for panel, entries in groupby(self.entries, key=lambda entry: entry.panel):
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.help) for entry in entries])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete with commands that have a name and a help and nothing behind them."""
        loaded: Any = self.commands
        self.commands = {entry.name: TyperCommand(entry.name, help=entry.help) for entry in self.entries}
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = loaded


def _hide_flag_types(command: Any, ctx: Any) -> None:
    """Show ``--json`` and not ``--json <bool>``, in a command and in its subcommands."""
    for param in [*command.params, command.get_help_option(ctx)]:
        _hide_flag_type(param)
    for inner in getattr(command, "commands", {}).values():
        _hide_flag_types(inner, ctx)


def _hide_flag_type(param: Any) -> None:
    if getattr(param, "is_flag", False) and param.metavar is None:
        param.metavar = ""
