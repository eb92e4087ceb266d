"""``sotto-simulate partition`` deals, tells sizes, and writes a record and a picture."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from simulation.cli import main
from simulation.population.partition_record import PartitionRecord


@pytest.mark.slow
def test_digits_are_dealt_told_written_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, png = tmp_path / "new" / "deal.json", tmp_path / "deal.png"

    status = main(["partition", "fedtp-digits", "--out", str(out), "--plot", str(png), "--json"])

    assert status == 0
    figures = json.loads(capsys.readouterr().out)
    record = msgspec.json.decode(out.read_bytes(), type=PartitionRecord)
    assert figures["clients"] == len(record.clients) == 20
    assert figures["classes_per_client"] == {
        "smallest": 2,
        "median": 2,
        "largest": 2,
        "total": 40,
    }
    assert figures["train"]["total"] == sum(client.train_size for client in record.clients)
    assert figures["clients_without_test"] == 0
    with Image.open(png) as picture:
        drawn = picture.convert("L")
        assert drawn.width > 500
        # Two bubbles for each of 20 clients: some hundred dark pixels at the least.
        assert sum(drawn.histogram()[:200]) > 400


def red_pixels(png: Path) -> int:
    """Return how many pixels have the colour of the line that shows noise."""
    with Image.open(png) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return int(((pixels[..., 0] > 180) & (pixels[..., 1:].max(axis=-1) < 90)).sum())


@pytest.mark.slow
def test_the_noise_of_each_camera_is_told_kept_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def deal(noise: float) -> PartitionRecord:
        data = f'data={{dataset="digits",partition="iid",client_count=5,pixel_noise={noise}}}'
        out, png = tmp_path / f"{noise}.json", tmp_path / f"{noise}.png"
        asked = ["partition", "fedtp-digits", "--set", data, "--plot", str(png), "--out", str(out)]
        assert main(asked) == 0
        return msgspec.json.decode(out.read_bytes(), type=PartitionRecord)

    noisy = deal(20.0)
    told = capsys.readouterr().out
    clean = deal(0.0)

    # From a clean camera to the noisiest in equal steps.
    assert noisy.pixel_noise == [0.0, 5.0, 10.0, 15.0, 20.0]
    assert noisy.figures()["pixel_noise"] == [0.0, 20.0]
    assert "pixel noise" in told
    assert "pixel noise" not in capsys.readouterr().out
    # What is not there is not in the file: records of older runs stay what they were.
    assert clean.pixel_noise == []
    assert b"pixel_noise" not in (tmp_path / "0.0.json").read_bytes()
    assert red_pixels(tmp_path / "20.0.png") > 300 + red_pixels(tmp_path / "0.0.png")


@pytest.mark.slow
def test_a_text_is_dealt_too_and_shown_as_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = tmp_path / "deal.png"

    status = main(
        ["partition", "keyboard-tiny", "--set", "data.client_count=22", "--plot", str(png)]
    )

    shown = capsys.readouterr().out
    assert status == 0
    assert "device-0020" in shown
    assert "device-0021" not in shown
    assert "and 2 more clients" in shown
    assert "words to train: smallest" in shown
    assert png.stat().st_size > 5000


def test_a_deal_that_cannot_be_had_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["partition", "fedtp-digits", "--set", "data.client_count=7"])

    assert status == 1
    assert "must be a multiple of 10 classes" in capsys.readouterr().err
