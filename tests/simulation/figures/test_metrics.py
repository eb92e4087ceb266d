import errno
import os
from pathlib import Path

import pytest

from simulation.figures.metrics import MetricsError, MetricsWriter, read_metrics, series


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        writer.write({"round": 1, "valid_perplexity": 812.5, "note": "first"})
        writer.write({"round": 2, "train_loss": 6.5})

    rows = read_metrics(tmp_path)

    assert rows == [
        {"round": 1, "valid_perplexity": 812.5, "note": "first"},
        {"round": 2, "train_loss": 6.5},
    ]
    assert series(rows, "valid_perplexity") == ([1], [812.5])


def test_resuming_drops_the_rounds_after_the_checkpoint(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as writer:
        for number in range(1, 6):
            writer.write({"round": number})

    with MetricsWriter(tmp_path, keep_rounds=3) as writer:
        writer.write({"round": 4, "again": 1})

    assert read_metrics(tmp_path) == [
        {"round": 1},
        {"round": 2},
        {"round": 3},
        {"round": 4, "again": 1},
    ]


def test_a_disk_that_fills_while_rounds_are_dropped_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetricsWriter(tmp_path) as writer:
        for number in (1, 2, 3):
            writer.write({"round": number})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        MetricsWriter(tmp_path, keep_rounds=2)

    assert read_metrics(tmp_path) == [{"round": number} for number in (1, 2, 3)]


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"round":1}\n{"round":2,"valid_perp')

    assert read_metrics(tmp_path) == [{"round": 1}]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"round":1}\nnonsense\n{"round":3}\n')

    with pytest.raises(MetricsError, match=r"metrics\.jsonl:2"):
        read_metrics(tmp_path)


def test_tensorboard_gets_the_same_figures(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # TensorBoard ships no types
        EventAccumulator,
    )

    with MetricsWriter(tmp_path, with_tensorboard=True) as writer:
        writer.write({"round": 3, "valid_perplexity": 812.5, "epsilon": 1.5, "bytes_up": 640})

    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    # What a coordinator knows too has the name that it gives Prometheus.
    shown = {"valid_perplexity": 812.5, "sotto_epsilon_spent/readers": 1.5}
    for name, value in (shown | {"sotto_received_bytes_total": 640}).items():
        (event,) = board.Scalars(name)
        assert (event.step, event.value) == (3, value)
