"""A headless browser, and servers of the page with the keyboards of two people."""

import functools
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle
from export.page.onnxruntime_web import runtime_files
from export.people.personal_file import load_personal_file
from export.runtime.strip import Keyboard
from export.runtime.word_graph import NextWordGraph
from export.serve.folder.tokens import make_tokens
from models.text.vocabulary import Vocabulary
from tests.browser import open_browser
from tests.export.people_scene import PEOPLE, release_with_people
from tests.export.promised import promising
from tests.export.serve.running_server import RunningServer, serving_folder
from tests.waiting import until

# A page loads a runtime and a model first, on a machine that may be busy with other tests.
expect.set_options(timeout=30_000)


@dataclass(frozen=True)
class Household:
    """Hold a bundle, ada's and ben's files for it, and their keyboards outside a browser."""

    folder: Path
    bundle: Bundle

    @property
    def shared(self) -> Path:
        return self.folder / "shared.zip"

    @property
    def people(self) -> Path:
        return self.folder / "people"

    def graph(self, name: str) -> NextWordGraph:
        own = load_personal_file(self.people / f"{name}.zip")
        return own.on(NextWordGraph(self.bundle.graph), self.bundle.manifest)

    def keyboard(self, name: str) -> Keyboard:
        return Keyboard(
            self.graph(name), self.bundle.vocabulary, languages=self.bundle.manifest.languages
        )


@dataclass(frozen=True)
class Served:
    """Hold a server of the household, and the tokens of ada, ben, and cat, who has no file."""

    server: RunningServer
    household: Household
    tokens: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://{self.server.address}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser, for one module."""
    if not runtime_files():
        pytest.skip("onnxruntime-web is missing: run `make page` to test the page in a browser")
    with open_browser() as running:
        yield running


@pytest.fixture(scope="session")
def household(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Household:
    folder = tmp_path_factory.mktemp("household")
    release = promising(release_with_people(folder / "run", vocabulary))
    export_bundle(KeyboardKind(["en"]), release, folder / "shared.zip")
    (folder / "people").mkdir()
    export_people(release, [(name, folder / "people" / f"{name}.zip") for name in PEOPLE])
    return Household(folder, load_bundle(folder / "shared.zip"))


@pytest.fixture(scope="module")
def served(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, household: Household
) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("page-server")
    text = root / "text"
    text.write_text("we see the sea. " * 30)
    more = ["--people", str(household.people), "--held-out", str(text)]
    folder = serving_folder(root / "folder", household.shared, more=more)
    server = RunningServer(folder, root / "log")
    tokens = make_tokens(server.folder, [*PEOPLE, "cat"])
    until(lambda: server.get("/v1/keyboard", tokens["cat"]).status == 200)
    yield Served(server, household, tokens)
    assert server.stop() == 0


@pytest.fixture
def plain_files(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A server of plain files, its folder and its address: it knows no token and no route."""
    folder = tmp_path / "site"
    handler = functools.partial(_QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def shown_facts(page: Page, place: str) -> dict[str, str]:
    """Return what a list of facts shows, once it does."""
    facts = page.locator(place)
    expect(facts.locator("dd").first).to_be_visible()
    names = "[...list.querySelectorAll('dt')].map((name) => name.textContent)"
    values = names.replace("dt", "dd")
    found: tuple[list[str], list[str]] = facts.evaluate(f"(list) => [{names}, {values}]")
    return dict(zip(*found, strict=True))


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as its parent's
        """Say nothing."""
