"""Links and paths in the pages lead somewhere, so a file that moves takes its mentions along."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = subprocess.run(
    ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()
PACKAGES = "protos|privacy|models|server|edge_client|export|simulation|benchmarks|tests|docs|deploy"


def heading_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.skipif(not PAGES, reason="no checkout of git lists the pages")
@pytest.mark.parametrize("name", PAGES)
def test_every_link_and_path_of_a_page_exists(name: str) -> None:
    page = ROOT / name
    text = page.read_text()

    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        if not target.startswith("http"):
            path = page.parent / target if target else page
            assert path.exists(), target
            assert not anchor or anchor[1:] in heading_anchors(path), target + anchor
    for path in re.findall(rf"`((?:{PACKAGES})/[\w/.-]+\.\w+)`", text):
        assert (ROOT / path).exists(), path
