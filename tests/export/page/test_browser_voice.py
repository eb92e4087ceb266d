"""The page lets a person hear a text in their own voice or in everybody's, and says whose it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from export.bundles.keyboard_bundle import load_speech_bundle
from export.making.person_of_release import export_published
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.speaking.voice import open_voice
from models.plan.plan import plan_schema
from models.plan.published_part import PublishedPart, PublishedRecord
from tests.export.conftest import RUN
from tests.export.page.conftest import shown_facts
from tests.export.promised import PROMISE, promising
from tests.export.serve.running_server import RunningServer, serving_folder, token_of
from tests.export.voices import ONE_VOICE, VOCODER, speech_plan, speech_release, vocoder_release
from tests.models.tiny_voice import MEL
from tests.waiting import until

TEXT = "Hi there."
VECTOR = np.array([1, -2, 3], dtype=np.float32)
_INK = """(name) => {
    const canvas = document.querySelector(`[data-part=${name}]`);
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.some((value) => value > 0);
}"""

_DURATION_S = """() => new Promise((told) => {
    const audio = document.querySelector("audio");
    if (audio.duration > 0) told(audio.duration);
    audio.addEventListener("loadedmetadata", () => told(audio.duration));
    if (audio.error) told(audio.error.message);
})"""

# One worker: what they need is costly to make.
pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny voice whose sound does not depend on draws, and ann's file for it."""
    folder = tmp_path_factory.mktemp("page-voice")
    mel = replace(MEL, sample_rate_hz=8000)  # browsers play no fewer than 3,000 samples a second
    settings = replace(ONE_VOICE, speaker_size=3, prenet_dropout=0.0, mel=mel)
    release = speech_release(folder / "voice", speech_plan(settings), stop=-1.0)
    vocoder = vocoder_release(folder / "vocoder", replace(VOCODER, mel=mel))
    export_bundle(VoiceKind(promising(vocoder)), release, folder / "voice.zip")
    record = PublishedRecord(
        run=RUN,
        client="ann",
        method="global",
        schema_sha256=plan_schema(release.plan).sha256.hex(),
    )
    (folder / "people").mkdir()
    part = PublishedPart(record, {"speaker.vector": VECTOR})
    export_published(release, part, folder / "people" / "ann.zip")
    return folder / "voice.zip"


@pytest.fixture(scope="module")
def server(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, bundle: Path
) -> Iterator[RunningServer]:
    root = tmp_path_factory.mktemp("page-voice-server")
    more = ["--metric", "mel_l1", "--people", str(bundle.parent / "people")]
    server = RunningServer(serving_folder(root / "folder", bundle, more=more), root / "log")
    yield server
    assert server.stop() == 0


@pytest.fixture
def page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 320, "height": 700})
    made = context.new_page()
    made.goto(f"http://{server.address}/")
    yield made
    context.close()


def _sign_in(page: Page, server: RunningServer, client: str) -> None:
    token = token_of(server.folder, client)
    until(lambda: server.get("/v1/keyboard", token).status == 200)
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Open my keyboard").click()


def _say(page: Page) -> str:
    """Say the text, and return which voice was asked for."""
    page.get_by_label("What to say").fill(TEXT)
    with page.expect_request("**/v1/audio/speech") as asked:
        page.get_by_role("button", name="Say it").click()
    expect(page.locator("[data-part=told]")).to_contain_text("s of sound")
    question: dict[str, str] = asked.value.post_data_json or {}
    return question["voice"]


def test_a_person_hears_a_text_in_their_own_voice(
    page: Page, server: RunningServer, bundle: Path
) -> None:
    voice = open_voice(load_speech_bundle(bundle))
    own = voice.for_person({"personal.speaker.vector": VECTOR})
    expected_s = sum(len(said.sound) for said in own.speak(TEXT)) / voice.sample_rate_hz

    _sign_in(page, server, "ann")
    assert _say(page) == "ann"

    told = page.locator("[data-part=told]")
    expect(told).to_contain_text(f"{expected_s:.1f} s of sound")
    assert page.evaluate(_DURATION_S) == pytest.approx(expected_s)
    assert page.evaluate(_INK, "wave")
    assert page.evaluate(_INK, "mels")
    expect(page.locator("#keyboard")).to_be_hidden()  # no keyboard is served here

    page.get_by_role("button", name="Change person").click()
    expect(page.locator("#voice")).to_be_hidden()
    assert page.evaluate("document.querySelector('audio').hasAttribute('src')") is False


def test_everybodys_voice_is_chosen_without_a_mouse(page: Page, server: RunningServer) -> None:
    _sign_in(page, server, "ann")
    expect(page.get_by_label("What to say")).to_be_focused()
    choice = page.get_by_label("Voice")
    expect(choice.locator("option")).to_have_text(["ann's own", "Everybody's"])

    page.keyboard.press("Tab")
    expect(choice).to_be_focused()
    page.keyboard.press("ArrowDown")

    assert _say(page) == "@shared"


def test_without_a_keyboard_the_page_still_says_which_model_speaks(
    page: Page, server: RunningServer
) -> None:
    _sign_in(page, server, "ann")

    shown = shown_facts(page, "#voice [data-part=facts]")
    assert (shown["Person"], shown["Round"], shown["Own part"]) == ("ann", "3", "yes, who speaks")
    assert shown["Model"].startswith("000003-")
    assert shown["Privacy spent"] == "none promised"
    assert shown["Promise for the whole run"] == "no privacy guarantee"
    assert shown["mel l1"] == "0.75"
    assert shown["Sound"] == "8000 Hz, made by the vocoder of round 3"
    assert shown["Privacy spent on the vocoder"] == "epsilon 77.2 at delta 0.001, after round 3"
    assert shown["Promise for the vocoder's run"] == PROMISE
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_who_has_no_voice_is_told_so_and_hears_everybodys(
    page: Page, server: RunningServer
) -> None:
    _sign_in(page, server, "eve")

    expect(page.locator("[data-part=choice]")).to_contain_text("sotto-serve person")
    expect(page.get_by_label("Voice").locator("option")).to_have_text(["Everybody's"])
    assert _say(page) == "@shared"


def test_where_nothing_can_speak_for_a_person_it_cannot_be_asked_to(
    page: Page, server: RunningServer
) -> None:
    token = token_of(server.folder, "eve")
    until(lambda: server.get("/v1/keyboard", token).status == 200)
    described: dict[str, Any] = dict(server.get("/v1/keyboard", token).json)
    described["voice"] |= {"voices": []}
    page.route("**/v1/keyboard", lambda route: route.fulfill(json=described))
    _sign_in(page, server, "eve")

    told = page.locator("[data-part=choice]")
    expect(told).to_contain_text("no voice of yours")
    expect(told).to_contain_text("no voice of everybody's")
    expect(page.get_by_role("button", name="Say it")).to_be_disabled()
