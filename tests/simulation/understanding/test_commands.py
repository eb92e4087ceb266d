"""The subcommands on tiny finished runs: what they draw, print and refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from simulation.cli import main
from simulation.population.dealing import build_population
from simulation.understanding.attention_picture import write_attention
from simulation.understanding.client_groups import client_groups
from simulation.understanding.embedding_map import project, purity_of
from simulation.understanding.finished_run import open_run

MakeRun = Callable[..., Path]
Captured = pytest.CaptureFixture[str]
PNG = b"\x89PNG\r\n\x1a\n"


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_attention_is_drawn_over_the_clients_own_images(
    run_of: MakeRun, tmp_path: Path, capsys: Captured
) -> None:
    few, many = tmp_path / "few.png", tmp_path / "many.png"
    folder = str(run_of("fedtp"))

    assert main(["attention", folder, "--images", "1", "--png", str(few)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(few)
    named = ["--client", "device-0002", "--client", "device-0003"]
    assert main(["attention", folder, str(run_of("vanilla")), *named, "--png", str(many)]) == 0

    # An image, the digit and three clients; six images, the digit and two clients of two runs.
    shapes = [Image.open(path).size for path in (few, many)]
    assert shapes[0][0] < shapes[1][0]
    assert shapes[0][1] < shapes[1][1]


def test_a_map_is_hot_where_its_share_is(tmp_path: Path) -> None:
    maps = torch.zeros(1, 2, 2)
    maps[0, 1, 0] = 0.4
    path = tmp_path / "hot.png"

    write_attention(torch.zeros(1, 8, 8, 1, dtype=torch.uint8), {"a": maps}, path, titles=["x"])

    picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
    # Jet's hot end is red, its cold end blue; the image itself is black.
    heat, cold = (picture[..., one] - picture[..., other] for one, other in ((0, 2), (2, 0)))
    (rows, columns), (cold_rows, cold_columns) = np.nonzero(heat > 60), np.nonzero(cold > 60)
    assert rows.mean() > cold_rows.mean()
    assert columns.mean() < cold_columns.mean()
    # The map lies in the column on the right, the image alone on the left.
    assert columns.min() > picture.shape[1] / 2


@pytest.mark.slow
def test_attention_of_nobody_known_and_of_no_transformer_is_refused(
    run_of: MakeRun, tmp_path: Path, capsys: Captured
) -> None:
    out = ["--png", str(tmp_path / "no.png")]
    convnet = (
        'model={family="convnet", class_count=10, image_size=8, channel_count=1, '
        "pixel_mean=[0.3], pixel_std=[0.4], padding=2}"
    )

    assert main(["attention", str(run_of("fedtp")), "--client", "nobody", *out]) == 1
    assert 'there is no client "nobody"; names are device-' in capsys.readouterr().err
    assert main(["attention", str(run_of("fedavg", convnet)), *out]) == 1
    assert 'attention over images needs model.family = "vit"' in capsys.readouterr().err
    assert main(["attention", str(run_of("fedtp")), "--images", "0", *out]) == 1
    assert "at least 1 image to show, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_embeddings_are_drawn_and_their_purity_told(
    run_of: MakeRun, tmp_path: Path, capsys: Captured
) -> None:
    folder, png = run_of("fedtp"), tmp_path / "embeddings.png"

    assert main(["embeddings", str(folder), "--json", "--png", str(png)]) == 0

    told = json.loads(capsys.readouterr().out)
    assert is_png(png)
    assert told.keys() == {"learnt", "drawn", "chance"}
    assert all(0 <= share <= 1 for share in told.values())
    assert main(["embeddings", str(run_of("fedavg")), "--png", str(png)]) == 1
    assert 'only methods "fedtp" and "pfedhn" have a hypernetwork' in capsys.readouterr().err


def test_purity_is_the_share_of_nearest_neighbours_of_the_same_group() -> None:
    # On a line: 0 and 1 are each other's nearest, 10 is nearest to 11, and 11.5 to 11.
    learnt = torch.tensor([[0.0], [1.0], [10.0], [11.0], [11.5]])
    # As they started, 0 and 3 lay together, 1 and 2, and 4 beside 3.
    drawn = torch.tensor([[0.0], [5.0], [5.5], [0.1], [0.3]])
    groups = ["a", "a", "b", "b", "a"]

    purity = purity_of(learnt, drawn, groups)

    # 0 and 1 alike, 10 and 11: 10 -> 11 alike, 11 -> 11.5 not, 11.5 -> 11 not.
    assert purity.learnt == 3 / 5
    assert purity.drawn == 0 / 5
    # Three couples of a and one of b, of ten couples.
    assert purity.chance == 4 / 10


def test_clients_far_apart_are_drawn_apart_and_alike_each_time() -> None:
    generator = torch.Generator().manual_seed(2)
    centres = torch.tensor([-20.0, 20.0]).repeat_interleave(6).unsqueeze(1)
    embeddings = centres + torch.randn(12, 8, generator=generator)

    points, again = project(embeddings, seed=3), project(embeddings, seed=3)

    assert torch.equal(points, again)
    within = torch.pdist(points[:6]).max()
    assert float(torch.cdist(points[:6], points[6:]).min()) > float(within)
    with pytest.raises(ValueError, match="t-SNE needs at least 4 clients, got 3"):
        project(embeddings[:3], seed=3)


def test_groups_are_the_classes_that_clients_have_most_of(run_of: MakeRun, tmp_path: Path) -> None:
    folder = run_of("fedtp")
    population = build_population(open_run(folder).config, None)

    groups = client_groups(folder)

    assert population.partition is not None
    for client in population.partition.clients:
        assert client.train_counts[int(groups[client.name])] == max(client.train_counts)
    record = json.loads((folder / "partition.json").read_text())
    (tmp_path / "partition.json").write_text(
        json.dumps({**record, "coarse": ["low"] * 5 + ["high"] * 5})
    )
    coarse = client_groups(tmp_path)
    for client in population.partition.clients:
        low = sum(client.train_counts[:5])
        assert coarse[client.name] == ("low" if low >= sum(client.train_counts[5:]) else "high")
    assert client_groups(tmp_path / "nowhere") == {}


def test_accuracies_of_several_runs_are_drawn_together(
    run_of: MakeRun, tmp_path: Path, capsys: Captured
) -> None:
    png = tmp_path / "clients.png"

    assert main(["clients", str(run_of("fedtp")), str(run_of("fedavg")), "--png", str(png)]) == 0
    assert is_png(png)
    assert main(["clients", str(tmp_path), "--png", str(png)]) == 1
    assert "has no clients.json: the run is not over" in capsys.readouterr().err


@pytest.mark.slow
def test_novel_clients_are_followed_epoch_by_epoch(
    run_of: MakeRun, tmp_path: Path, capsys: Captured
) -> None:
    folders = [str(run_of("fedtp")), str(run_of("fedrod"))]
    out = ["--epochs", "2", "--json", "--png", str(tmp_path / "novel.png")]

    assert main(["novel", *folders, *out]) == 0

    curves = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert is_png(tmp_path / "novel.png")
    assert list(curves) == folders
    fedtp, fedrod = curves.values()
    for curve in (fedtp, fedrod):
        assert curve["novel_clients"] == 2
        assert curve["figure"] == "accuracy"
        assert len(curve["values"]) == 3
        assert curve["ratio"] == pytest.approx(curve["values"][1] / curve["trained_value"])
    # An embedding, and a head of 8 features and 10 classes.
    assert (fedtp["fitted_values"], fedrod["fitted_values"]) == (32, 90)
    # Of two classes a client, one each of ten guessed: fitting the head is what helps.
    assert fedrod["values"][2] > fedrod["values"][0]


def test_a_run_without_novel_clients_is_refused(
    run_of: MakeRun, tmp_path: Path, capsys: Captured
) -> None:
    folder = run_of("fedavg", "data.novel_share=0.0")

    assert main(["novel", str(folder), "--png", str(tmp_path / "novel.png")]) == 1
    assert "run it with --set data.novel_share=0.2" in capsys.readouterr().err
