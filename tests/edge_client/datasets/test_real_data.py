"""The development data, where it is: token counts that its publishers state."""

import os
from pathlib import Path

import pytest

from edge_client.datasets.registry import load_dataset
from edge_client.datasets.text_set import UserText
from models.text.vocabulary import EOS, UNK, build_vocabulary, shipped_vocabulary

DATA = Path(os.environ.get("SOTTO_DATA", Path(__file__).parents[4] / "shared" / "data"))


def needs(folder: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not (DATA / folder).is_dir(), reason=f"{DATA / folder} is absent; set SOTTO_DATA"
    )


def word_count(part: UserText) -> int:
    return sum(len(sentence) for sentences in part.values() for sentence in sentences)


def sentence_count(part: UserText) -> int:
    return sum(len(sentences) for sentences in part.values())


@needs("ptb")
def test_penn_treebank_has_its_published_counts_and_10000_words() -> None:
    text = load_dataset("ptb", DATA)

    # [FedAtt] Table I, and 9,999 types plus <eos>, less the 46 types with digits.
    assert [word_count(part) for part in (text.train, text.valid, text.test)] == [
        887_521,
        70_390,
        78_669,
    ]
    assert sentence_count(text.train) == 42_068
    assert len(build_vocabulary(text.train["ptb"])) == 10_000 - 46


@pytest.mark.slow
@needs("wikitext-2")
def test_wikitext_has_its_published_counts() -> None:
    text = load_dataset("wikitext2", DATA)

    # [FedAtt] Table I counts one <eos> for each line, blank ones included.
    assert [
        word_count(part) + sentence_count(part) for part in (text.train, text.valid, text.test)
    ] == [2_088_628, 217_646, 245_569]


@pytest.mark.slow
@needs("nus_sms")
def test_phone_users_are_clients_and_most_of_their_words_are_listed() -> None:
    text = load_dataset("sms", DATA)

    stream = shipped_vocabulary().token_stream(
        sentence for sentences in text.test.values() for sentence in sentences
    )

    # 343 users, user 0 left out.
    assert len(text.train) == 342
    words = [token for token in stream if token != EOS]
    assert sum(token != UNK for token in words) / len(words) > 0.75


@pytest.mark.papers
@needs("nus_sms")
def test_the_published_archive_of_messages_is_the_lines_made_from_it() -> None:
    archive = DATA / "nus_sms" / "smsCorpus_en_2015.03.09_all.zip"

    assert load_dataset("sms", archive) == load_dataset("sms", DATA)
