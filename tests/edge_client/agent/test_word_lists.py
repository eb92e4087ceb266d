"""A device believes a word list by its digest alone."""

import asyncio
import hashlib
from pathlib import Path

import msgspec
import pytest

from edge_client.agent.acceptance import PlanRefusedError
from edge_client.agent.word_lists import ensure_word_list, word_list
from edge_client.wire.refusal import RefusedError
from models.plan.plan import VocabularySettings
from models.text.vocabulary import VocabularyError, shipped_vocabulary
from tests.edge_client.stand_ins import StandInTransport, shipped_words

SHIPPED = shipped_words()
ENCODED = b"<unk>\n<eos>\ngood\nmorning\n"
OWN = VocabularySettings(name="own", size=4, sha256=hashlib.sha256(ENCODED).hexdigest())


@pytest.fixture
def transport() -> StandInTransport:
    serving = StandInTransport()
    serving.vocabulary = ENCODED
    return serving


def ensure(wanted: VocabularySettings, folder: Path, transport: StandInTransport) -> None:
    asyncio.run(ensure_word_list(wanted, folder, transport, coordinator="99.0"))


def test_the_shipped_list_is_not_fetched(tmp_path: Path, transport: StandInTransport) -> None:
    ensure(SHIPPED, tmp_path, transport)

    assert word_list(SHIPPED, tmp_path) == shipped_vocabulary(SHIPPED.size)
    assert transport.calls == []


@pytest.mark.parametrize("change", [{"sha256": "00" * 32}, {"size": 10_001}])
def test_another_shipped_list_is_a_mismatch(
    tmp_path: Path, transport: StandInTransport, change: dict[str, object]
) -> None:
    with pytest.raises(PlanRefusedError) as refused:
        ensure(msgspec.structs.replace(SHIPPED, **change), tmp_path, transport)

    assert refused.value.code == "vocabulary_mismatch"


def test_of_two_shipped_lists_the_older_one_is_named(
    tmp_path: Path, transport: StandInTransport
) -> None:
    with pytest.raises(PlanRefusedError, match=r"runs sotto 99\.0 .*this device is older"):
        ensure(msgspec.structs.replace(SHIPPED, sha256="00" * 32), tmp_path, transport)


def test_another_list_is_fetched_once_and_kept(tmp_path: Path, transport: StandInTransport) -> None:
    for _ in range(2):
        ensure(OWN, tmp_path / "lists", transport)

    assert word_list(OWN, tmp_path / "lists").words == ("<unk>", "<eos>", "good", "morning")
    assert transport.calls == [("fetch_vocabulary", bytes.fromhex(OWN.sha256))]


def test_a_list_with_another_digest_is_a_mismatch_and_is_not_kept(
    tmp_path: Path, transport: StandInTransport
) -> None:
    transport.vocabulary = ENCODED + b"evening\n"

    with pytest.raises(PlanRefusedError) as refused:
        ensure(OWN, tmp_path / "lists", transport)

    assert refused.value.code == "vocabulary_mismatch"
    assert not (tmp_path / "lists").exists()


def test_a_list_that_is_not_served_is_the_coordinators_refusal(
    tmp_path: Path, transport: StandInTransport
) -> None:
    transport.refusals["fetch_vocabulary"] = ["unknown_vocabulary"]

    with pytest.raises(RefusedError, match="unknown_vocabulary"):
        ensure(OWN, tmp_path, transport)


def test_a_kept_list_that_was_changed_is_not_used(
    tmp_path: Path, transport: StandInTransport
) -> None:
    ensure(OWN, tmp_path, transport)
    kept = tmp_path / f"{OWN.sha256}.txt"
    kept.write_bytes(ENCODED.replace(b"good", b"poor"))

    with pytest.raises(VocabularyError, match="is not the plan's"):
        word_list(OWN, tmp_path)
    with pytest.raises(VocabularyError):
        word_list(msgspec.structs.replace(OWN, sha256="11" * 32), tmp_path)
