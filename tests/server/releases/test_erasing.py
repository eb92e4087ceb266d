"""A client that is erased leaves no row in any kept release, and every release still checks."""

import msgspec
import numpy as np
import pytest

from models.plan.release_record import PERSONALISATION_FILE, RECORD_FILE, SIGNATURE_FILE
from models.vector.tensor_file import decode_tensors
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, verify
from server.config.plans import make_plan
from server.releases.erasing import erase_client
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.method_state import method_state_of
from server.releases.publishing import NO_PREVIOUS
from tests.server.fedtp import CONFIG, SHARED, taught
from tests.server.sealing import RUN, make_parties

ONE, TWO = "device-0001", "device-0002"


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_parties(tmp_path_factory.mktemp("parties"), ()).coordinator


def release(folder: ReleaseFolder, signer: Identity, round_number: int, *clients: str) -> bytes:
    """Publish a round in which clients took part; return the bytes of its record."""
    new = NewRelease(
        round_number=round_number,
        attempt=0,
        plan=make_plan(CONFIG, RUN, cohort_size=2),
        vocabulary=CONFIG.load_vocabulary(),
        parameters=np.full(SHARED.element_count, round_number, dtype=np.float32),
        previous_sha256=NO_PREVIOUS,
        metrics={},
        guarantee="none",
        personalisation=taught(*clients).encoded(),
    )
    folder.build(new, signer)
    return (folder.publish(round_number) / RECORD_FILE).read_bytes()


def rows(folder: ReleaseFolder, round_number: int) -> list[str]:
    state = folder.read(round_number).personalisation
    assert state is not None
    return [name for name in decode_tensors(state)[0] if name.startswith("client/")]


def erase(folder: ReleaseFolder, signer: Identity, client: str) -> int:
    return erase_client(folder, client, lambda _: method_state_of(CONFIG), signer)


def test_a_client_is_erased_from_every_kept_release(
    releases: ReleaseFolder, signer: Identity
) -> None:
    before = release(releases, signer, 1, ONE)
    release(releases, signer, 2, ONE, TWO)

    assert erase(releases, signer, ONE) == 2

    assert rows(releases, 1) == []
    assert rows(releases, 2) == [f"client/{TWO}"]
    assert releases.pointed("latest") == 2
    # Only what describes the state has changed, and that is signed.
    path = releases.path(1)
    after = (path / RECORD_FILE).read_bytes()
    old, new = (msgspec.json.decode(record) for record in (before, after))
    assert old["files"].pop(PERSONALISATION_FILE) != new["files"].pop(PERSONALISATION_FILE)
    assert old == new
    public_key = signer.signing.certified.public_key
    verify(public_key, after, (path / SIGNATURE_FILE).read_bytes(), purpose=Purpose.RELEASE)


@pytest.mark.slow
def test_erasing_twice_does_no_harm(releases: ReleaseFolder, signer: Identity) -> None:
    release(releases, signer, 1, ONE, TWO)
    erase(releases, signer, ONE)

    erase(releases, signer, ONE)

    assert rows(releases, 1) == [f"client/{TWO}"]


def test_an_erasure_that_was_cut_off_is_finished_or_undone(
    releases: ReleaseFolder, signer: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(releases, signer, 1, ONE, TWO)
    monkeypatch.setattr(ReleaseFolder, "end_rewriting", lambda *_: None)
    erase(releases, signer, ONE)

    releases.repair_rewriting()

    # Cut off before the first rename: the release is as it was, and nothing lies about.
    assert rows(releases, 1) == [f"client/{ONE}", f"client/{TWO}"]
    monkeypatch.undo()
    monkeypatch.setattr(ReleaseFolder, "repair_rewriting", lambda *_: None)
    erase(releases, signer, ONE)
    monkeypatch.undo()

    releases.repair_rewriting()

    # Cut off after it: the release is the new one.
    assert rows(releases, 1) == [f"client/{TWO}"]
    left = {entry.name for entry in releases.path(1).parent.iterdir()}
    assert left == {"000001", "latest"}
