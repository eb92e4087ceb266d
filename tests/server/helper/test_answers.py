"""A helper's store: one answer for a question, whatever happens to the process in between."""

import hashlib
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from privacy.identities.party import Identity
from privacy.masking.helper_answer import AnswerError, SignedAnswer, check_list
from privacy.masking.mask_form import MaskForm
from protos.helper_refusals import HelperCode
from server.helper.answers import Answers, AnswerStoreError, Question
from server.helper.refusal import Refusal
from tests.server.helper.scene import RUN, Parties

DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_800_000_000_000


def question(
    members: frozenset[int],
    round_number: int = 1,
    attempt: int = 0,
    group: int = 0,
    seeds: bytes = b"",
    *,
    devices: frozenset[str] | None = None,
) -> Question:
    """Ask for a set of leases; a lease's seed is its own in every attempt, or made of ``seeds``.

    A slot is a device's own, or the set is of ``devices``.
    """
    form = MaskForm(element_count=4, bits=16, attempt=attempt, groups=2, least_contributors=1)
    name = bytes([round_number, attempt])
    leases = {slot: bytes([slot]) + name + bytes(13) for slot in members}
    return Question(
        run=RUN,
        round_number=round_number,
        group=group,
        form=form,
        set_sha256=hashlib.sha256(repr(sorted(leases.items())).encode()).digest(),
        seeds={slot: (seeds or name) + bytes([slot]) + bytes(29) for slot in members},
        nonces=frozenset(leases.values()),
        devices=devices or frozenset(f"device-{slot}" for slot in members),
    )


def sum_of(asked: Question) -> bytes:
    """Stand in for the digest of a sum: the seeds decide it."""
    return hashlib.sha256(repr(sorted(asked.seeds.values())).encode()).digest()


def record(answers: Answers, asked: Question, helper: Identity, at: int = NOW_MS) -> SignedAnswer:
    return answers.record(asked, sum_of(asked), helper, now_ms=at)


def code_of(answers: Answers, asked: Question, at: int = NOW_MS) -> HelperCode | None:
    try:
        answers.find(asked, now_ms=at)
    except Refusal as refusal:
        return refusal.code
    return None


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    return opened(tmp_path / "answers.sqlite")


def opened(path: Path, most: int = 2) -> Answers:
    return Answers(path, RUN, largest_rounds_a_day=most)


def test_a_day_has_so_many_attempts_and_the_next_one_as_many(
    answers: Answers, admitted: Parties
) -> None:
    for attempt in (0, 1):
        for group in (0, 1):
            asked = question(frozenset({group, group + 2}), attempt=attempt, group=group)
            record(answers, asked, admitted.helper, NOW_MS + attempt)
    third = question(frozenset({0, 2}), attempt=2)

    # Two groups of one attempt count once. The first of the two is a day old before the second.
    assert code_of(answers, third, NOW_MS + DAY_MS - 1) is HelperCode.TOO_MANY_ROUNDS
    assert code_of(answers, third, NOW_MS + DAY_MS) is None
    # A clock that was set back opens no room.
    assert code_of(answers, third, NOW_MS - 1000) is HelperCode.TOO_MANY_ROUNDS


def test_a_used_seed_is_known_in_every_later_round(answers: Answers, admitted: Parties) -> None:
    record(answers, question(frozenset({0, 2}), seeds=b"s"), admitted.helper)

    again = question(frozenset({2, 4}), round_number=9, seeds=b"s")

    with pytest.raises(Refusal) as refused:
        answers.find(again, now_ms=NOW_MS)
    assert (refused.value.code, refused.value.slots) == (HelperCode.REPEATED_SEED, (2,))


def test_a_device_is_in_one_sum_of_an_attempt_whatever_leases_it_has(
    answers: Answers, admitted: Parties
) -> None:
    first = question(frozenset({0, 2}), devices=frozenset({"anna", "ben"}))
    record(answers, first, admitted.helper)

    # Other slots, nonces and seeds: the coordinator has given Anna a second lease.
    twice = question(frozenset({1, 3}), group=1, devices=frozenset({"anna", "carla"}))
    others = question(frozenset({1, 3}), group=1, devices=frozenset({"dora", "carla"}))
    later = question(frozenset({0, 2}), attempt=1, devices=frozenset({"anna", "ben"}))

    assert code_of(answers, twice) is HelperCode.OVERLAPPING_SET
    assert code_of(answers, first) is None
    assert code_of(answers, others) is None
    # Another attempt is charged for itself.
    assert code_of(answers, later) is None


def test_only_the_newest_attempt_has_digests_of_its_devices(
    answers: Answers, admitted: Parties, tmp_path: Path
) -> None:
    for attempt in (0, 1):
        record(answers, question(frozenset({0, 2}), attempt=attempt), admitted.helper)

    with closing(sqlite3.connect(tmp_path / "answers.sqlite")) as store:
        assert store.execute("SELECT count(*) FROM devices").fetchone() == (2,)


def test_nothing_of_a_refused_question_is_kept(answers: Answers, admitted: Parties) -> None:
    first = record(answers, question(frozenset({0, 2})), admitted.helper)

    with pytest.raises(Refusal):
        record(answers, question(frozenset({0, 4})), admitted.helper)

    assert answers.listed() == [first]
    assert code_of(answers, question(frozenset({4, 6}), attempt=1)) is None


def test_the_store_names_no_device_and_holds_no_seed(
    answers: Answers, admitted: Parties, tmp_path: Path
) -> None:
    asked = question(frozenset({0, 2}), seeds=b"a seed!")
    record(answers, asked, admitted.helper)

    held = b"".join(path.read_bytes() for path in tmp_path.glob("answers*"))

    assert not any(seed[:16] in held for seed in asked.seeds.values())
    # Devices are named device-0 and device-2.
    assert b"device-" not in held


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "answers.sqlite") as store:
        store.execute("PRAGMA user_version=2")
    store.close()

    with pytest.raises(AnswerStoreError, match="newer sotto"):
        opened(tmp_path / "answers.sqlite")


def test_answers_that_a_backup_lacks_are_taken_back(tmp_path: Path, admitted: Parties) -> None:
    helper, authority = admitted.helper, admitted.authority.certificate
    whole, old = opened(tmp_path / "whole.sqlite", 9), opened(tmp_path / "old.sqlite", 9)
    for round_number in (1, 2, 3):
        asked = question(frozenset({0, 2}), round_number)
        record(whole, asked, helper)
        if round_number == 1:
            shutil.copy(tmp_path / "whole.sqlite", tmp_path / "old.sqlite")
    kept = whole.listed()
    old = opened(tmp_path / "old.sqlite", 9)

    assert old.take_back(kept, authority=authority) == 2

    assert old.listed() == kept
    assert code_of(old, question(frozenset({0, 4}), 3)) is HelperCode.OTHER_SET
    assert code_of(old, question(frozenset({0, 4}), 2, attempt=1)) is HelperCode.STALE_ATTEMPT
    # Nobody knows any more who was in the answered sums, so its other groups have none either.
    assert code_of(old, question(frozenset({0, 2}), 3, group=1)) is HelperCode.STALE_ATTEMPT
    with pytest.raises(AnswerError, match="differ"):
        old.take_back([kept[1], *kept[1:]], authority=authority)


class AskedInAnyOrder(RuleBasedStateMachine):
    """Questions, kills and restarts in any order, against the rule: one answer, no overlap."""

    helper: Identity
    authority: bytes

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.answers = opened(self.folder / "answers.sqlite", most=100)
        self.given: dict[tuple[int, int, int], tuple[bytes, SignedAnswer]] = {}
        self.used: dict[bytes, bytes] = {}

    @rule(
        members=st.frozensets(st.integers(0, 3), min_size=1, max_size=3),
        round_number=st.integers(1, 2),
        attempt=st.integers(0, 1),
        group=st.integers(0, 1),
        dies_before_the_disk=st.booleans(),
        restarts=st.booleans(),
    )
    def ask(
        self,
        *,
        members: frozenset[int],
        round_number: int,
        attempt: int,
        group: int,
        dies_before_the_disk: bool,
        restarts: bool,
    ) -> None:
        asked = question(members, round_number, attempt, group)
        key = (round_number, attempt, group)
        try:
            before = self.answers.find(asked, now_ms=NOW_MS)
            if not dies_before_the_disk:
                signed = record(self.answers, asked, self.helper)
                assert before in (None, signed)
                self._told(key, asked, signed)
        except Refusal:
            # The same set must get its answer again.
            assert self.given.get(key, (b"",))[0] != asked.set_sha256
        if restarts or dies_before_the_disk:
            self.answers = opened(self.folder / "answers.sqlite", most=100)

    def _told(self, key: tuple[int, int, int], asked: Question, signed: SignedAnswer) -> None:
        assert self.given.setdefault(key, (asked.set_sha256, signed)) == (asked.set_sha256, signed)
        for nonce in asked.nonces:
            assert self.used.setdefault(nonce, asked.set_sha256) == asked.set_sha256

    @invariant()
    def the_list_is_what_was_told(self) -> None:
        listed = self.answers.listed()
        assert sorted(listed) == sorted(signed for _, signed in self.given.values())

    def teardown(self) -> None:
        check_list(self.answers.listed(), authorities=[self.authority], run=RUN)
        shutil.rmtree(self.folder)


@pytest.mark.slow
def test_no_question_gets_two_answers_and_no_lease_is_in_two(admitted: Parties) -> None:
    AskedInAnyOrder.helper = admitted.helper
    AskedInAnyOrder.authority = admitted.authority.certificate

    run_state_machine_as_test(
        AskedInAnyOrder, settings=settings(max_examples=12, stateful_step_count=15, deadline=None)
    )
