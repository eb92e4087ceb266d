"""The page of keyboards from a start: shares and losers by hand, and what has not been run."""

import json
from pathlib import Path

import msgspec

from benchmarks.starts.measuring import Person
from benchmarks.starts.page import write_people
from benchmarks.starts.rows import BEFORE, SHARED, TABLES
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


def person(name: str, adapted: int) -> dict[str, object]:
    models = {"shared": typed(60), "start": typed(70), "adapted": typed(adapted)}
    own = Person(client=name, typed=models, compared=Comparison(1, 5.0, 4.0, 12))
    built = msgspec.to_builtins(own)
    assert isinstance(built, dict)
    return built


def run(row: str, perplexities: list[float], **more: object) -> RunRecord:
    rounds: list[dict[str, Value]] = [
        {"round": 10 * number, "valid_perplexity": value}
        for number, value in enumerate(perplexities, start=1)
    ]
    final: dict[str, Value] = {"keystroke_savings": 0.375}
    return RunRecord(row=row, seed=1, configuration={}, final=final, rounds=rounds, more=more)


def test_the_page_counts_who_loses_and_names_what_is_missing(tmp_path: Path) -> None:
    floor = {"test_top1_recall": 0.08, "test_top3_recall": 0.16}
    # Of two people one saves 45 keys instead of 40, the other 37.
    people = {"a": person("a", 55), "b": person("b", 63)}
    floors = {"unigram": floor, "bigram": floor}
    more = {"people": people, "floors": floors, "start_sha256": "ab" * 32}
    runs = {
        SHARED: [run(SHARED, [90.0, 70.0, 60.0], **more)],
        BEFORE: [run(BEFORE, [100.0, 75.0, 80.0])],
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
    assert f"| {BEFORE} |  |  | 37.50 |  |  | 1 |" in page
    assert f"parameters: {'ab' * 32}." in page
    assert "is 75.0" in page
    assert f"- {SHARED}, seed 1: 20" in page
    assert f"{SHARED}, seed 2; {SHARED}, seed 3; " in page
    assert json.loads((tmp_path / "keyboard-start.json").read_text())["until"]["goal"] == 75.0
