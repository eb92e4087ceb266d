"""A device whose method adapts everyone's voice makes its owner's bundle of the voice it has."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from export.bundles.keyboard_bundle import SpeechBundle, load_speech_bundle
from export.faces.family import ExportError
from export.making.person_of_device import export_own
from export.making.released_model import export_bundle, quantise_bundle, verify_bundle
from export.making.speech import VoiceKind
from export.making.whole_bundle import export_whole
from export.parity.checked_graph import build_graphs
from export.people.personal_file import load_personal_file
from export.speaking.voice import Voice, open_voice
from models.plan.published_part import PublishedPart, PublishedRecord
from models.settings.model import schema_of
from models.settings.personalisation import AdaptedSettings
from models.vector.codec import named_tensors
from tests.export.conftest import RUN
from tests.export.voices import ONE_VOICE, speech_plan, speech_release, voice_parameters

SPEAKER = "speaker.vector"
PLAN = speech_plan(replace(ONE_VOICE, speaker_size=3), personalisation=AdaptedSettings())
OWN = named_tensors(schema_of(PLAN.model), voice_parameters(PLAN.model, seed=7))


@pytest.fixture
def bundle(tmp_path: Path) -> SpeechBundle:
    release = speech_release(tmp_path / "run", PLAN)
    export_bundle(VoiceKind(), release, tmp_path / "everyone.zip")
    return load_speech_bundle(tmp_path / "everyone.zip")


def published(*names: str, run: str = RUN) -> PublishedPart:
    record = PublishedRecord(
        run=run, client="ada", method="adapted", schema_sha256=PLAN.schema_sha256
    )
    return PublishedPart(record, {name: OWN[name] for name in names})


def test_an_adapted_voice_is_its_owners_bundle(tmp_path: Path, bundle: SpeechBundle) -> None:
    export_whole(bundle, published(*OWN), tmp_path / "own.zip")
    quantise_bundle(tmp_path / "own.zip", tmp_path / "own-int8.zip")

    # Holds the graphs against torch, too.
    checked = verify_bundle(tmp_path / "own.zip").bundle
    assert (checked.manifest.client, checked.manifest.personal) == ("ada", None)
    graphs = build_graphs(PLAN.model, OWN)
    assert {name: checked.files[name] for name in graphs} == graphs
    assert _said(open_voice(load_speech_bundle(tmp_path / "own-int8.zip"))).shape[1] > 0


def test_a_device_that_kept_everyones_voice_speaks_with_its_vector(
    tmp_path: Path, bundle: SpeechBundle
) -> None:
    export_own(bundle, published(SPEAKER), tmp_path / "ada.zip")
    export_whole(bundle, published(SPEAKER), tmp_path / "whole.zip")

    voice = open_voice(bundle)
    ada = load_personal_file(tmp_path / "ada.zip").on(voice, bundle.manifest)
    whole = open_voice(load_speech_bundle(tmp_path / "whole.zip"))
    np.testing.assert_allclose(_said(whole), _said(ada), atol=1e-4)
    assert np.abs(_said(whole) - _said(voice.for_nobody())).max() > 1e-3


def test_a_whole_voice_goes_nowhere_but_into_a_bundle_of_its_run(
    tmp_path: Path, bundle: SpeechBundle
) -> None:
    with pytest.raises(ExportError, match="ada published a whole model of their own: give --whole"):
        export_own(bundle, published(*OWN), tmp_path / "ada.zip")
    with pytest.raises(ExportError, match="run of ada's published part must be"):
        export_whole(bundle, published(*OWN, run="0" * 32), tmp_path / "own.zip")
    assert not (tmp_path / "own.zip").exists()


def _said(voice: Voice) -> np.ndarray:
    return next(voice.speak("Hi", seed=1, longest_s=0.3)).log_mels
