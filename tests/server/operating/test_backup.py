import io
import shutil
import stat
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from server.config.store import StoreSettings
from server.machine.answers import Lease
from server.operating.backup import BackupError, BackupManifest, create_backup, restore_backup
from server.records.attempts import OpenAttempt, open_attempt
from server.records.folder import ServerFolder
from server.records.inbox import Inbox
from server.records.operator_switch import OperatorSwitch
from server.records.store import Store, check_run, open_store
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import NO_PREVIOUS, list_releases, record_release, release_round
from server.releases.recovery import recover

RUN = "ab" * 16
MakeRelease = Callable[[int, bytes], NewRelease]


@pytest.fixture
def previous(store: Store, releases: ReleaseFolder, new_release: MakeRelease) -> bytes:
    """Release two rounds, of which the first is the best, and return the newest digest."""
    previous = NO_PREVIOUS
    for number in (0, 1):
        new = replace(new_release(number, previous), personalisation=b"learnt in %d" % number)
        record = release_round(store, releases, new, None, opened_at=1.0, now=2.0)
        previous = bytes.fromhex(record.parameters_sha256)
    releases.point("best", 0)
    return previous


@pytest.fixture
def root(
    tmp_path: Path,
    store: Store,
    previous: bytes,
    enrolled: tuple[str, ...],
    keep: Callable[[Lease, bytes], None],
) -> ServerFolder:
    """Make a coordinator's folder, with one update of round 2 waiting."""
    open_attempt(store, OpenAttempt(2, 0, enrolled, previous, opened_at=3.0, deadline_ms=9000))
    keep(Lease(bytes(16), enrolled[0], 2, 0, 0, 60.0), b"sealed")
    (tmp_path / "federation.toml").write_text("# settings")
    (tmp_path / "identity").mkdir(mode=0o700)
    (tmp_path / "identity" / "tls.key").write_bytes(b"secret key")
    (tmp_path / "noise.secret").write_bytes(b"opens the tree's secret")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "device.sealed").write_bytes(b"sealed for a device")
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / "half.part").write_bytes(b"half")
    return ServerFolder(tmp_path)


def back_up(root: ServerFolder, settings: StoreSettings) -> tuple[Path, BackupManifest]:
    target = root.root.parent / f"{root.root.name}-backup.tar"
    return target, create_backup(root, settings, target, now=200.0)


def test_what_is_restored_goes_on_where_it_was(
    root: ServerFolder, store_settings: StoreSettings, tmp_path: Path
) -> None:
    archive, manifest = back_up(root, store_settings)
    restored = ServerFolder(tmp_path.parent / f"{tmp_path.name}-restored")

    assert restore_backup(archive, restored) == manifest

    assert (manifest.run, manifest.last_round, manifest.best_round) == (RUN, 1, 0)
    store = open_store(StoreSettings(url=f"sqlite:///{restored.root / 'store.sqlite'}"))
    folder = ReleaseFolder(restored.releases)
    assert check_run(store, 1, bytes(32)) == RUN
    assert (folder.pointed("latest"), folder.pointed("best")) == (1, 0)
    assert folder.read(1).record.parameters_sha256 == (
        list_releases(store)[0].parameters_sha256.hex()
    )
    # What the personalisation method has learnt comes with the release; parts for devices do not.
    assert folder.read(1).personalisation == b"learnt in 1"
    assert not restored.parts.exists()
    recovered = recover(store, Inbox(restored.updates), folder, now=210.0)
    assert [receipt.client for receipt in recovered.receipts] == ["device-0001"]
    assert restored.config.read_text() == "# settings"
    assert (restored.identity / "tls.key").read_bytes() == b"secret key"
    assert not restored.uploads.exists()
    # Who was revoked since is not: the operator comes before the next round.
    assert OperatorSwitch(restored.pause_mark).is_paused
    assert not OperatorSwitch(root.pause_mark).is_paused
    store.close()


def test_the_key_to_a_trees_noise_is_in_no_backup_and_comes_back_from_none(
    root: ServerFolder, store_settings: StoreSettings, tmp_path: Path
) -> None:
    archive, _ = back_up(root, store_settings)
    with tarfile.open(archive) as tar:
        assert "noise.secret" not in tar.getnames()
    # As in one of an earlier version.
    with tarfile.open(archive, "a") as tar:
        tar.add(root.noise_secret, arcname="noise.secret")
    restored = ServerFolder(tmp_path.parent / f"{tmp_path.name}-tree")

    restore_backup(archive, restored)

    assert not restored.noise_secret.exists()
    assert restored.config.exists()


def test_the_archive_and_everything_restored_is_for_the_owner_only(
    root: ServerFolder, store_settings: StoreSettings, tmp_path: Path
) -> None:
    archive, _ = back_up(root, store_settings)
    restored = tmp_path.parent / f"{tmp_path.name}-private"

    restore_backup(archive, ServerFolder(restored))

    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    entries = [path for path in restored.rglob("*") if not path.is_symlink()]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (restored, *entries)}
    assert modes == {0o700, 0o600}


def test_a_release_that_the_copied_store_does_not_know_is_left_out(
    root: ServerFolder, store_settings: StoreSettings, tmp_path: Path
) -> None:
    shutil.copytree(root.releases / "000001", root.releases / "000002")

    archive, _ = back_up(root, store_settings)

    with tarfile.open(archive) as tar:
        folders = {name.split("/")[1] for name in tar.getnames() if name.startswith("releases/")}
    assert folders == {"000000", "000001"}


def test_a_backup_waits_for_a_release_to_be_published(
    root: ServerFolder, store: Store, previous: bytes, new_release: MakeRelease
) -> None:
    new = new_release(2, previous)
    record = ReleaseFolder(root.releases).build(new, None)
    record_release(store, new, record, opened_at=1.0, now=2.0)
    settings = StoreSettings(url=f"sqlite:///{root.root / 'store.sqlite'}")

    with pytest.raises(BackupError, match="being published this moment; try again"):
        back_up(root, settings)


def test_nothing_is_restored_over_a_coordinator(
    root: ServerFolder, store_settings: StoreSettings
) -> None:
    archive, _ = back_up(root, store_settings)

    with pytest.raises(BackupError, match="is not empty; restore into a new folder"):
        restore_backup(archive, root)


def test_a_folder_without_a_store_cannot_be_backed_up(tmp_path: Path) -> None:
    settings = StoreSettings(url=f"sqlite:///{tmp_path / 'store.sqlite'}")

    with pytest.raises(BackupError, match="sotto-server init"):
        create_backup(ServerFolder(tmp_path), settings, tmp_path / "out.tar", now=1.0)


@pytest.mark.parametrize(
    ("url", "message"),
    [("postgresql://localhost/sotto", "pg_dump"), ("sqlite:////elsewhere/s.sqlite", "must lie in")],
)
def test_a_store_elsewhere_is_backed_up_elsewhere(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(BackupError, match=message):
        create_backup(ServerFolder(tmp_path), StoreSettings(url=url), tmp_path / "out", now=1.0)


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_a_name_that_leads_outside_is_refused(
    root: ServerFolder, store_settings: StoreSettings, tmp_path: Path, name: str
) -> None:
    archive, _ = back_up(root, store_settings)
    with tarfile.open(archive, "a") as tar:
        member = tarfile.TarInfo(name)
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))

    with pytest.raises(BackupError, match="has no place in a backup"):
        restore_backup(archive, ServerFolder(tmp_path.parent / f"{tmp_path.name}-new"))

    assert not (tmp_path.parent / "outside").exists()


def test_a_link_in_an_archive_is_refused(
    root: ServerFolder, store_settings: StoreSettings, tmp_path: Path
) -> None:
    archive, _ = back_up(root, store_settings)
    with tarfile.open(archive, "a") as tar:
        link = tarfile.TarInfo("link")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)

    with pytest.raises(BackupError, match="'link' has no place in a backup"):
        restore_backup(archive, ServerFolder(tmp_path.parent / f"{tmp_path.name}-new"))


@pytest.mark.parametrize("content", [b"", b"no archive" * 200, None])
def test_a_file_that_is_no_backup_is_refused(tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / "backup.tar"
    if content is not None:
        archive.write_bytes(content)

    with pytest.raises(BackupError, match=r"is no backup|no such file"):
        restore_backup(archive, ServerFolder(tmp_path / "new"))
