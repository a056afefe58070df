"""A real browser for the pages: Chromium, driven by Playwright, cut off from every network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESK, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}

CONTRASTS = """() => {
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const behind = (part) => {
    for (; part; part = part.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(part).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const worst = {};
  for (const details of document.querySelectorAll("details")) details.open = true;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const part = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || part.closest("script, style, option, title, desc")) continue;
    if (!part.getClientRects().length) continue;
    const style = getComputedStyle(part);
    const ink = part.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(behind(part))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const name = `${part.tagName} ${part.getAttribute("class") || ""} ${ink} on ${behind(part)}`;
    if (ratio < 4.5) worst[name] = ratio;
  }
  return worst;
}"""
"""Every text that is seen and whose contrast is below WCAG's AA for normal size."""


@dataclass
class Seen:
    """One open page, and everything that went wrong or out since it was opened."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """Everything that was asked for, whether or not it was let through..."""
    answers: list[str] = field(default_factory=list)
    """...and what was."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running browser, the system's or Playwright's own; tests that need one are skipped without."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with api.sync_playwright() as playwright:
        places = (*map(shutil.which, NAMES), playwright.chromium.executable_path)
        path = next((place for place in places if place and Path(place).exists()), None)
        if path is None:
            pytest.skip("Chromium is not installed: make browser")
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def opened(
    chromium: Any, file: Path, size: dict[str, int] | None = None, scheme: str = "light", **terms: Any
) -> Iterator[Seen]:
    """The page in ``file``, as somebody with that screen and that scheme opens it."""
    context = chromium.new_context(viewport=size or DESK, color_scheme=scheme, **terms)
    seen = Seen(context.new_page())
    seen.page.on("console", lambda message: seen.complaints.append(message.text))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("response", lambda response: seen.answers.append(response.url))
    seen.page.goto(file.as_uri())
    try:
        yield seen
    finally:
        context.close()
