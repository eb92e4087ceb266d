import stat
import zipfile
from pathlib import Path

import pytest

from export.bundles.files import open_files, write_files
from export.bundles.manifest_entries import BundleError

FILES = {"a.txt": b"first", "b.bin": bytes(range(256))}
ALLOWED = ("a.txt", "b.bin", "c.sig")


@pytest.fixture(params=["bundle", "bundle.zip"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name: str = request.param
    return tmp_path / name


def test_what_was_written_is_read(target: Path) -> None:
    write_files(target, FILES)

    files = open_files(target, ALLOWED)

    assert files.names == {"a.txt", "b.bin"}
    assert {name: files.read(name, limit_bytes=256) for name in files.names} == FILES


def test_a_bundle_is_its_owners_alone(tmp_path: Path) -> None:
    write_files(tmp_path / "folder", FILES)
    write_files(tmp_path / "file.zip", FILES)

    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700
    for path in [*(tmp_path / "folder").iterdir(), tmp_path / "file.zip"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_equal_files_make_equal_zips(tmp_path: Path) -> None:
    write_files(tmp_path / "one.zip", FILES)
    write_files(tmp_path / "two.zip", FILES)

    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_zip_is_replaced_and_a_folder_is_not(tmp_path: Path) -> None:
    for name in ("old.zip", "old"):
        write_files(tmp_path / name, {"a.txt": b"old"})

    write_files(tmp_path / "old.zip", {"a.txt": b"new"})
    with pytest.raises(BundleError, match=r"old exists; remove it, or choose another name"):
        write_files(tmp_path / "old", {"a.txt": b"new"})

    assert open_files(tmp_path / "old.zip", ALLOWED).read("a.txt", limit_bytes=3) == b"new"
    assert (tmp_path / "old" / "a.txt").read_bytes() == b"old"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        write_files(tmp_path / "folder", {"a.txt": b"", "b" * 300: b""})

    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="missing must be a folder; make it first"):
        write_files(tmp_path / "missing" / "bundle", FILES)


def test_a_foreign_name_is_refused(target: Path) -> None:
    write_files(target, FILES | {"run-me.sh": b""})

    with pytest.raises(BundleError, match=r"a bundle holds only .*, got 'run-me.sh'"):
        open_files(target, ALLOWED)


@pytest.mark.parametrize("name", ["../a.txt", "/etc/a.txt", "sub/a.txt", "a.txt/", "..\\a.txt"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(name, b"evil")

    with pytest.raises(BundleError, match="a bundle holds only"):
        open_files(tmp_path / "evil.zip", ALLOWED)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive:
        archive.writestr("a.txt", b"one")
        archive.writestr("a.txt", b"two")

    with pytest.raises(BundleError, match="a bundle holds each file once"):
        open_files(tmp_path / "twice.zip", ALLOWED)


@pytest.mark.slow
def test_a_flipped_bit_in_a_zip_is_a_refusal_or_nothing(tmp_path: Path) -> None:
    write_files(tmp_path / "whole.zip", FILES)
    whole = (tmp_path / "whole.zip").read_bytes()
    refused = 0

    for place in range(len(whole)):
        for flipped in (0x01, 0x10, 0x80):
            damaged = bytearray(whole)
            damaged[place] ^= flipped
            (tmp_path / "damaged.zip").write_bytes(damaged)
            try:
                files = open_files(tmp_path / "damaged.zip", ALLOWED)
                for name in sorted(files.names):
                    files.read(name, limit_bytes=1 << 20)
            except BundleError:
                refused += 1

    assert refused > len(whole)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", bytes(10_000_000))
    assert (tmp_path / "bomb.zip").stat().st_size < 20_000

    files = open_files(tmp_path / "bomb.zip", ALLOWED)

    with pytest.raises(BundleError, match="not compressed; pack with zip -0"):
        files.read("a.txt", limit_bytes=1 << 30)


def test_a_file_larger_than_its_limit_is_not_read(target: Path) -> None:
    write_files(target, FILES)

    with pytest.raises(BundleError, match=r"b.bin must have at most 255 bytes, got 256"):
        open_files(target, ALLOWED).read("b.bin", limit_bytes=255)


def test_a_missing_file_is_named(target: Path) -> None:
    write_files(target, FILES)

    with pytest.raises(BundleError, match=r"c.sig must be"):
        open_files(target, ALLOWED).read("c.sig", limit_bytes=10)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").symlink_to(tmp_path / "secret")

    with pytest.raises(BundleError, match=r"a.txt must be a regular file"):
        open_files(folder, ALLOWED).read("a.txt", limit_bytes=10)


def test_a_damaged_zip_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path / "whole.zip", FILES)
    whole = (tmp_path / "whole.zip").read_bytes()
    (tmp_path / "short.zip").write_bytes(whole[:-30])
    (tmp_path / "flipped.zip").write_bytes(whole.replace(b"first", b"fi\x00st"))

    with pytest.raises(BundleError, match=r"must be a .zip"):
        open_files(tmp_path / "short.zip", ALLOWED)
    with pytest.raises(BundleError, match=r"a.txt cannot be read from the .zip"):
        open_files(tmp_path / "flipped.zip", ALLOWED).read("a.txt", limit_bytes=5)


def test_nothing_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="found nothing there"):
        open_files(tmp_path / "absent", ALLOWED)
