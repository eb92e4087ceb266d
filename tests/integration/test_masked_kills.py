"""A masked round ends where an undisturbed one does, however its coordinator and helper die."""

from concurrent.futures import ThreadPoolExecutor

from server.records.failpoints import Failpoint
from tests.integration.conftest import MakeMasked
from tests.integration.real_device import LIMIT_S
from tests.integration.test_failpoints import StubbornDevice

# One moment of the coordinator and one of its helper. In a pair the helper dies first, is started
# again and asked again for the same set; then the coordinator dies of the same round.
MOMENTS: tuple[tuple[str, str | None], ...] = (
    ("closing", None),
    ("unmasked", "answer_made"),
    ("noised", "answer_kept"),
    ("release_recorded", None),
    ("published", None),
)
ROUNDS = len(MOMENTS) + 4


def test_a_run_whose_coordinator_and_helper_die_at_every_moment_ends_where_it_should(
    masked_federation: MakeMasked,
) -> None:
    federation = masked_federation(cap=ROUNDS)
    federation.helper.start()
    federation.start()
    devices = federation.enrol(2)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(StubbornDevice(device).run) for device in devices]
        for of_coordinator, of_helper in MOMENTS:
            federation.kill()
            if of_helper is not None:
                federation.helper.stop()
                federation.helper.start(of_helper)
            federation.start(of_coordinator)
            if of_helper is not None:
                federation.helper.wait_killed()
                federation.helper.start()
            federation.wait_killed()
        federation.start()
        for future in running:
            future.result(timeout=LIMIT_S)

    federation.stop()
    releases = federation.releases()
    assert [release.round_number for release in releases] == list(range(1, ROUNDS + 1))
    assert [release.attempt for release in releases] == [0] * ROUNDS
    names = [device.name for device in devices]
    assert releases[-1].parameters_sha256.hex() == federation.expected_digest(names, ROUNDS)
    # One answer a round, whoever died before it was used, and both sides hold all of them.
    answers = [signed.answer for signed in federation.helper.answers()]
    assert [answer.round_number for answer in answers] == list(range(1, ROUNDS + 1))
    kept = [signed.answer for signed in federation.kept_answers()]
    assert kept == answers


def test_every_moment_of_a_masked_close_is_tested() -> None:
    tested = {moment for pair in MOMENTS for moment in pair if moment is not None}
    # Moments before the close are the same without masks, and an evaluation has none.
    before = {
        Failpoint.LEASE_GIVEN,
        Failpoint.MID_CHUNK,
        Failpoint.BLOB_RENAMED,
        Failpoint.COMMITTED,
    }
    assert tested == set(Failpoint) - before - {Failpoint.EVALUATION_PAID}
