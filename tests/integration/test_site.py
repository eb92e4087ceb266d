"""The built site opens from a disk, asks no other host, and shows what the guides say."""

import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Page, Route, expect, sync_playwright

import sotto
from deploy.docs.building import build
from deploy.docs.check import ROOT
from deploy.docs.guides import Guide, read_guides, tracked_files

pytest.importorskip("material", reason="`make docs` installs what builds the site")
# The builder takes ten seconds of a core, and more where the machine is busy.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
expect.set_options(timeout=30_000)
_BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
_COUNTED = ("h2", "h3", "img", "li", "pre", "td", "th")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(ROOT, folder)
    return folder


@pytest.fixture
def page() -> Iterator[Page]:
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip("the site is looked at in Chromium, which is not installed")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, timeout=60_000)
        yield running.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        running.close()


class _Article(HTMLParser):
    """Counts the tags of a page's own text."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._is_within = False

    def handle_starttag(self, tag: str, _: object) -> None:
        self._is_within |= tag == "article"
        if self._is_within and tag in _COUNTED:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._is_within &= tag != "article"


def _built(site: Path, guide: Guide) -> Path:
    stem = guide.path.removesuffix(".md")
    return site / f"{stem.removesuffix('README')}{'index' if stem.endswith('README') else ''}.html"


def test_the_site_shows_each_guide_as_commonmark_reads_it(site: Path) -> None:
    # The builder reads an older Markdown: a list that is not apart from what is above it is lost.
    reader = MarkdownIt("commonmark").enable("table")
    for guide in read_guides(ROOT, tracked_files(ROOT)).values():
        shown, meant = _Article(), _Article()
        shown.feed(_built(site, guide).read_text())
        meant.feed(f"<article>{reader.render(guide.text)}</article>")

        assert shown.counts == meant.counts, guide.path


def test_the_reference_has_every_name_of_the_python_door(site: Path) -> None:
    text = (site / "reference/python.html").read_text()

    assert [name for name in sotto.__all__ if f'id="sotto.{name}"' not in text] == []
    assert "Find the least noise that keeps a run within a budget." in text


def test_a_phone_opens_the_site_from_its_disk_and_finds_a_setting(site: Path, page: Page) -> None:
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route("http*://**", refuse)
    page.goto((site / "index.html").as_uri())
    expect(page.locator("h1")).to_contain_text("sotto")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    page.locator("header label.md-header__button[for=__search]").click()
    page.locator(".md-search__input").press_sequentially("least_contributors")
    page.locator(".md-search-result__link", has_text="helper.toml").first.click()

    expect(page.locator("h1")).to_contain_text("helper.toml")
    expect(page.locator("td", has_text="Fewest devices of one sum")).to_be_visible()
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert page.evaluate(wide) is False
    assert asked == []
