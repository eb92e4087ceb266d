"""Pages of ten thousand rounds in a browser: small, quick, readable on a phone, and inert."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from models.pages.by_round import Course, legend, sections
from models.pages.curves import STYLE
from models.pages.document import document
from server.operating.page import federation_page
from tests.browser import open_browser
from tests.server.operating.account_scene import account, release

ROUNDS = 10_000
FIGURES = ("perplexity", "accuracy", "top3_recall", "clipped", "refused_disk", "closing_s")
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a long run with all that makes one wide."""
    waves = [
        {name: 5 + math.sin(number * (k + 1) / 50) + k for k, name in enumerate(FIGURES)}
        for number in range(1, ROUNDS + 1)
    ]
    rounds = [release(number, **figures) for number, figures in enumerate(waves, start=1)]
    found = account(
        *rounds,
        folder=f"/srv/{HOSTILE}",
        refusals={"floor_epsilon": 3, HOSTILE: 1},
        device_versions={HOSTILE: 1},
    )
    path = tmp_path_factory.mktemp("federation") / "report.html"
    path.write_text(federation_page(found))
    return path


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the pictures of four long runs of five figures."""
    rounds = [
        (number, {f"figure {k}": math.sin(number * k) for k in range(1, 6)})
        for number in range(1, ROUNDS + 1)
    ]
    courses = [Course(f"run {run} {'of_a_long_name' * 6}", run, rounds) for run in range(4)]
    path = tmp_path_factory.mktemp("simulated") / "report.html"
    contents = [legend({run.colour: run.name for run in courses}), *sections(courses)]
    path.write_text(document("runs", contents, style=STYLE))
    return path


def opened(browser: Browser, path: Path, *, width: int = 1200, dark: bool = False) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": 844}, color_scheme="dark" if dark else "light"
    )
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("name", ["federation", "simulated"])
def test_ten_thousand_rounds_are_small_and_open_at_once(
    browser: Browser, name: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(name)
    assert path.stat().st_size < 2_000_000

    # A browser's time is its elements': no round has one of its own.
    elements = opened(browser, path).evaluate("document.querySelectorAll('*').length")
    assert elements < 1000


@pytest.mark.parametrize("name", ["federation", "simulated"])
def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Browser, name: str, request: pytest.FixtureRequest
) -> None:
    page = opened(browser, request.getfixturevalue(name), width=390)

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    # Letters of a picture keep their size there.
    height = page.locator("svg text").first.evaluate(
        "(text) => text.getBoundingClientRect().height"
    )
    assert height > 10
    page.close()


def test_it_is_light_or_dark_as_the_reader_likes(browser: Browser, federation: Path) -> None:
    looks = []
    for dark in (False, True):
        page = opened(browser, federation, dark=dark)
        looks.append(
            page.evaluate(
                "[getComputedStyle(document.querySelector('h1')).color,"
                " getComputedStyle(document.querySelector('svg path.line')).stroke]"
            )
        )
        page.close()
    assert looks[0][0] == "rgb(0, 0, 0)"
    assert looks[1][0] == "rgb(255, 255, 255)"
    assert looks[0][1] != looks[1][1]


def test_what_others_wrote_does_nothing_and_nothing_is_loaded(
    browser: Browser, federation: Path
) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(federation.as_uri(), wait_until="networkidle")

    assert asked == [federation.as_uri()]
    assert page.title().startswith("Report on ")
    assert page.locator("script, img").count() == 0
    page.close()


def test_a_script_that_slipped_through_would_still_not_run(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(document("a page", []).replace("</body>", f"{HOSTILE}</body>"))

    page = opened(browser, path)

    assert page.locator("script").count() == 1
    assert page.title() == "a page"
    page.close()
