from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from edge_client.datasets.text_set import DatasetError
from models.tasks.image_classification import LabelledImages
from models.text.vocabulary import EOS, UNK
from server.config.federation import ConfigError
from simulation.config.simulation import SimulationConfig, config_from, read_tables
from simulation.population.dealing import build_population
from simulation.population.population import Population, PopulationError, as_text
from simulation.population.text import build_text_population

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]


@pytest.fixture
def ptb(tmp_path: Path) -> Path:
    """Write a set in PTB's layout: 12 training sentences, 2 to validate, 2 to test."""
    folder = tmp_path / "ptb"
    folder.mkdir()
    train = [f"the {word} of the <unk>" for word in ("time", "people", "way") for _ in range(4)]
    (folder / "ptb.train.txt").write_text("".join(f" {line} \n" for line in train))
    (folder / "ptb.valid.txt").write_text(" the time \n" * 2)
    (folder / "ptb.test.txt").write_text(" the zebra of time \n" * 2)
    return folder


def ptb_config(configured: Configured, *settings: str) -> SimulationConfig:
    dealt = ("data.dataset=ptb", "data.partition=iid", "data.client_count=4")
    return configured(*dealt, *settings)[0]


def test_shards_are_equal_named_in_order_and_dealt_the_same_each_time(
    configured: Configured, ptb: Path
) -> None:
    config = ptb_config(configured)

    one, other = (build_text_population(config, ptb) for _ in range(2))

    assert list(one.clients) == ["device-0001", "device-0002", "device-0003", "device-0004"]
    # Three sentences of five words and an <eos> each.
    assert [len(stream) for stream in one.clients.values()] == [18] * 4
    assert all(torch.equal(stream, other.clients[name]) for name, stream in one.clients.items())


def test_words_are_counted_in_the_training_text_alone(configured: Configured, ptb: Path) -> None:
    config = ptb_config(
        configured,
        'vocabulary={path="training-split", size=7}',
        "model.vocabulary_size=7",
    )

    population = build_text_population(config, ptb)

    # <unk> <eos> the of people time way: zebra occurs in the test text only.
    assert set(population.vocabulary.words[2:]) == {"the", "of", "people", "time", "way"}
    (test,) = population.held_out["test"].values()
    zebra_row = test.tolist()[1]
    assert zebra_row == UNK


def test_a_word_list_larger_than_the_text_is_refused(configured: Configured, ptb: Path) -> None:
    config = ptb_config(configured, 'vocabulary={path="training-split", size=50}')

    with pytest.raises(PopulationError, match=r"has 7 words, but vocabulary\.size is 50"):
        build_text_population(config, ptb)


def test_a_set_without_users_cannot_be_dealt_by_user(configured: Configured, ptb: Path) -> None:
    config, _ = configured("data.dataset=ptb", "data.partition=users")

    with pytest.raises(PopulationError, match="use partition iid or dirichlet"):
        build_text_population(config, ptb)


def test_clients_with_too_little_text_are_left_out(configured: Configured, tmp_path: Path) -> None:
    rows = [{"user": "anna", "text": "the time of the people"}] * 3
    rows += [{"user": "ben", "text": "zzzz"}, {"user": "carl", "text": "the way"}]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    config, _ = configured("data.dataset=jsonl", "data.least_tokens=4")

    population = build_text_population(config, path)

    # Ben wrote no known word and Carl two words and an <eos>.
    assert len(population.clients) == 1
    with pytest.raises(PopulationError, match=r"no client has 500 tokens; lower data\.least"):
        build_text_population(configured("data.dataset=jsonl", "data.least_tokens=500")[0], path)


@pytest.mark.parametrize(
    ("text", "letters", "remedy"),
    [
        (
            "你好。今天 ok123",
            "Chinese 100 %, writing without blanks",
            "cannot learn from such text",
        ),
        ("добрый день", "Cyrillic 100 %", r"give \[vocabulary\] a list of its language"),
    ],
)
def test_text_that_the_list_has_no_word_of_is_told_by_its_letters(
    text: str, letters: str, remedy: str, configured: Configured, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(msgspec.json.encode({"user": "li", "text": text}) + b"\n")

    with pytest.raises(PopulationError, match=f"a word of the word list.*{letters}.*{remedy}"):
        build_text_population(configured("data.dataset=jsonl")[0], path)


def test_long_held_out_text_is_cut_between_sentences_and_nothing_is_lost(
    configured: Configured, ptb: Path
) -> None:
    # 9,000 sentences of three tokens: 27,000 tokens, more than three pieces of 8,192.
    (ptb / "ptb.test.txt").write_text(" the time \n" * 9000)

    population = build_text_population(ptb_config(configured), ptb)

    pieces = list(population.held_out["test"].values())
    assert len(pieces) == 4
    assert sum(len(piece) for piece in pieces) == 27_000
    assert all(piece[-1] == EOS for piece in pieces)
    assert [name for group in population.groups("test") for name in group] == list(
        population.held_out["test"]
    )


def test_the_embedded_text_needs_no_download(configured: Configured) -> None:
    config, _ = configured("data.partition=groups", "data.client_count=5")

    population = build_text_population(config, None)

    sizes = [len(stream) for stream in population.clients.values()]
    assert len(sizes) == 5
    assert min(sizes) > 0.9 * max(sizes)
    assert population.held_out["test"]


def test_each_authors_newest_fifth_is_their_own_test_text(
    configured: Configured, tmp_path: Path
) -> None:
    anna = [{"user": "anna", "text": "the time"}] * 8 + [{"user": "anna", "text": "people way"}] * 2
    # Ben has too little to hold out a tenth.
    ben = [{"user": "ben", "text": "the people of the time"}] * 3
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in [*anna, *ben]))
    config, _ = configured("data.dataset=jsonl", "data.split=by-user-time")

    population = build_text_population(config, path)

    # Eight sentences of two words and an <eos> to train on, two to test.
    assert [len(stream) for stream in population.clients.values()] == [24, 18]
    assert {name: len(stream) for name, stream in population.own_test.items()} == {"device-0001": 6}
    assert population.own_typed == {"device-0001": [["people", "way"]] * 2}
    assert population.groups("test") == []
    assert set(population.named_examples()) == {
        "device-0001",
        "device-0002",
        "own-test/device-0001",
    }


def test_a_set_without_users_cannot_be_split_by_their_time(
    configured: Configured, ptb: Path
) -> None:
    config, _ = configured("data.dataset=ptb", "data.split=by-user-time")

    with pytest.raises(DatasetError, match="must be one of folder, irc, jsonl, manual, sms"):
        build_text_population(config, ptb)


def test_only_clients_who_are_authors_have_text_of_their_own(configured: Configured) -> None:
    with pytest.raises(ConfigError, match='needs partition = "users", got "iid"'):
        configured("data.partition=iid", "data.client_count=3", "data.split=by-user-time")


def test_audits_ask_for_clients_who_type() -> None:
    pictures = LabelledImages(torch.zeros(1, 2, 2, 1, dtype=torch.uint8), torch.zeros(1).long())

    with pytest.raises(PopulationError, match="who type words"):
        as_text(Population(clients={"device-0001": pictures}, held_out={}))


def test_the_personal_keyboard_needs_no_download_with_the_manual() -> None:
    tables = read_tables("fedtp-keyboard")
    config = config_from({**tables, "data": {**tables["data"], "dataset": "manual"}}, "test")

    population = as_text(build_population(config, None))

    # Fifty of the manual's topics, each typing its own end; those that are short hold nothing out.
    assert len(population.clients) == config.data.client_count == 50
    assert 40 <= len(population.own_typed) <= 50
    assert list(population.own_typed) == list(population.own_test)
    assert len(population.vocabulary) == tables["model"]["vocabulary_size"] == 2500
