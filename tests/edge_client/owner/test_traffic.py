from pathlib import Path

from edge_client.owner.traffic import Traffic

DAY_S = 86_400.0


def test_bytes_add_up_within_a_day_and_across_restarts(tmp_path: Path) -> None:
    Traffic(tmp_path / "t", lambda: 10.0).add(bytes_down=100)
    Traffic(tmp_path / "t", lambda: DAY_S - 1).add(bytes_up=20)

    today = Traffic(tmp_path / "t", lambda: DAY_S - 1).today
    assert (today.bytes_down, today.bytes_up, today.bytes_moved) == (100, 20, 120)


def test_midnight_utc_starts_a_new_count(tmp_path: Path) -> None:
    Traffic(tmp_path / "t", lambda: DAY_S - 1).add(bytes_down=100)
    tomorrow = Traffic(tmp_path / "t", lambda: DAY_S)
    tomorrow.add(bytes_down=5)

    assert tomorrow.today.bytes_moved == 5


def test_a_torn_counter_counts_as_an_empty_day(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b'{"day": 0, "bytes_')

    assert Traffic(tmp_path / "t", lambda: 1.0).today.bytes_moved == 0
