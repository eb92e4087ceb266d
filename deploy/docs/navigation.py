"""The order of the site's pages: by the three people, as the guides' own lists have them."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from deploy.docs.guides import Guide, page_of

Entry: TypeAlias = dict[str, "str | list[Entry]"]

_FIRST, _LIST = "README.md", "docs/README.md"
# By the tab's name: the heading of the list in reading order.
_PEOPLE = {
    "Deploy": "You put clients on devices and keep them running",
    "Tune the noise": "You tune the noise and must prove the budget",
    "Serve": "You serve each person's exported model",
}
_PYTHON = "docs/python.md"
_DECISIONS, _RESULTS = "docs/decisions/README.md", "docs/results/README.md"
_OWN = ("SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


class ReadingOrderError(ValueError):
    """Raised when the guides' list lacks a part of the reading order."""


def navigation(guides: Mapping[str, Guide], reference: Sequence[Entry]) -> list[Entry]:
    """Return the navigation, in which every guide stands once.

    Args:
        guides: By path.
        reference: The pages that are made for the site.

    Raises:
        ReadingOrderError: If the list of guides has no list for one of the three people.
    """
    placed: set[str] = set()

    def next_of(paths: Sequence[str]) -> list[str]:
        fresh = [path for path in paths if path in guides and path not in placed]
        placed.update(fresh)
        return fresh

    tabs: list[Entry] = [{"Start": _titled(next_of([_FIRST, _LIST]), guides)}]
    python, own = next_of([_PYTHON]), next_of(_OWN)
    decisions = next_of([_DECISIONS, *_linked(guides[_DECISIONS], guides, "docs/decisions/")])
    results = next_of([_RESULTS, *_linked(guides[_RESULTS], guides, "docs/results/")])
    for tab, heading in _PEOPLE.items():
        paths = next_of(_linked(guides[_LIST], guides, under=heading))
        tabs.append({tab: _titled(paths, guides)})
    # Guides that no list names lie beside what they are about.
    beside: Entry = {"Folders": _titled(next_of(sorted(guides)), guides)}
    return [
        *tabs,
        {"Reference": [*_titled(python, guides), *reference]},
        {"Decisions": _titled(decisions, guides)},
        # A table's own heading says all that it compares, which is too long here.
        {"Results": [{_stem(path): path} for path in results]},
        {"The project": [*_titled(own, guides), beside]},
    ]


def _linked(
    guide: Guide, guides: Mapping[str, Guide], within: str = "", *, under: str | None = None
) -> list[str]:
    """Return the guides of a folder that one links to, below one heading or anywhere."""
    if under is not None and under not in guide.headings:
        raise ReadingOrderError(f'{guide.path} must have the heading "{under}", got none')
    targets = [
        page_of(guide.target(link), guides)
        for link in guide.links
        if not link.is_outside and under in (None, link.under)
    ]
    return list(dict.fromkeys(path for path in targets if path and path.startswith(within)))


def _titled(paths: Sequence[str], guides: Mapping[str, Guide]) -> list[Entry]:
    return [{(guides[path].headings or [_stem(path)])[0]: path} for path in paths]


def _stem(path: str) -> str:
    name = path.rpartition("/")[2].removesuffix(".md")
    return "All of them" if name == "README" else name
