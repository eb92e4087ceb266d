"""The frame of a page and what stands in it: text, tables and facts, each escaped on its way in.

A page is one file without script that loads nothing, and its policy forbids both. It follows the
reader's light or dark theme, and a table that is wider than a phone scrolls by itself.
"""

from collections.abc import Iterable, Sequence
from html import escape

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .5rem; }
h3 { margin: 1.5rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; text-align: left; white-space: nowrap; vertical-align: top; }
th { font-weight: 600; white-space: normal; min-width: 4rem; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums; }
td.prose { white-space: normal; min-width: 14rem; }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 1rem 0; }
dt { opacity: .8; }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; padding: .6rem .8rem; border-radius: .4rem; }
pre { background: color-mix(in srgb, currentColor 8%, transparent); }
meter { display: block; width: min(20rem, 100%); height: 1.2rem; }
small { opacity: .8; }
@media (max-width: 30rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .6rem; }
}
"""


_MOST_ON_ONE_LINE = 40


class Html(str):
    """Markup whose texts are escaped already; any other text is escaped where it is put in."""

    __slots__ = ()


def element(tag: str, *contents: str, kind: str = "") -> Html:
    """Return an element of a class of the style, with what stands in it."""
    opened = f'{tag} class="{kind}"' if kind else tag
    return Html(f"<{opened}>{''.join(map(_escaped, contents))}</{tag}>")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> Html:
    """Return a table whose first ``words`` columns are text, and all others figures."""
    lines = [_row("th", heads, words), *(_row("td", row, words) for row in rows)]
    return element("div", element("table", *lines), kind="wide")


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return names with what is known of each; a pair without it is left out."""
    known = (pair for pair in pairs if pair[1])
    return element("dl", *(Html(element("dt", n) + element("dd", told)) for n, told in known))


def document(title: str, contents: Iterable[Html], *, style: str = "") -> str:
    """Return a whole page, with style of its own after the common one."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>"
    )
    return "\n".join([head, element("h1", title), *contents, "</body></html>", ""])


def _row(tag: str, cells: Sequence[str], words: int) -> Html:
    kinds = ["figure" if n >= words else _kind(cell) for n, cell in enumerate(cells)]
    made = (element(tag, cell, kind=kind) for cell, kind in zip(cells, kinds, strict=True))
    return element("tr", *made)


def _kind(cell: str) -> str:
    return "prose" if len(cell) > _MOST_ON_ONE_LINE else ""


def _escaped(content: str) -> str:
    return content if isinstance(content, Html) else escape(content)
