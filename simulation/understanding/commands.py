"""The work of the subcommands that explain finished runs once their arguments are read."""

from collections.abc import Sequence
from pathlib import Path

import torch

from models.personal.hypernetwork import draw_embedding
from models.settings.hypernetwork import EmbeddingFitSettings
from simulation.population.dealing import build_population
from simulation.understanding.attention_picture import picture_attention
from simulation.understanding.client_groups import client_groups
from simulation.understanding.client_histogram import client_accuracies, write_histogram
from simulation.understanding.embedding_map import Purity, project, purity_of, write_map
from simulation.understanding.finished_run import open_run
from simulation.understanding.novel import NovelCurve, novel_curve, write_novel_curves

_SHOWN_CLIENTS = 3


def attention(
    folders: Sequence[Path],
    png: Path,
    *,
    clients: Sequence[str],
    image_count: int,
    data: Path | None,
) -> None:
    """Draw the attention of some clients, the first three if none is named, over test images."""
    runs = [open_run(folder) for folder in folders]
    population = build_population(runs[0].config, data)
    shown = clients or list(population.clients)[:_SHOWN_CLIENTS]
    picture_attention(runs, population, png, clients=shown, image_count=image_count)


def embeddings(folder: Path, png: Path) -> Purity | None:
    """Draw the embeddings of a run's clients; return their purity if clients have groups."""
    run = open_run(folder)
    hypernetwork, state = run.hypernetwork()
    if not state.rows:
        raise ValueError(f"no client has taken part in {folder} yet")
    learnt = torch.stack([row.embedding for row in state.rows.values()])
    by_client = client_groups(folder)
    groups = [by_client[name] for name in state.rows] if by_client else None
    purity = None
    if groups is not None:
        size, seed = hypernetwork.settings.embedding_size, run.plan.seed
        drawn = [draw_embedding(size, run_seed=seed, client_name=name) for name in state.rows]
        purity = purity_of(learnt, torch.stack(drawn), groups)
    write_map(project(learnt, seed=run.plan.seed % 2**32), png, groups=groups, purity=purity)
    return purity


def histogram(folders: Sequence[Path], png: Path) -> None:
    """Draw how accuracy is spread over the clients of some runs."""
    write_histogram({str(folder): client_accuracies(folder) for folder in folders}, png)


def novel(
    folders: Sequence[Path],
    png: Path,
    *,
    settings: EmbeddingFitSettings,
    data: Path | None,
    longest_s: float | None = None,
) -> dict[str, NovelCurve]:
    """Fit some runs to their novel clients, keep the fits, and draw and return the curves."""
    curves = {}
    for folder in folders:
        run = open_run(folder)
        population = build_population(run.config, data)
        curves[str(folder)] = novel_curve(run, population, settings, longest_s=longest_s)
    write_novel_curves(curves, png)
    return curves
