import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from export.releases.release import find_release, read_authority, read_release
from models.plan.plan import VocabularySettings
from models.plan.release_record import ReleaseError
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from server.records.folder import ServerFolder
from server.releases.files import NewRelease, ReleaseFolder
from simulation.runs.checkpoint import RUN_FILE
from tests.export.conftest import (
    RUN,
    SETTINGS,
    Federation,
    plan_of,
    random_parameters,
    write_release,
)
from tests.moving_pointer import moving_pointer, read_both


@pytest.fixture
def copied(release_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(release_folder, tmp_path / "copied"))


@pytest.fixture
def signed(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector, federation: Federation
) -> Path:
    write_release(tmp_path / "signed", vocabulary, parameters, signer=federation.coordinator)
    return tmp_path / "signed"


def test_an_unsigned_release_is_read_as_it_was_written(
    release_folder: Path, parameters: FlatVector
) -> None:
    release = read_release(release_folder)

    np.testing.assert_array_equal(release.parameters, parameters)
    assert (release.record.run, release.record.round) == (RUN, 3)
    assert release.signer is None


def test_what_a_coordinator_writes_is_read(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector, federation: Federation
) -> None:
    folder = ReleaseFolder(tmp_path / "releases")
    new = NewRelease(
        round_number=7,
        attempt=0,
        plan=plan_of(SETTINGS, vocabulary),
        vocabulary=vocabulary,
        parameters=parameters,
        previous_sha256=bytes(32),
        metrics={"perplexity": 9.0},
        guarantee="no privacy guarantee",
    )
    folder.build(new, federation.coordinator)
    folder.publish(7)

    release = read_release(find_release(tmp_path), authority=federation.authority.certificate)

    np.testing.assert_array_equal(release.parameters, parameters)
    assert release.record.round == 7
    assert release.signer is not None
    assert release.signer.is_trusted


@pytest.mark.parametrize(
    "name", ["parameters.bin", "plan.json", "vocabulary.txt", "release.json", "signer.der"]
)
def test_a_missing_file_is_named(signed: Path, name: str) -> None:
    (signed / name).unlink()

    with pytest.raises(ReleaseError, match=f"{name} cannot be read: No such file"):
        read_release(signed)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("parameters.bin", "parameters of"),
        ("plan.json", "is not the file that release.json describes"),
        ("vocabulary.txt", "is not the file that release.json describes"),
        ("release.json", "the release was not signed by this key|cannot be read"),
        ("release.sig", "the release was not signed by this key"),
        ("signer.der", "certificate|not signed"),
    ],
)
def test_one_flipped_bit_is_noticed(signed: Path, name: str, rule: str) -> None:
    content = bytearray((signed / name).read_bytes())
    content[len(content) // 2] ^= 1
    (signed / name).write_bytes(content)

    with pytest.raises(ReleaseError, match=rule):
        read_release(signed)


def test_a_signature_must_cover_plan_and_vocabulary(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector, federation: Federation
) -> None:
    write_release(
        tmp_path, vocabulary, parameters, signer=federation.coordinator, changes={"files": {}}
    )

    with pytest.raises(ReleaseError, match=r"must hold the digest of plan\.json"):
        read_release(tmp_path)


def test_a_release_of_another_federation_is_refused(
    signed: Path, other_federation: Federation
) -> None:
    with pytest.raises(ReleaseError, match="not issued by this federation's authority"):
        read_release(signed, authority=other_federation.authority.certificate)


def test_an_unsigned_release_is_refused_where_a_signature_is_wanted(
    release_folder: Path, federation: Federation
) -> None:
    with pytest.raises(ReleaseError, match=r"release.sig cannot be read"):
        read_release(release_folder, authority=federation.authority.certificate)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"run": "f" * 32}, "run of .* must be f+, got 0123"),
        ({"schema_sha256": "0" * 64}, "schema of .* must be 0+"),
        ({"parameters_sha256": "0" * 64}, "parameters of .* must be 0+"),
        ({"format_version": 2}, "must be 1, got 2; this sotto is older"),
        ({"format_version": 0}, "must be 1, got 0; the release is older"),
        ({"round": "three"}, r"release.json cannot be read"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(
    tmp_path: Path,
    vocabulary: Vocabulary,
    parameters: FlatVector,
    changes: dict[str, object],
    rule: str,
) -> None:
    write_release(tmp_path, vocabulary, parameters, changes=changes)

    with pytest.raises(ReleaseError, match=rule):
        read_release(tmp_path)


def test_a_word_list_that_is_not_the_plans_is_refused(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector
) -> None:
    other = VocabularySettings(name="other", size=19, sha256="0" * 64)
    plan = replace(plan_of(SETTINGS, vocabulary), vocabulary=other)
    write_release(tmp_path, vocabulary, parameters, plan=plan)

    with pytest.raises(ReleaseError, match=r"vocabulary of .* must be 0+"):
        read_release(tmp_path)


def test_a_word_list_of_another_size_than_the_model_is_refused(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector
) -> None:
    shorter = vocabulary.cut(10)
    named = VocabularySettings(name="test", size=19, sha256=shorter.sha256.hex())
    plan = replace(plan_of(SETTINGS, vocabulary), vocabulary=named)
    write_release(tmp_path, shorter, parameters, plan=plan)

    with pytest.raises(ReleaseError, match=r"vocabulary size of .* must be 19, got 10"):
        read_release(tmp_path)


def test_a_payload_of_another_model_is_refused(copied: Path, tmp_path: Path) -> None:
    (copied / "parameters.bin").write_bytes(b"SOTTOPAR")

    with pytest.raises(ReleaseError, match="payload must be 1588 contiguous bytes, got 8"):
        read_release(copied)


@pytest.fixture
def run_folder(tmp_path: Path, vocabulary: Vocabulary) -> Path:
    for number in (2, 9, 10):
        folder = tmp_path / "run" / "releases" / f"{number:06d}"
        write_release(
            folder, vocabulary, random_parameters(SETTINGS, seed=number), changes={"round": number}
        )
    (tmp_path / "run" / "releases" / "best").symlink_to("000009")
    return tmp_path / "run"


@pytest.mark.parametrize(("which", "expected"), [("latest", 10), ("best", 9), ("2", 2)])
def test_a_run_has_its_latest_its_best_and_any_round(
    run_folder: Path, which: str, expected: int
) -> None:
    assert read_release(find_release(run_folder, which)).record.round == expected


def test_the_pointer_says_which_is_the_latest(run_folder: Path) -> None:
    # A release is published by moving the pointer: a folder alone is not out yet.
    (run_folder / "releases" / "latest").symlink_to("000009")

    assert read_release(find_release(run_folder)).record.round == 9


def test_what_is_read_through_a_moving_pointer_is_one_release(run_folder: Path) -> None:
    latest = run_folder / "releases" / "latest"

    with moving_pointer(latest, ("000009", "000010")):
        read = read_both(lambda: read_release(find_release(run_folder)))

    assert {found.record.round for found in read} == {9, 10}
    for found in read:
        expected = random_parameters(SETTINGS, seed=found.record.round)
        np.testing.assert_array_equal(found.parameters, expected)


def test_a_release_that_is_not_there_is_refused_with_those_that_are(run_folder: Path) -> None:
    with pytest.raises(ReleaseError, match="must have release 5, got 2, 9, 10"):
        find_release(run_folder, "5")
    with pytest.raises(ReleaseError, match=r"must have release \.\./\.\./elsewhere"):
        find_release(run_folder, "../../elsewhere")
    (run_folder / "releases" / "best").unlink()
    with pytest.raises(ReleaseError, match="must have release best"):
        find_release(run_folder, "best")


@pytest.mark.parametrize("mark", [ServerFolder(Path()).config.name, RUN_FILE])
def test_before_the_first_round_there_is_nothing_to_export(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).touch()

    with pytest.raises(ReleaseError, match="has no release yet; wait for its first round to end"):
        find_release(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path, release_folder: Path) -> None:
    with pytest.raises(ReleaseError, match="must be the folder of a coordinator"):
        find_release(tmp_path)
    with pytest.raises(ReleaseError, match="must be the folder of a coordinator"):
        find_release(release_folder, "best")
    assert find_release(release_folder) == release_folder


def test_an_authority_is_read_from_its_file(tmp_path: Path, federation: Federation) -> None:
    path = federation.folder / "authority" / "authority.crt"

    assert read_authority(path) == federation.authority.certificate
    (tmp_path / "empty.crt").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"empty.crt: certificate cannot be read"):
        read_authority(tmp_path / "empty.crt")
    with pytest.raises(ReleaseError, match="cannot be read: No such file"):
        read_authority(tmp_path / "absent.crt")


def test_a_release_is_read_through_a_link(release_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(release_folder)

    assert read_release(find_release(tmp_path / "link")).record.round == 3
