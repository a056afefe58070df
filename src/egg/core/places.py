"""Where a user's own files are: the XDG base directories, where a variable counts if it is absolute."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_folder(environ: Mapping[str, str]) -> Path:
    """What a user decides and measures: ``$XDG_CONFIG_HOME/egg``, or ``~/.config/egg``."""
    return _folder(environ, "XDG_CONFIG_HOME", ".config")


def data_folder(environ: Mapping[str, str]) -> Path:
    """What runs have learned: ``$XDG_DATA_HOME/egg``, or ``~/.local/share/egg``."""
    return _folder(environ, "XDG_DATA_HOME", ".local/share")


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    named = environ.get(variable, "")
    home = Path(environ.get("HOME", "~")).expanduser()
    return (Path(named) if os.path.isabs(named) else home / usual) / "egg"
