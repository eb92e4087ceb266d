from pathlib import Path

from edge_client.folder.outbox import KeptUpdate, Outbox
from protos import federation_pb2 as wire


def kept() -> KeptUpdate:
    return KeptUpdate(
        lease_nonce=b"n" * 16,
        deadline_ms=5,
        base_sha256=b"b" * 32,
        message_id=b"m" * 16,
        example_count=7,
    )


def lease(nonce: bytes = b"n" * 16, deadline_ms: int = 5, base: bytes = b"b" * 32) -> wire.Lease:
    return wire.Lease(nonce=nonce, deadline_ms=deadline_ms, base_sha256=base)


def filled(folder: Path) -> Outbox:
    outbox = Outbox(folder)
    outbox.sealed_update.write_bytes(b"sealed")
    outbox.keep(kept())
    return outbox


def test_the_update_of_the_same_lease_survives_a_restart(tmp_path: Path) -> None:
    filled(tmp_path)

    after_restart = Outbox(tmp_path)

    assert after_restart.kept_for(lease()) == kept()
    assert after_restart.sealed_update.read_bytes() == b"sealed"


def test_an_update_of_another_lease_is_dropped() -> None:
    others = [lease(nonce=b"x" * 16), lease(deadline_ms=6), lease(base=b"x" * 32)]

    assert not any(kept().answers(other) for other in others)


def test_dropping_removes_the_sealed_bytes(tmp_path: Path) -> None:
    outbox = filled(tmp_path)

    assert outbox.kept_for(lease(nonce=b"x" * 16)) is None
    assert not outbox.sealed_update.exists()
    assert outbox.kept_for(lease()) is None


def test_sealed_bytes_without_a_description_were_never_promised(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.sealed_update.write_bytes(b"sealed")

    assert outbox.kept_for(lease()) is None


def test_a_torn_description_is_not_believed(tmp_path: Path) -> None:
    outbox = filled(tmp_path)
    (tmp_path / "update.json").write_bytes(b'{"lease_nonce": "bm5u')

    assert outbox.kept_for(lease()) is None
