"""The few pieces that pictures are made of: an element, words at a place, text that cannot be markup."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def element(name: str, body: str = "", *, kind: str = "", **attributes: str | float) -> str:
    """One element; ``kind`` is its class, fractions are written with one decimal.

    ``body`` is markup and goes in as it is; attributes are values and are quoted.
    """
    named = {"class": kind, **attributes} if kind else attributes
    values = {key: value if isinstance(value, str) else _number(value) for key, value in named.items()}
    shown = "".join(f" {key}={quoteattr(value)}" for key, value in values.items())
    return f"<{name}{shown}>{body}</{name}>" if body else f"<{name}{shown}/>"


def words(
    content: str,
    x: float,
    y: float,
    anchor: str = "",
    kind: str = "",
    *,
    weight: int = 0,
    transform: str = "",
) -> str:
    placed: dict[str, str | float] = {"x": x, "y": y}
    placed |= {"text-anchor": anchor} if anchor else {}
    placed |= {"font-weight": str(weight)} if weight else {}
    placed |= {"transform": transform} if transform else {}
    return element("text", text(content), kind=kind, **placed)


def text(content: str) -> str:
    """Fit for XML: what it cannot hold is replaced, what it would read as markup is escaped."""
    return escape(visible(content, ""))


def visible(content: str, keep: str = "\n\t") -> str:
    """Without what is not seen: control characters, lone surrogates, marks that turn the writing around."""
    if content.isprintable():
        return content
    return "".join(c if c.isprintable() or c in keep else REPLACEMENT for c in content)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}"
