"""A public text on the coordinator, scored by every released model."""

import math
from pathlib import Path

import msgspec
import pytest
import torch

from models.plan.plan import VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import Vocabulary, shipped_vocabulary
from server.releases.public_evaluation import EvaluationTextError, PublicText
from tests.server.round_hands import round_in_hand

WORDS = 50


def score(path: Path, parameters: torch.Tensor) -> tuple[int, float]:
    model = GruLmSettings(vocabulary_size=WORDS, hidden_size=4)
    words = VocabularySettings(name="english-10k", size=WORDS, sha256="00" * 32)
    plan = msgspec.structs.replace(round_in_hand(1).plan, model=model, vocabulary=words)
    counts = PublicText(path, shipped_vocabulary(WORDS)).score(plan, parameters)
    return counts.token_count, counts.perplexity


def test_the_text_is_read_as_devices_read_theirs(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the of Dr. And to\n")

    stream = PublicText(text, Vocabulary(("<unk>", "<eos>", "the", "of", "dr", "jones"))).stream
    text.write_text("the of Dr. Jones of\n")
    cut = PublicText(text, Vocabulary(("<unk>", "<eos>", "the", "of", "dr", "jones"))).stream

    # The full stop of a title ends no sentence where a name follows, and the name is unknown.
    assert stream.tolist() == [2, 3, 4, 1, 0, 0, 1]
    assert cut.tolist() == [2, 3, 4, 0, 3, 1]


def test_every_word_and_sentence_end_is_scored_once(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the of and\nto the\n")
    zeros = torch.zeros(
        schema_of(GruLmSettings(vocabulary_size=WORDS, hidden_size=4)).element_count
    )

    tokens, perplexity = score(text, zeros)

    # Five words and two sentence ends; with all parameters zero every word is as likely.
    assert tokens == 7
    assert math.isclose(perplexity, WORDS, rel_tol=1e-5)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"xyzzy plugh\n", b"\xff\xfe\x00"])
def test_a_text_that_cannot_be_scored_is_refused_at_the_start(
    tmp_path: Path, content: bytes
) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(content)

    with pytest.raises(EvaluationTextError, match=r"text\.txt"):
        PublicText(text, shipped_vocabulary(WORDS))


def test_a_missing_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationTextError, match="No such file"):
        PublicText(tmp_path / "absent.txt", shipped_vocabulary(WORDS))
