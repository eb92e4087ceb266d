"""The last look at a built site: everything that a page loads or leads to lies in its folder."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# By tag: the attributes that a browser follows by itself.
_LOADED = {
    "script": "src",
    "img": "src",
    "audio": "src",
    "source": "src",
    "iframe": "src",
    "link": "href",
}


def missing(site: Path) -> Iterator[str]:
    """Yield a line for each thing that a page loads from another host, or that is not there."""
    for page in sorted(site.rglob("*.html")):
        reader = _Reader()
        reader.feed(page.read_text(encoding="utf-8"))
        for tag, address in reader.found:
            parts = urlsplit(address)
            if parts.scheme in ("data", "mailto"):
                continue
            place = f"{page.relative_to(site)}: {tag} {address}"
            if parts.scheme or parts.netloc:
                if tag in _LOADED:
                    yield f"{place}: is loaded from another host"
            elif parts.path and not (page.parent / unquote(parts.path)).exists():
                yield f"{place}: is not there"


class _Reader(HTMLParser):
    """Collects what the tags of a page load and lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where one tag leads."""
        wanted = "href" if tag == "a" else _LOADED.get(tag)
        given = dict(attrs)
        if wanted and given.get("rel") != "canonical" and (address := given.get(wanted)):
            self.found.append((tag, address))
