"""The page lets a person hear a text in their own voice."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from export.person import export_published
from export.speech import open_voice
from export.speech_bundle import load_speech_bundle
from export.speech_export import export_speech
from models.plan import plan_schema
from models.published_part import PublishedPart, PublishedRecord
from tests.export.conftest import RUN
from tests.export.serve.running_server import RunningServer, serving_folder, token_of, wait_until
from tests.export.voices import ONE_VOICE, VOCODER, speech_plan, speech_release, vocoder_release
from tests.models.tiny_voice import MEL

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
    export_speech(release, folder / "voice.zip", vocoder=vocoder)
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
    context = browser.new_context()
    made = context.new_page()
    made.goto(f"http://{server.address}/")
    yield made
    context.close()


def test_a_person_hears_a_text_in_their_own_voice(
    page: Page, server: RunningServer, bundle: Path
) -> None:
    token = token_of(server.folder, "ann")
    wait_until(lambda: server.get("/v1/keyboard", token).status == 200)
    voice = open_voice(load_speech_bundle(bundle))
    own = voice.for_person({"personal.speaker.vector": VECTOR})
    expected_s = sum(len(said.sound) for said in own.speak(TEXT)) / voice.sample_rate_hz

    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Open my keyboard").click()
    page.get_by_label("What to say").fill(TEXT)
    page.get_by_role("button", name="Say it").click()

    told = page.locator("[data-part=told]")
    expect(told).to_contain_text(f"{expected_s:.1f} s of sound")
    assert page.evaluate(_DURATION_S) == pytest.approx(expected_s)
    assert page.evaluate(_INK, "wave")
    assert page.evaluate(_INK, "mels")
    expect(page.locator("#keyboard")).to_be_hidden()  # no keyboard is served here

    page.get_by_role("button", name="Change person").click()
    expect(page.locator("#voice")).to_be_hidden()
    assert page.evaluate("document.querySelector('audio').hasAttribute('src')") is False


def test_who_has_no_voice_is_told_so(page: Page, server: RunningServer) -> None:
    token = token_of(server.folder, "eve")
    wait_until(lambda: server.get("/v1/keyboard", token).status == 200)

    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Open my keyboard").click()
    page.get_by_label("What to say").fill(TEXT)
    page.get_by_role("button", name="Say it").click()

    expect(page.locator("[data-part=told]")).to_contain_text("sotto-serve person")
