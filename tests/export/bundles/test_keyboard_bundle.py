import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from export.bundles.keyboard_bundle import load_bundle, write_bundle
from export.bundles.manifest_entries import BundleError
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle, verify_bundle
from export.releases.release import read_release
from export.runtime.word_graph import GraphError
from models.text.vocabulary import Vocabulary
from privacy.identities.signatures import Purpose
from tests.export.conftest import WORDS, Federation

Json = dict[str, object]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def copied(bundle_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle_folder, tmp_path / "copied"))


@pytest.fixture(scope="session")
def signed_folder(
    tmp_path_factory: pytest.TempPathFactory, release_folder: Path, federation: Federation
) -> Path:
    target = tmp_path_factory.mktemp("signed") / "keyboard"
    export_bundle(
        KeyboardKind(), read_release(release_folder), target, signed_with=federation.coordinator
    )
    return target


@pytest.fixture
def signed(signed_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed_folder, tmp_path / "signed"))


def pin_again(folder: Path, **changes: object) -> None:
    """Make the manifest agree with the files, as somebody who forges a bundle would."""
    fields = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Json)
    fields["files"] = {
        name: {
            "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
            "size_bytes": (folder / name).stat().st_size,
        }
        for name in ("model.onnx", "vocabulary.txt")
    }
    (folder / "manifest.json").write_bytes(msgspec.json.encode(fields | changes))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("position", [0, 5, 500, 1000, -500, -1])
def test_one_flipped_bit_of_the_graph_is_noticed(copied: Path, position: int) -> None:
    flip(copied / "model.onnx", position)

    with pytest.raises(BundleError, match=r"SHA-256 of model.onnx must be"):
        load_bundle(copied)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx must be a regular file"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json must be"),
        (lambda folder: (folder / "model.onnx").write_bytes(b""), "must have .* bytes, got 0"),
        (
            lambda folder: (folder / "vocabulary.txt").write_bytes(b"<unk>\n<eos>\nevil\n"),
            "vocabulary.txt must have .* bytes, got 17",
        ),
        (lambda folder: (folder / "notes.txt").write_bytes(b""), "got 'notes.txt'"),
        (lambda folder: (folder / "manifest.json").write_bytes(bytes(1 << 21)), "at most 1048576"),
    ],
)
def test_a_damaged_bundle_is_refused(
    copied: Path, damage: Callable[[Path], object], rule: str
) -> None:
    damage(copied)

    with pytest.raises(BundleError, match=rule):
        load_bundle(copied)


def test_a_truncated_graph_with_a_manifest_that_fits_is_refused_too(copied: Path) -> None:
    path = copied / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])
    pin_again(copied)

    with pytest.raises(GraphError, match="the graph cannot be loaded"):
        verify_bundle(copied)


@pytest.mark.parametrize(
    ("words", "changes", "rule"),
    [
        (WORDS[:-1], {}, "must have the model's 19 words, got 18"),
        ((*WORDS, "more"), {}, "must have the model's 19 words, got 20"),
        ((*WORDS[:-1], "other"), {}, "must be the list .* of the plan"),
    ],
)
def test_another_vocabulary_is_refused(
    copied: Path, words: tuple[str, ...], changes: Json, rule: str
) -> None:
    (copied / "vocabulary.txt").write_bytes(Vocabulary(words).to_bytes())
    pin_again(copied, **changes)

    with pytest.raises(BundleError, match=rule):
        load_bundle(copied)


def test_a_file_that_is_no_vocabulary_is_refused(copied: Path) -> None:
    (copied / "vocabulary.txt").write_bytes(b"\xff\xfe binary")
    pin_again(copied)

    with pytest.raises(BundleError, match=r"vocabulary.txt: a vocabulary must be UTF-8"):
        load_bundle(copied)


def test_a_bundle_says_who_signed_it(signed: Path, federation: Federation) -> None:
    alone = load_bundle(signed).signer
    trusted = load_bundle(signed, authority=federation.authority.certificate).signer

    assert alone is not None
    assert trusted is not None
    assert (alone.name, alone.is_trusted) == ("coordinator", False)
    assert (trusted.name, trusted.is_trusted) == ("coordinator", True)
    assert "not checked: give --authority" in alone.describe()
    certificate = federation.coordinator.certificates.signing
    assert trusted.certificate_sha256 == hashlib.sha256(certificate).hexdigest()


def test_another_federations_bundle_is_not_trusted(
    signed: Path, other_federation: Federation
) -> None:
    with pytest.raises(BundleError, match="not issued by this federation's authority"):
        load_bundle(signed, authority=other_federation.authority.certificate)


def test_a_signed_bundle_cannot_be_pinned_again(signed: Path) -> None:
    flip(signed / "model.onnx", -1)
    pin_again(signed)

    with pytest.raises(BundleError, match="the bundle was not signed by this key"):
        load_bundle(signed)


@pytest.mark.parametrize("missing", [["manifest.sig"], ["signer.der"]])
def test_half_a_signature_is_refused(signed: Path, missing: list[str]) -> None:
    for name in missing:
        (signed / name).unlink()

    with pytest.raises(BundleError, match="must be a regular file"):
        load_bundle(signed)


def test_an_unsigned_bundle_is_refused_where_a_signature_is_wanted(
    bundle_folder: Path, federation: Federation
) -> None:
    with pytest.raises(BundleError, match=r"manifest.sig must be"):
        load_bundle(bundle_folder, authority=federation.authority.certificate)


def test_a_signature_for_a_release_is_none_for_a_bundle(
    signed: Path, federation: Federation
) -> None:
    manifest = (signed / "manifest.json").read_bytes()
    signature = federation.coordinator.sign(manifest, purpose=Purpose.RELEASE)
    (signed / "manifest.sig").write_bytes(signature)

    with pytest.raises(BundleError, match="the bundle was not signed by this key"):
        load_bundle(signed)


def test_a_key_for_wrapping_signs_no_bundle(signed: Path, federation: Federation) -> None:
    (signed / "signer.der").write_bytes(federation.coordinator.certificates.wrapping)

    with pytest.raises(
        BundleError, match=r"must hold a coordinator's signing key, got a coord.*wr"
    ):
        load_bundle(signed)


@pytest.mark.parametrize("certificate", [b"", b"no certificate", bytes(1 << 15)])
def test_a_signer_that_is_no_certificate_is_refused(signed: Path, certificate: bytes) -> None:
    (signed / "signer.der").write_bytes(certificate)

    with pytest.raises(
        BundleError, match=r"certificate cannot be read|signer.der must have at most"
    ):
        load_bundle(signed)


def test_a_manifest_of_other_files_is_not_written(bundle_folder: Path, tmp_path: Path) -> None:
    bundle = load_bundle(bundle_folder)

    with pytest.raises(BundleError, match=r"model.onnx must have"):
        write_bundle(tmp_path / "new", bundle.manifest, {**bundle.files, "model.onnx": b"other"})
    assert list(tmp_path.iterdir()) == []


def test_an_unsigned_bundle_is_used_without_cryptography(
    release_folder: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.zip"
    export_bundle(KeyboardKind(), read_release(release_folder), bundle)
    script = (
        "import sys; from pathlib import Path; from export.bundles.keyboard_bundle import "
        "load_bundle; "
        "from export.runtime.next_word import NextWords; from export.runtime.word_graph import "
        "NextWordGraph; "
        f"bundle = load_bundle(Path({str(bundle)!r})); "
        "words = NextWords(NextWordGraph(bundle.graph), bundle.vocabulary).suggest('we '); "
        "print(len(words), sorted({'cryptography', 'torch', 'onnx'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "3 []\n"
