"""Pages: templates filled so that no text from a run can become markup, and the page loads nothing.

What a page shows was written by models, kernels and strangers. Three walls stand between it and the reader.
Every value is escaped on its way into a template, and stripped of characters that are not seen. The page's
policy (a ``meta`` element) forbids every request, and every script and style but the two in the page, which
it names by their hashes. And there are no attributes that run or style anything, so that the policy needs
no exception.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from egg.report import markdown, numbers
from egg.report.difference import Line
from egg.report.elements import visible
from egg.report.highlight import highlighted
from egg.report.roofline_svg import STYLE as ROOFLINE_STYLE

TEMPLATES = "templates"


Filters = Mapping[str, Callable[..., Any]]
"""What a template may do with a value besides what all of them may."""


@dataclass(frozen=True)
class Live:
    """What a page knows that is served and follows its files: which state it shows, and where else to go."""

    tag: str
    """Names the state of the files; the server answers ``304`` while it is the same."""
    links: tuple[tuple[str, str], ...] = ()
    """Names and addresses on the same server..."""
    here: str = ""
    """...and which of them this page has."""


def page(template: str, *, filters: Filters | None = None, live: Live | None = None, **values: Any) -> str:
    """An HTML page that stands alone; a ``live`` one also asks its own server, and only it, for news."""
    style, script = _asset("style.css") + ROOFLINE_STYLE, _asset("script.js")
    if live is not None:
        script += _asset("live.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        + ("connect-src 'self'; " if live is not None else "")
        + "base-uri 'none'; form-action 'none'"
    )
    own = {"style": Markup(style), "script": Markup(script), "policy": policy, "live": live}
    return _environment(True, filters or {}).get_template(template).render(**own, **values)


def plain(template: str, *, filters: Filters | None = None, **values: Any) -> str:
    """A text without markup of ours: values go in visible, and otherwise as they are."""
    return _environment(False, filters or {}).get_template(template).render(**values)


def _environment(markup: bool, filters: Filters) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("egg.report", TEMPLATES),
        autoescape=markup,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {**numbers.FILTERS, **filters}
    own = {"python": highlighted, "marked": _marked, "breakable": _breakable}
    environment.filters |= own if markup else markdown.FILTERS
    return environment


def _shown(value: Any) -> Any:
    """Whatever is put into a page: markup of ours as it is, anything else as text that can be seen."""
    if isinstance(value, Markup):
        return value
    return visible(str(value))


def _marked(lines: tuple[Line, ...]) -> Markup:
    """A difference, line by line. A reader who sees no colour has the signs."""
    return Markup("\n".join(map(_line, lines)))


def _breakable(name: str) -> Markup:
    """A long name, which may go on in the next line behind each underscore."""
    return Markup(escape(visible(name)).replace("_", "_<wbr>"))


def _line(line: Line) -> str:
    shown = escape(visible(line.kind.value + line.text, "\t"))
    return f'<span class="{line.kind.name.lower()}">{shown}</span>'


def _asset(name: str) -> str:
    return resources.files("egg.report").joinpath(TEMPLATES, name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
