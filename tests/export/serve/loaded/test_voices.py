"""What a voice may take of a server: its place, its time, and nothing of anybody else's."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.types import Message

from export.bundles.keyboard_bundle import load_speech_bundle
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.serve.doors.speech_api import SpokenResponse
from export.serve.folder.folder import ServingFolder
from export.serve.folder.settings import SpeechSettings, read_settings
from export.serve.loaded.metrics import ServingMetrics
from export.serve.loaded.voice_version import (
    SHARED_VOICE,
    NoSharedVoiceError,
    ServedVoice,
    voice_of,
    voice_shelf,
    voices_of,
)
from export.serve.loaded.voices import Speech, TooManySpeechesError, Voices
from export.speaking.voice import Voice, open_voice
from models.settings.personalisation import FedPerSettings
from models.text.spoken_text import SpeechTextError
from tests.export.serve.running_server import serving_folder
from tests.export.voices import ONE_VOICE, speech_plan, speech_release

LIMITS = SpeechSettings(at_once=3, at_once_of_one=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ServingFolder:
    root = tmp_path_factory.mktemp("voices")
    release = speech_release(root, speech_plan(), stop=1.0)
    export_bundle(VoiceKind(), release, root / "voice.zip")
    return serving_folder(root / "serving", root / "voice.zip", more=["--metric", "mel_l1"])


@pytest.fixture
def metrics() -> ServingMetrics:
    return ServingMetrics()


@pytest.fixture
def voices(folder: ServingFolder, metrics: ServingMetrics) -> Iterator[Voices]:
    shelf = voice_shelf(folder, read_settings(folder.settings))
    shelf.reload()
    made = Voices(folder, shelf, metrics, LIMITS)
    yield made
    made.shut_down()


async def begin(voices: Voices, client: str, text: str = "Hi. Ho.") -> Speech:
    served: ServedVoice = voices.shelf.version(None)
    return await voices.speak(client, served, text, own=True, wanted="pcm", speed=1.0)


def test_where_more_than_who_speaks_is_personal_nobody_speaks(
    tmp_path: Path, folder: ServingFolder, voices: Voices
) -> None:
    settings = replace(ONE_VOICE, speaker_size=3)
    plan = speech_plan(settings, personalisation=FedPerSettings())
    export_bundle(VoiceKind(), speech_release(tmp_path, plan), tmp_path / "voice.zip")
    bundle = load_speech_bundle(tmp_path / "voice.zip")
    personal = ServedVoice("personal", bundle.manifest, open_voice(bundle))

    assert voices_of(folder, voices.shelf.version(None), "ann") == [SHARED_VOICE]
    assert voices_of(folder, personal, "ann") == []
    with pytest.raises(NoSharedVoiceError):
        voice_of(folder, personal, None)


def speeches(metrics: ServingMetrics) -> float:
    line = next(
        line for line in metrics.exposition().decode().splitlines() if line.startswith("sotto_spe")
    )
    return float(line.split()[1])


def test_a_client_and_all_together_have_so_many_places_and_get_them_back(
    voices: Voices, metrics: ServingMetrics
) -> None:
    async def ask() -> None:
        ann = [await begin(voices, "ann"), await begin(voices, "ann")]
        with pytest.raises(TooManySpeechesError) as own:
            await begin(voices, "ann")
        bob = await begin(voices, "bob")
        with pytest.raises(TooManySpeechesError) as all_together:
            await begin(voices, "eve")
        assert (own.value.is_own, all_together.value.is_own) == (True, False)
        assert speeches(metrics) == 3
        for speech in (*ann, ann[0], bob):  # A second time does nothing.
            speech.close()
        (await begin(voices, "eve")).close()
        with pytest.raises(SpeechTextError):
            await begin(voices, "ann", "привет")
        assert speeches(metrics) == 0

    asyncio.run(ask())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own here")
def test_words_go_before_voices(voices: Voices, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    said = Voice.stream

    def stream(*given: Any, **named: Any) -> Any:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return said(*given, **named)

    monkeypatch.setattr(Voice, "stream", stream)
    asyncio.run(begin(voices, "ann")).close()

    present = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert seen == [min(present + 5, 19)]


def test_a_client_that_takes_no_sound_loses_its_place(
    voices: Voices, metrics: ServingMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.serve.doors.speech_api.TAKEN_WITHIN_S", 0.05)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def ask() -> None:
        response = SpokenResponse(await begin(voices, "ann"), "audio/pcm")
        assert speeches(metrics) == 1
        with pytest.raises((TimeoutError, ExceptionGroup)):
            await response({"type": "http"}, receive, send)

    asyncio.run(ask())
    assert speeches(metrics) == 0


def test_a_spoilt_folder_leaves_the_voice_that_speaks(
    voices: Voices, folder: ServingFolder
) -> None:
    present = voices.shelf.version(None)
    kept = folder.voices.versions.read_bytes()
    folder.voices.versions.write_bytes(kept.replace(present.version.encode(), b"000009-0"))

    with pytest.raises(ValueError, match="found nothing there"):
        voices.shelf.reload()
    folder.voices.versions.write_bytes(kept)

    assert voices.shelf.version(None) is present
