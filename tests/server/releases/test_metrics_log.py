from pathlib import Path

import msgspec
import pytest

from server.releases.metrics_log import MetricsLog
from server.releases.publishing import ReleaseSummary


def release(round_number: int) -> ReleaseSummary:
    return ReleaseSummary(
        round_number,
        attempt=1,
        parameters_sha256=bytes(32),
        contribution_count=3,
        duration_s=2.5,
        metrics={"perplexity": 100.0 + round_number},
        is_published=True,
    )


def rounds(path: Path) -> list[int]:
    return [msgspec.json.decode(line)["round"] for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_a_line_holds_the_figures_of_a_round(path: Path) -> None:
    MetricsLog(path).write([release(7)])

    assert msgspec.json.decode(path.read_bytes()) == {
        "round": 7,
        "attempt": 1,
        "model_sha256": "00" * 32,
        "duration_s": 2.5,
        "perplexity": 107.0,
    }


def test_rounds_without_a_line_get_one_and_the_others_no_second(path: Path) -> None:
    log = MetricsLog(path)
    log.write([release(1), release(3)])

    for _ in range(2):
        log.complete([release(number) for number in (1, 2, 3, 4)])

        assert rounds(path) == [1, 3, 2, 4]


@pytest.mark.parametrize("kept", [1, -1])
def test_a_line_that_was_cut_short_is_written_again_whole(path: Path, kept: int) -> None:
    log = MetricsLog(path)
    log.write([release(1)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b":1,", b":2,")[:kept])

    log.complete([release(1), release(2)])

    assert rounds(path) == [1, 2]


def test_lines_of_somebody_else_stay_and_count_for_no_round(path: Path) -> None:
    path.write_bytes(b'nonsense\n{"note": 1}\n')

    MetricsLog(path).complete([release(1)])

    first, second, third = path.read_bytes().splitlines()
    assert (first, second) == (b"nonsense", b'{"note": 1}')
    assert msgspec.json.decode(third)["round"] == 1
