"""Speech over HTTP, as OpenAI's clients ask for it, from a server in a process of its own."""

import http.client
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from msgspec.structs import replace

from export.bundles.keyboard_bundle import load_speech_bundle
from export.making.person_of_release import export_published
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.releases.release import Release
from export.serve.cli import main
from export.serve.folder.folder import ServingFolder
from export.serve.folder.versions import read_versions
from export.speaking.sound_file import encode_sound
from export.speaking.voice import open_voice
from models.plan.plan import plan_schema
from models.plan.published_part import PublishedPart, PublishedRecord
from tests.export.conftest import RUN
from tests.export.serve.running_server import Answer, RunningServer, serving_folder, token_of
from tests.export.voices import ONE_VOICE, VOCODER, speech_plan, speech_release, vocoder_release
from tests.models.tiny_voice import MEL
from tests.waiting import until

# Eight kHz, so that every format can have it, and no dropout, so that the sound is known.
SERVED_MEL = replace(MEL, sample_rate_hz=8000)
SERVED = replace(ONE_VOICE, speaker_size=3, prenet_dropout=0.0, mel=SERVED_MEL)
VECTORS = {"ann": [1, -2, 3], "bob": [-3, 0, 1]}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return speech_release(tmp_path_factory.mktemp("voice"), speech_plan(SERVED), stop=-1.0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Path:
    """A voice with a vocoder, whose sound does not depend on draws; people's files beside it."""
    folder = tmp_path_factory.mktemp("bundles")
    vocoder = vocoder_release(folder / "vocoder", replace(VOCODER, mel=SERVED_MEL))
    export_bundle(VoiceKind(vocoder), release, folder / "voice.zip")
    (folder / "people").mkdir()
    for client, numbers in VECTORS.items():
        record = PublishedRecord(
            run=RUN,
            client=client,
            method="global",
            schema_sha256=plan_schema(release.plan).sha256.hex(),
        )
        part = PublishedPart(record, {"speaker.vector": np.array(numbers, dtype=np.float32)})
        export_published(release, part, folder / "people" / f"{client}.zip")
    return folder / "voice.zip"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Iterator[RunningServer]:
    root = tmp_path_factory.mktemp("serving")
    folder = serving_folder(
        root / "folder",
        bundle,
        more=["--metric", "mel_l1", "--people", str(bundle.parent / "people")],
    )
    server = RunningServer(folder, root / "log")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def tokens(server: RunningServer) -> dict[str, str]:
    made = {client: token_of(server.folder, client) for client in (*VECTORS, "eve")}
    until(lambda: server.metric("sotto_clients") == len(made))
    return made


def speak(server: RunningServer, token: str, **more: object) -> Answer:
    asked = {"model": "voice", "voice": "ann", "input": "Hi there.", "response_format": "wav"}
    return server.post("/v1/audio/speech", asked | more, token)


def expected_sound(bundle: Path, client: str, text: str, speed: float = 1.0) -> np.ndarray:
    voice = open_voice(load_speech_bundle(bundle))
    vector = np.array(VECTORS[client], dtype=np.float32)
    own = voice.for_person({"personal.speaker.vector": vector})
    return np.concatenate([said.sound for said in own.speak(text, speed=speed)])


@pytest.mark.slow
def test_each_client_hears_their_own_voice(
    server: RunningServer, tokens: dict[str, str], bundle: Path
) -> None:
    heard = {}
    for client in VECTORS:
        found = speak(server, tokens[client], voice=client, input="Hi. I am 10.", speed=2.0)

        assert (found.status, found.headers["content-type"]) == (200, "audio/wav")
        assert found.headers["cache-control"] == "no-store"
        heard[client], rate_hz = soundfile.read(io.BytesIO(found.body))
        expected = expected_sound(bundle, client, "Hi. I am 10.", speed=2.0)
        assert rate_hz == 8000
        assert heard[client].shape == expected.shape
        assert np.abs(heard[client] - np.clip(expected, -1, 1)).max() < 1e-3
    assert np.abs(heard["ann"] - heard["bob"]).max() > 0.01


def test_whoever_has_a_token_may_hear_everybodys_voice(
    server: RunningServer, tokens: dict[str, str], bundle: Path
) -> None:
    nobody = open_voice(load_speech_bundle(bundle)).for_nobody()
    expected = np.concatenate([said.sound for said in nobody.speak("Hi there.")])

    for client in ("ann", "eve"):
        found = speak(server, tokens[client], voice="@shared")

        assert found.status == 200
        heard, _ = soundfile.read(io.BytesIO(found.body))
        assert np.abs(heard - np.clip(expected, -1, 1)).max() < 1e-3
    assert np.abs(heard - expected_sound(bundle, "ann", "Hi there.")).max() > 0.01


@pytest.mark.slow
def test_a_client_is_told_which_voices_it_may_ask_for(
    server: RunningServer, tokens: dict[str, str]
) -> None:
    told = {name: server.get("/v1/keyboard", tokens[name]).json["voice"] for name in tokens}

    voices, personal = {}, {}
    for client, voice in told.items():
        assert isinstance(voice, dict)
        assert (voice["round"], voice["run"], voice["privacy_spent"]) == (3, RUN, "none promised")
        assert voice["vocoder"]["round"] == 3
        assert voice["mel"]["sample_rate_hz"] == 8000
        voices[client], personal[client] = voice["voices"], voice["personal"]["available"]
    assert voices == {"ann": ["ann", "@shared"], "bob": ["bob", "@shared"], "eve": ["@shared"]}
    assert personal == {"ann": True, "bob": True, "eve": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ("mp3", ("audio/mpeg", b"\xff")),
        ("opus", ("audio/ogg", b"OggS")),
        ("flac", ("audio/flac", b"fLaC")),
        ("pcm", ("audio/pcm;rate=8000;channels=1", b"")),
    ],
)
def test_sound_comes_in_the_format_that_was_asked_for(
    server: RunningServer,
    tokens: dict[str, str],
    bundle: Path,
    wanted: str,
    answer: tuple[str, bytes],
) -> None:
    media_type, begins = answer

    found = speak(server, tokens["ann"], response_format=wanted)

    assert (found.status, found.headers["content-type"]) == (200, media_type)
    assert found.body.startswith(begins)
    if wanted == "pcm":
        expected = encode_sound(expected_sound(bundle, "ann", "Hi there."), 8000, "pcm")
        samples, right = (np.frombuffer(one, "<i2").astype(int) for one in (found.body, expected))
        assert np.abs(samples - right).max() <= 2


def test_the_first_sound_is_sent_before_the_last_is_made(
    server: RunningServer, tokens: dict[str, str]
) -> None:
    before = server.metric("sotto_spoken_seconds_total")
    asked = {"model": "voice", "voice": "ann", "input": "Hi. " * 40, "response_format": "pcm"}
    connection = http.client.HTTPConnection(server.address, timeout=30)
    headers = {
        "Authorization": f"Bearer {tokens['ann']}",
        "Content-Type": "application/json",
    }
    connection.request("POST", "/v1/audio/speech", json.dumps(asked), headers)
    response = connection.getresponse()

    assert response.status == 200
    assert response.read(64)
    spoken_s = server.metric("sotto_spoken_seconds_total") - before
    assert server.metric("sotto_speeches") == 1
    connection.close()

    # Forty sentences of two seconds each were asked for.
    assert spoken_s < 60
    until(lambda: server.metric("sotto_speeches") == 0)
    assert server.metric("sotto_spoken_seconds_total") - before < 80


@pytest.mark.parametrize(
    ("more", "refused", "told"),
    [
        ({"voice": "bob"}, (403, "not_yours"), "the client whose token this is"),
        ({"input": ""}, (422, "unusable"), "a word or a number to say, got an empty one"),
        ({"input": "привет"}, (422, "unusable"), "written in the letters a to z"),
        ({"input": "a\x00b"}, (422, "unusable"), "U+0000"),
        ({"input": "Hi. " * 1025}, (422, "unusable"), "at most 4096 characters, got 4100"),
        ({"response_format": "aac"}, (400, "unknown_format"), "aac cannot be encoded here"),
        ({"response_format": "ogg"}, (422, "invalid"), "body.response_format"),
        ({"speed": 5}, (422, "invalid"), "body.speed"),
        ({"model": "tts-1"}, (404, "unknown_version"), 'model must be "voice" or one of'),
        ({"instructions": "sadly"}, (422, "invalid"), "body.instructions: Extra inputs"),
        ({"stream_format": "sse"}, (422, "invalid"), "body.stream_format"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_an_error_and_says_why(
    server: RunningServer,
    tokens: dict[str, str],
    more: dict[str, object],
    refused: tuple[int, str],
    told: str,
) -> None:
    found = speak(server, tokens["ann"], **more)

    error = found.json["error"]
    assert isinstance(error, dict)
    assert (found.status, error["code"]) == refused
    assert told in error["message"]
    assert "привет" not in found.body.decode()


def test_the_page_of_routes_tells_of_speech(server: RunningServer) -> None:
    page = server.get("/docs").body.decode()

    assert "POST /v1/audio/speech" in page
    assert "response_format" in page
    operation = json.loads(server.get("/openapi.json").body)["paths"]["/v1/audio/speech"]["post"]
    assert "audio/flac" in operation["responses"]["200"]["content"]


def test_who_has_no_token_or_no_voice_hears_nothing(
    server: RunningServer, tokens: dict[str, str]
) -> None:
    assert speak(server, "sotto_nobody").status == 401
    found = speak(server, tokens["eve"], voice="eve")
    assert found.status == 404
    assert b"no_personal_model" in found.body
    # A megabyte of text is read, and refused by its length.
    assert speak(server, tokens["ann"], input="a " * 520_000).status in (413, 422)


def test_a_voice_is_added_promoted_and_rolled_back_while_the_server_runs(
    server: RunningServer, tokens: dict[str, str], bundle: Path, release: Release, tmp_path: Path
) -> None:
    root = str(server.folder.root)
    old = read_versions(server.folder.voices).present
    record = replace(release.record, round=4, metrics={"mel_l1": 0.7})
    better = Release(record, release.plan, None, release.parameters, None)
    export_bundle(VoiceKind(), better, tmp_path / "better.zip")
    worse = Release(
        replace(record, round=5, metrics={"mel_l1": 0.8}),
        release.plan,
        None,
        release.parameters,
        None,
    )
    export_bundle(VoiceKind(), worse, tmp_path / "worse.zip")
    shutil.copytree(bundle.parent / "people", tmp_path / "people")

    promote = ["promote", root, "--metric", "mel_l1", "--people", str(tmp_path / "people")]
    assert main([*promote, str(tmp_path / "better.zip")]) == 0
    new = read_versions(server.folder.voices).present
    assert new is not None
    assert new.startswith("000004-")
    until(lambda: speak(server, tokens["ann"], model=new, input="A.").status == 200)

    assert main([*promote, str(tmp_path / "worse.zip")]) == 1
    assert read_versions(server.folder.voices).present == new
    assert speak(server, tokens["ann"], model=old, input="A.").status == 200
    assert main(["person", root, str(tmp_path / "people" / "bob.zip")]) == 0
    assert main(["rollback", root, "--voice"]) == 0
    assert read_versions(server.folder.voices).present == old


def test_a_voice_carries_over_whose_file_fits(
    tmp_path: Path, bundle: Path, release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "serving"
    voices = ServingFolder(root).voices
    promote = ["promote", str(root), "--metric", "mel_l1", "--json"]
    assert main(["init", str(root), "--accept-unsigned"]) == 0
    people = bundle.parent / "people"
    assert main([*promote, str(bundle), "--people", str(people)]) == 0
    record = replace(release.record, round=4)
    later = Release(record, release.plan, None, release.parameters, None)
    export_bundle(VoiceKind(), later, tmp_path / "later.zip")
    capsys.readouterr()

    assert main([*promote, str(tmp_path / "later.zip")]) == 0

    present = read_versions(voices).present
    assert present is not None
    given = sorted(path.name for path in people.iterdir())
    assert [path.name for path in voices.files_of_people(present)] == given
    assert json.loads(capsys.readouterr().out)["carried"] == len(given) > 0


def test_a_present_voice_that_is_damaged_is_promoted_again(tmp_path: Path, bundle: Path) -> None:
    root = tmp_path / "serving"
    voices = ServingFolder(root).voices
    promote = ["promote", str(root), str(bundle), "--metric", "mel_l1"]
    assert main(["init", str(root), "--accept-unsigned"]) == 0
    assert main(promote) == 0
    assert main(promote) == 1
    (copy,) = voices.bundles.iterdir()
    copy.write_bytes(copy.read_bytes()[:-100])

    assert main(promote) == 0

    assert copy.read_bytes() == bundle.read_bytes()
    assert "cannot be loaded: " in read_versions(voices).history[-1].reason


def test_a_voice_that_is_damaged_or_one_persons_is_not_promoted(
    tmp_path: Path, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "serving"), "--accept-unsigned"]) == 0
    folder = ServingFolder(tmp_path / "serving")
    damaged = tmp_path / "damaged.zip"
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    capsys.readouterr()

    for asked, line in (
        ([str(damaged)], "sotto-serve: "),
        ([str(bundle), "--metric", "pesq"], "metric 'pesq' must be a figure of round 3's bundle"),
        ([str(bundle), "--held-out", str(damaged)], "--held-out measures keyboards"),
    ):
        assert main(["promote", str(folder.root), *asked]) == 1
        assert line in capsys.readouterr().err
    assert read_versions(folder.voices).present is None
    assert main(["rollback", str(folder.root), "--voice"]) == 1
    assert "there is no voice before" in capsys.readouterr().err
