import re
from pathlib import Path

import pytest

from benchmarks.million import Measured, Wanted, needs

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
ROWS = re.findall(r"`(\w+)` \| ([\d,.]+) \|", PAGE.read_text())


def test_rounds_one_after_another_take_every_device_once() -> None:
    # A device takes the one core that talks 0.05 s, and ten cores 0.5 s together: 0.1 s of a round.
    # 1,000 devices take 100 of 600 s, so 500 s are left for work of 50 s: ten rounds of a hundred
    # devices, 50 + 100 x 0.1 s each.
    measured = Measured(
        checkin_core_ms=200,
        update_core_ms=50,
        close_core_ms=500,
        connection_kib=1024,
        most_connections=100,
    )
    wanted = Wanted(devices=1_000, window_s=600, work_s=50, cores=10, update_bytes=1 << 20)

    figures = needs(measured, wanted)

    assert (figures["rounds"], figures["cohort"], figures["round_s"]) == (10, 100, 60)
    assert figures["close_s"] == pytest.approx(100 * 0.5 / 10)
    # A cohort that works and one that waits, 1 MiB of memory for each connection.
    assert (figures["connections"], figures["connections_mb"]) == (200, 200)
    # 750 core-seconds in 600 s, 250 of them on the core that talks.
    assert figures["cores"] == pytest.approx(750 / 600)
    assert figures["talking_core"] == pytest.approx(250 / 600)
    # Fifty at a time, 50 + 50 x 0.1 s: 600 / 55 rounds.
    assert figures["most_devices"] == round(600 / 55 * 50)
    assert figures["all_coordinators"] == 10
    assert figures["draw_cores"] == pytest.approx(1_000 / 60 * 0.2)


def test_too_little_processor_is_refused() -> None:
    with pytest.raises(ValueError, match="window_s must be > 18000, which the updates alone take"):
        needs(Measured(5, 15, 6), Wanted(window_s=18_000))


@pytest.mark.parametrize(("name", "value"), ROWS, ids=[name for name, _ in ROWS])
def test_the_page_has_what_the_arithmetic_gives(name: str, value: str) -> None:
    figure = needs(Measured(), Wanted())[name]
    digits = len(value.partition(".")[2])

    assert f"{figure:,.{digits}f}" == value


def test_the_page_has_every_figure() -> None:
    assert {name for name, _ in ROWS} == needs(Measured(), Wanted()).keys()
