"""Build the site in one call: lay out its pages, run the builder, look whether it is whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.docs.guides import read_guides, tracked_files
from deploy.docs.navigation import Entry, navigation
from deploy.docs.reference import door_page, presets_page
from deploy.docs.settings_files import FILES
from deploy.docs.settings_pages import settings_page
from deploy.docs.staging import stage
from deploy.docs.whole import missing

_TOLD = Path(__file__).with_name("mkdocs.yml")


class SiteError(Exception):
    """Raised when the site could not be built; the text says why."""


def build(root: Path, out: Path) -> None:
    """Write the site of a checkout, whose links lead somewhere.

    Args:
        root: The checkout.
        out: Folder of the site; what it holds goes.

    Raises:
        SiteError: If the builder is missing, it warns of anything, or a page lacks what it loads.
    """
    files = tracked_files(root)
    guides = read_guides(root, files)
    door, presets = "reference/python.md", "reference/presets.md"
    settings = {f"reference/{file.page}.md": file for file in FILES}
    made = {path: settings_page(file) for path, file in settings.items()}
    made |= {door: door_page(), presets: presets_page()}
    named: list[Entry] = [{file.name: path} for path, file in settings.items()]
    reference: list[Entry] = [
        {"The Python door": door},
        {"Settings": [*named, {"Presets": presets}]},
    ]
    pages = navigation(guides, reference)
    with TemporaryDirectory(prefix="sotto-site-") as name:
        staged = Path(name) / "guides"
        stage(root, staged, guides, files, made)
        _run_builder(root, staged, out, pages)
    # It is for servers: its links begin at their root, which a site on a disk has not.
    (out / "404.html").unlink(missing_ok=True)
    if lines := list(missing(out)):
        raise SiteError("\n".join(lines))


def _run_builder(root: Path, staged: Path, out: Path, pages: list[Entry]) -> None:
    settings = staged.with_name("mkdocs.yml")
    told = {
        "INHERIT": str(_TOLD),
        "docs_dir": str(staged),
        "site_dir": str(out),
        "nav": pages,
        "plugins": {"mkdocstrings": {"handlers": {"python": {"paths": [str(root)]}}}},
    }
    settings.write_text(json.dumps(told), encoding="utf-8")  # JSON is YAML.
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file"]
    done = subprocess.run(
        [*command, settings],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SiteError(
            f"mkdocs ended with {done.returncode}; `make docs` installs it\n{done.stderr}"
        )
