"""The page of keyboards from a start: shares and losers by hand, and what has not been run."""

import json
from pathlib import Path

import msgspec

from benchmarks.starts.measuring import Person
from benchmarks.starts.page import write_people
from benchmarks.starts.rows import SCRATCH, SHARED, TABLES
from benchmarks.tables.records import RunRecord
from edge_client.personalisation.adapted import Comparison
from simulation.figures.metrics import Value
from simulation.figures.own_words import Typed


def typed(keys: int, *, top1: int = 1) -> dict[str, Typed]:
    """Return ten words of a hundred keys, typed with so many; own words save ten more."""
    return {
        "alone": Typed(words=10, top1_hits=top1, top3_hits=2, keys_without=100, keys_with=keys),
        "with own words": Typed(
            words=10, top1_hits=top1, top3_hits=3, keys_without=100, keys_with=keys - 10
        ),
    }


def person(name: str, *, wrote: int = 0, **models: int) -> dict[str, object]:
    typed_with = {model: typed(keys) for model, keys in models.items()}
    own = Person(
        client=name, typed=typed_with, words_before=wrote, compared=Comparison(1, 5.0, 4.0, 12)
    )
    built = msgspec.to_builtins(own)
    assert isinstance(built, dict)
    return built


def run(row: str, perplexities: list[float], **more: object) -> RunRecord:
    rounds: list[dict[str, Value]] = [
        {"round": 10 * number, "valid_perplexity": value}
        for number, value in enumerate(perplexities, start=1)
    ]
    return RunRecord(row=row, seed=1, configuration={}, final={}, rounds=rounds, more=more)


def test_the_page_counts_who_loses_and_names_what_is_missing(tmp_path: Path) -> None:
    floor = {"test_top1_recall": 0.08, "test_top3_recall": 0.16}
    # Of two people one saves 45 keys instead of 40, the other 37.
    people = {
        "a": person("a", shared=60, start=70, adapted=55),
        "b": person("b", shared=60, start=70, adapted=63),
    }
    unaided = {"a": person("a", shared=64), "b": person("b", shared=61)}
    floors = {"unigram": floor, "bigram": floor}
    more = {"people": people, "floors": floors, "start_sha256": "ab" * 32}
    runs = {
        SHARED: [run(SHARED, [90.0, 70.0, 60.0], **more)],
        SCRATCH: [run(SCRATCH, [100.0, 75.0, 80.0], people=unaided)],
    }

    write_people(
        "keyboard-start", TABLES["keyboard-start"], {}, tmp_path, command="this", runs=runs
    )

    page = (tmp_path / "keyboard-start.md").read_text()
    assert "| bigram | 8.00 | 16.00 |  |  |  |  |" in page
    assert "| shared | 10.00 | 20.00 | 40.00 |  |  | 1 |" in page
    assert "| adapted | 10.00 | 20.00 | 41.00 | 1.0 | 3.0 | 1 |" in page
    assert "| all: adapted, own words | 10.00 | 30.00 | 51.00 | 0.0 | 0.0 | 1 |" in page
    assert "| start alone | 10.00 | 20.00 | 30.00 | 2.0 | 10.0 | 1 |" in page
    assert f"| {SCRATCH} | 10.00 | 20.00 | 37.50 |  |  | 1 |" in page
    assert f"parameters: {'ab' * 32}." in page
    assert "is 75.0" in page
    assert f"- {SHARED}, seed 1: 20" in page
    assert f"- {SCRATCH}, seed 1: 20" in page
    assert f"{SHARED}, seed 2; {SHARED}, seed 3; " in page
    assert json.loads((tmp_path / "keyboard-start.json").read_text())["until"]["goal"] == 75.0


def test_those_who_wrote_most_stand_alone_too(tmp_path: Path) -> None:
    # 50 people save 40 keys of a hundred, one who wrote less saves none.
    people = {
        f"{number:02}": person(
            f"{number:02}", wrote=number, shared=60 if number else 100, start=60, adapted=60
        )
        for number in range(51)
    }
    floor = {"test_top1_recall": 0.08, "test_top3_recall": 0.16}
    more = {"people": people, "floors": {"unigram": floor, "bigram": floor}, "start_sha256": ""}

    write_people(
        "keyboard-start",
        TABLES["keyboard-start"],
        {},
        tmp_path,
        command="this",
        runs={SHARED: [run(SHARED, [90.0], **more)]},
    )

    everybody, of_most = (tmp_path / "keyboard-start.md").read_text().split("of the 50 who")
    assert "| shared | 10.00 | 20.00 | 39.22 |" in everybody
    assert "| shared | 10.00 | 20.00 | 40.00 |" in of_most
