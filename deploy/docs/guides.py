"""The guides of a checkout: Markdown files, their headings and their links, read as CommonMark.

References:
    CommonMark, https://spec.commonmark.org, and the anchors that GitHub gives to headings.
"""

import posixpath
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable("table")
_BREAKS = ("softbreak", "hardbreak")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class CheckoutError(Exception):
    """Raised where the files of a checkout cannot be listed."""


@dataclass(frozen=True)
class Link:
    """One link or picture of a guide.

    Attributes:
        line: Its line in the file, from 1.
        written: As it stands there.
        under: Heading of its section, as plain text; empty before the first.
    """

    line: int
    written: str
    under: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether it leads to another host, which is not looked at."""
        return bool(_SCHEME.match(self.written)) or self.written.startswith("//")

    @property
    def path(self) -> str:
        """Return its path without the anchor; empty for one within the same guide."""
        return unquote(self.written.partition("#")[0])

    @property
    def anchor(self) -> str:
        """Return the anchor that it ends with, or nothing."""
        return unquote(self.written.partition("#")[2])


@dataclass(frozen=True)
class Guide:
    """One Markdown file.

    Attributes:
        path: From the checkout's root, with slashes.
        text: What it holds.
    """

    path: str
    text: str

    def target(self, link: Link) -> str:
        """Return the path from the root that a link leads to; it begins with .. outside of it."""
        if not link.path:
            return self.path
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.path), link.path))

    @cached_property
    def headings(self) -> Sequence[str]:
        """The headings, as plain text and in order."""
        return [text for text, _ in self._by_heading if text is not None]

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The anchors of the headings; of equal ones, the later have a number."""
        met: dict[str, int] = {}
        found = set()
        for heading in self.headings:
            name = slug(heading)
            found.add(f"{name}-{met[name]}" if name in met else name)
            met[name] = met.get(name, 0) + 1
        return frozenset(found)

    @cached_property
    def links(self) -> Sequence[Link]:
        """Every link and picture, those in HTML included, in order."""
        return [
            Link(link.line, link.written, under or "")
            for under, tokens in self._by_heading
            for token in tokens
            for link in _links(token)
        ]

    @cached_property
    def _by_heading(self) -> list[tuple[str | None, list[Token]]]:
        """What the guide holds: first what has no heading, then each heading with what follows."""
        parts: list[tuple[str | None, list[Token]]] = [(None, [])]
        tokens = _PARSER.parse(self.text)
        for place, token in enumerate(tokens):
            if token.type == "heading_open":
                parts.append((_plain(tokens[place + 1]), []))
            parts[-1][1].append(token)
        return parts


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading, as GitHub makes it and as the site does."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def tracked_files(root: Path) -> list[str]:
    """Return the paths of all files that git keeps, or would keep once they are added.

    Raises:
        CheckoutError: If the folder is no checkout, or git is missing.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise CheckoutError(
            f"{root} must be a checkout, and git installed: links lead to its files"
        ) from None
    names = set(done.stdout.split("\0")) - {""}
    # What was deleted and not yet committed is still listed.
    return sorted(name for name in names if (root / name).is_file())


def read_guides(root: Path, files: Sequence[str]) -> dict[str, Guide]:
    """Return the guides among the files, by path."""
    return {
        path: Guide(path, (root / path).read_text(encoding="utf-8"))
        for path in files
        if path.endswith(".md")
    }


def page_of(target: str, guides: Mapping[str, Guide]) -> str | None:
    """Return the guide that a path leads to: itself, or the README of a folder."""
    return next((path for path in (target, f"{target}/README.md") if path in guides), None)


def _plain(inline: Token) -> str:
    return "".join(
        child.content for child in inline.children or () if child.type in ("text", "code_inline")
    )


def _links(token: Token) -> Iterator[Link]:
    line = token.map[0] + 1 if token.map else 0
    if token.type == "html_block":
        yield from _html_links(token.content, line)
    for child in token.children or ():
        if child.type in _BREAKS:
            line += 1
        elif child.type == "html_inline":
            yield from _html_links(child.content, line)
        elif written := child.attrGet("href") or child.attrGet("src"):
            yield Link(line, str(written))


def _html_links(text: str, line: int) -> list[Link]:
    reader = _HtmlReader(line)
    reader.feed(text)
    return reader.found


class _HtmlReader(HTMLParser):
    """Collects what the tags of a piece of HTML lead to."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.found: list[Link] = []
        self._line = line

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep where one tag leads."""
        line = self._line + self.getpos()[0] - 1
        self.found += [
            Link(line, value) for name, value in attrs if name in ("href", "src") and value
        ]
