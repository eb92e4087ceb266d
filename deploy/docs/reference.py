"""The pages of the reference that hold more than one file: the Python door, presets, sources."""

from collections.abc import Sequence
from importlib import resources

import sotto

# What functions of the door return, beside what the door names.
_RETURNED = ("sotto.runs.Picture", "sotto.voices.Sound", "export.runtime.next_word.Suggestion")
_PRESETS = {
    "sotto-server init": "server",
    "sotto-simulate run": "simulation",
}


def door_page() -> str:
    """Return the page of the Python door, which the builder fills in from its docstrings."""
    names = [f"sotto.{name}" for name in sotto.__all__]
    return "\n\n".join(
        [
            "# The Python door",
            "Package `sotto` is the only one that promises stability. "
            "[Sotto from Python](../docs/python.md) shows it at work.",
            *(f"::: {name}" for name in names),
            "## What they return",
            *(f"::: {name}\n    options:\n      heading_level: 3" for name in _RETURNED),
        ]
    )


def presets_page() -> str:
    """Return the list of presets, each with the first line of its file and a link to it."""
    lines = ["# Presets", "", "A preset is a file of settings with its source in a comment."]
    for command, package in _PRESETS.items():
        lines += ["", f"## `{command}`", "", "| preset | what it is |", "| --- | --- |"]
        folder = resources.files(package).joinpath("presets")
        for preset in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if preset.name.endswith(".toml"):
                path = f"{package}/presets/{preset.name}"
                name = preset.name.removesuffix(".toml")
                lines.append(f"| [`{name}`](../{path}) | {_first(preset.read_text('utf-8'))} |")
    return "\n".join(lines) + "\n"


def source_page(path: str, text: str) -> str:
    """Return a page that shows a file of the tree, outside the search."""
    language = {"py": "python", "yml": "yaml", "service": "ini", "timer": "ini"}
    ending = path.rpartition(".")[2]
    fence = "`" * 4
    return (
        f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {path}\n\n"
        f"{fence} {language.get(ending, ending if ending.isalnum() else 'text')}\n{text}\n{fence}\n"
    )


def folder_page(path: str, names: Sequence[str], linked: Sequence[str]) -> str:
    """Return a page that lists the files of a folder.

    Args:
        path: The folder.
        names: Its files, from the folder on.
        linked: Those of them that have a page.
    """
    rows = [f"- [`{name}`]({name})" if name in linked else f"- `{name}`" for name in names]
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n" + "\n".join(rows) + "\n"


def _first(text: str) -> str:
    """Return the first paragraph of the comment that a file begins with."""
    words = []
    for line in text.splitlines():
        piece = line.removeprefix("#").strip()
        if not line.startswith("#") or not piece:
            break
        words.append(piece)
    return " ".join(words)
