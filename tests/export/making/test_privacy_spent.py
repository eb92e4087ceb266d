"""A bundle says what its release has spent of privacy, whatever it is a bundle of."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from export.bundles.manifest import PrivacyStatement
from export.cli import main
from export.faces.family import ExportError
from export.making.image import ClassifierKind
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.making.speech import VoiceKind
from export.releases.release import Release, read_release
from models.plan.release_record import Metric
from tests.export.making.test_image import image_plan
from tests.export.people_scene import release_with_people
from tests.export.promised import DELTA, EPSILON, PROMISE, promising
from tests.export.voices import speech_plan, speech_release, vocoder_release

SPENT = PrivacyStatement(mode="central", guarantee=PROMISE, epsilon=EPSILON, delta=DELTA)


@pytest.fixture
def release(release_folder: Path) -> Release:
    return read_release(release_folder)


def test_a_keyboard_says_what_was_spent_and_inspect_shows_it(
    release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = export_bundle(KeyboardKind(), promising(release), tmp_path / "keyboard")
    assert main(["inspect", str(tmp_path / "keyboard")]) == 0

    assert manifest.privacy == SPENT
    shown = " ".join(capsys.readouterr().out.split())
    assert "privacy_spent: epsilon 77.2 at delta 0.001, after round 3" in shown
    assert f"promise_for_the_whole_run: {PROMISE}" in shown


def test_a_classifier_says_what_was_spent(tmp_path: Path) -> None:
    release = release_with_people(tmp_path / "run", None, plan=image_plan())

    assert export_bundle(ClassifierKind(), promising(release), tmp_path / "image").privacy == SPENT


def test_a_voice_says_what_was_spent_and_what_its_vocoder_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = speech_release(tmp_path / "voice", speech_plan())
    vocoder = vocoder_release(tmp_path / "vocoder")

    manifest = export_bundle(VoiceKind(promising(vocoder)), release, tmp_path / "said")
    assert main(["inspect", str(tmp_path / "said")]) == 0

    assert (manifest.privacy.epsilon, manifest.privacy.delta) == (None, None)
    assert manifest.vocoder is not None
    assert manifest.vocoder.privacy == SPENT
    shown = " ".join(capsys.readouterr().out.split())
    assert " privacy_spent: none promised" in shown
    assert "vocoder_privacy_spent: epsilon 77.2 at delta 0.001, after round 3" in shown


def test_figures_are_believed_only_where_the_mode_promises_something(
    release: Release, tmp_path: Path
) -> None:
    metrics = release.record.metrics | {"epsilon": EPSILON, "delta": DELTA}
    told = replace(release, record=changed(release.record, metrics=metrics))

    assert export_bundle(KeyboardKind(), told, tmp_path / "keyboard").privacy.epsilon is None


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("epsilon", "much", r"Expected `float \| null`, got `str`"),
        ("epsilon", -1.0, "epsilon must be >= 0"),
        ("delta", None, "epsilon and delta belong together"),
    ],
)
def test_figures_that_cannot_be_what_was_spent_are_refused(
    release: Release, tmp_path: Path, name: str, value: Metric, rule: str
) -> None:
    told = promising(release)
    metrics = told.record.metrics | {name: value}
    told = replace(told, record=changed(told.record, metrics=metrics))

    with pytest.raises(ExportError, match=rule):
        export_bundle(KeyboardKind(), told, tmp_path / "keyboard")
    assert not (tmp_path / "keyboard").exists()
