"""The rules of links between guides and into the tree."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from deploy.docs.guides import Guide, Link, page_of

# A guide named in a comment, a message or a unit, from the root as everywhere in this project.
_NAMED = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.md(?:#([\w-]+))?")
_PROSE = (".py", ".toml", ".proto", ".yaml", ".yml", ".service", ".timer", ".sh", ".Containerfile")
_FIRST = "README.md"


def broken(guides: Mapping[str, Guide], files: Sequence[str]) -> Iterator[str]:
    """Yield a line for each link that leads nowhere, with its file, its line and what is wrong.

    Args:
        guides: By path.
        files: Every path of the checkout.
    """
    folders = {"."} | {path[:place] for path in files for place in _slashes(path)}
    there = folders.union(files)
    for guide in guides.values():
        for link in guide.links:
            if not link.is_outside and (wrong := _wrong(guide, link, guides, there)):
                yield f"{guide.path}:{link.line}: {link.written}: {wrong}"


def unreached(guides: Mapping[str, Guide]) -> Iterator[str]:
    """Yield a line for each guide that no chain of links from the README leads to."""
    met, waiting = {_FIRST}, [_FIRST]
    while waiting:
        guide = guides[waiting.pop()]
        for link in guide.links:
            page = None if link.is_outside else page_of(guide.target(link), guides)
            if page and page not in met:
                met.add(page)
                waiting.append(page)
    for path in sorted(guides.keys() - met):
        yield f"{path}:1: no link leads to this guide from {_FIRST}; add one, or delete the guide"


def misnamed(root: Path, guides: Mapping[str, Guide], files: Sequence[str]) -> Iterator[str]:
    """Yield a line for each guide under docs/ that code or a unit names and that is not there."""
    for path in files:
        # Tests name guides that they make up.
        if not path.endswith(_PROSE) or path.startswith("tests/"):
            continue
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1):
            for found in _NAMED.finditer(line) if "docs/" in line else ():
                guide = guides.get(found[0].partition("#")[0])
                if guide is None:
                    yield f"{path}:{number}: {found[0]}: there is no such guide"
                elif found[1] and found[1] not in guide.anchors:
                    yield f"{path}:{number}: {found[0]}: {_without(guide, found[1])}"


def _wrong(guide: Guide, link: Link, guides: Mapping[str, Guide], there: set[str]) -> str:
    """Return what is wrong with a link, or nothing."""
    target = guide.target(link)
    if link.path.startswith("/"):
        return "must be relative to its guide: only then it leads somewhere in a checkout too"
    if target not in there:
        return (
            f"there is no {target}" if not target.startswith("..") else "leads out of the checkout"
        )
    if not link.anchor:
        return ""
    page = page_of(target, guides)
    if page is None:
        return f"{target} is no guide, so it has no heading #{link.anchor}"
    return "" if link.anchor in guides[page].anchors else _without(guides[page], link.anchor)


def _without(guide: Guide, anchor: str) -> str:
    near = get_close_matches(anchor, sorted(guide.anchors), n=1)
    return f"{guide.path} has no heading #{anchor}" + (
        f"; the nearest is #{near[0]}" if near else ""
    )


def _slashes(path: str) -> Iterator[int]:
    return (place for place, sign in enumerate(path) if sign == "/")
