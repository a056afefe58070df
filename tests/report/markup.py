"""A page as a strict reader sees it: which elements it has, what they may do, and its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"wbr", "meta", "input", "br", "img", "hr", "link"}
HARMLESS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "footer",
        "nav",
        "section",
        "article",
    ),
    *("figure", "figcaption", "h1", "h2", "h3", "h4", "p", "a", "span", "strong", "b", "code", "pre"),
    *("div", "dl", "dt", "dd", "ul", "ol", "li", "details", "summary", "table", "thead", "tbody", "tr", "th"),
    *("td", "wbr", "button", "form", "label", "input", "select", "option", "sub", "script"),
    *("svg", "g", "path", "rect", "circle", "line", "text", "desc"),
}


@dataclass
class Page(HTMLParser):
    """Fails at once on what no page of ours may hold."""

    tags: dict[str, int] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    broken: bool = False
    """Whether the word before may go on in a new line."""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in HARMLESS, tag
        self.broken = tag == "wbr"
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("style", "src", "srcset", "action", "xlink:href"), (tag, name)
            if name == "href":
                assert (value or "").startswith("#"), value
                self.links.append((value or "")[1:])
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.inside, tag
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"script", "style"} & set(self.inside[-1:]):
            return
        if self.broken:
            self.words[-1] += data
        else:
            self.words.append(data)
        self.broken = False

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def parsed(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    assert not page.inside, page.inside
    assert len(page.ids) == len(set(page.ids)), "an id twice"
    assert set(page.links) <= set(page.ids), set(page.links) - set(page.ids)
    assert (page.tags["script"], page.tags["style"]) == (1, 1)
    return page
