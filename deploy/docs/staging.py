"""Lay out what the site is built from: guides, what they link to, and pages made for it.

Every file keeps its path, so a guide's links lead to the same places as in a checkout. Only links
to files that a browser would not show are changed: they lead to a page that shows the file.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from deploy.docs.guides import Guide, page_of
from deploy.docs.reference import folder_page, source_page

# What a browser shows or plays by itself, or what nobody reads.
_AS_THEY_ARE = (".png", ".wav", ".json", ".jsonl", ".txt")
_THEME = Path(__file__).with_name("theme")


def stage(
    root: Path,
    target: Path,
    guides: Mapping[str, Guide],
    files: Iterable[str],
    made: Mapping[str, str],
) -> None:
    """Write the folder that the site is built from.

    Args:
        root: The checkout.
        target: The folder, empty.
        guides: By path; every link of theirs leads somewhere.
        files: Every path of the checkout.
        made: By path, the pages that are made for the site.

    Raises:
        ValueError: If a page that was made leads nowhere.
    """
    pages = {**guides, **{path: Guide(path, text) for path, text in made.items()}}
    tree = _Tree(root, target, sorted(files), pages)
    for page in pages.values():
        tree.write(page.path, tree.linked(page))
    shutil.copytree(_THEME, target / _THEME.name)


class _Tree:
    """The folder as it fills: a file that is linked to is laid out with the first link to it."""

    def __init__(
        self, root: Path, target: Path, files: list[str], guides: Mapping[str, Guide]
    ) -> None:
        self._root, self._target, self._guides = root, target, guides
        self._files = files
        self._there = set(files)
        self._done: set[str] = set()

    def linked(self, guide: Guide) -> str:
        """Return a guide's text with links to the pages that show files and folders."""
        text = guide.text
        for link in guide.links:
            if link.is_outside or not link.path:
                continue
            path = link.written.partition("#")[0]
            if addition := self._shown(guide.target(link)):
                text = text.replace(f"]({path})", f"]({path.rstrip('/')}{addition})")
        return text

    def write(self, path: str, text: str) -> None:
        """Write one page."""
        (self._target / path).parent.mkdir(parents=True, exist_ok=True)
        (self._target / path).write_text(text, encoding="utf-8")

    def copy(self, path: str) -> None:
        """Lay out a file as it is."""
        (self._target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._root / path, self._target / path)

    def _shown(self, path: str) -> str:
        """Lay out what a path names, and return what its page's path has at the end."""
        if path in self._guides:
            return ""
        if path in self._there:
            return self._file(path)
        if page_of(path, self._guides) is None and path not in self._done:
            self._done.add(path)
            self._folder(path)
        return "/README.md"

    def _file(self, path: str) -> str:
        ending = "" if path.endswith(_AS_THEY_ARE) else ".md"
        if path not in self._done:
            self._done.add(path)
            if ending:
                text = (self._root / path).read_text(encoding="utf-8")
                self.write(path + ending, source_page(path, text))
            else:
                self.copy(path)
        return ending

    def _folder(self, path: str) -> None:
        names = [
            name.removeprefix(f"{path}/") for name in self._files if name.startswith(f"{path}/")
        ]
        if not names:
            raise ValueError(f"a page leads to {path}, which is not there")
        linked = [name for name in names if not name.endswith(_AS_THEY_ARE)]
        listing = Guide(f"{path}/README.md", folder_page(path, names, linked))
        self.write(listing.path, self.linked(listing))
