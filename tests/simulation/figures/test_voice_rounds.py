"""What rules, noise and batch norms make of voices' updates, held against arithmetic of its own.

Most runs are of one round: what it released is compared with what the clients' own training, made
again here, comes to by the formula of the rule.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from edge_client.personalisation.state import read_state
from edge_client.training.local_result import LocalResult
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, released_schema, upload_schema
from models.settings.model import schema_of
from models.vector.named_parts import is_statistic
from models.vector.schema import Schema
from privacy.noise.tree import DerivedKeys
from server.releases.files import read_release
from simulation.config.simulation import config_from
from simulation.figures.metrics import Figures, read_metrics
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation
from tests.models.tiny_voice import TINY, clips

# One batch of 24 frames, and three of 36 each: weights of 2/11 and 9/11 by examples.
POPULATION = Population(
    clients={
        "device-0001": clips(*[(8, 5)] * 3, seed=1),
        "device-0002": clips(*[(12, 7)] * 9, seed=2),
    },
    own_test={"device-0001": clips((8, 5), seed=3), "device-0002": clips((12, 7), seed=4)},
    held_out={"valid": {}, "test": {}},
)
BY_EXAMPLES = (2 / 11, 9 / 11)
CLIP = 0.2
STRENGTH = 4.0
CENTRAL = {
    "mode": "central",
    "clipping_norm": CLIP,
    "noise_multiplier": 0.5,
    "delta": 1e-3,
    "epsilon_budget": 100.0,
    "adjacency": "zero-out",
}
ATTENTIVE = {"rule": "attentive", "attention_strength": STRENGTH, "grouping": "tensor"}


def tables(**changed: object) -> dict[str, Any]:
    return {
        "seed": 1,
        "task": "speech",
        "data": {"dataset": "recordings", "partition": "users"},
        "model": msgspec.to_builtins(TINY),
        "training": {"optimiser": "adam", "learning_rate": 0.01, "batch_size": 4},
        "privacy": {"mode": "none"},
        "aggregation": {"rule": "mean"},
        "rounds": {"cap": 1, "cohort_size": 2, "quorum": 2, "deadline_s": 60.0},
        "evaluation": {"kind": "public", "public_text": "valid", "keep_best": False},
        **changed,
    }


BATCH = {**msgspec.to_builtins(TINY), "norm": "batch"}


class Run:
    """Hold a run, and what its clients sent in the first round."""

    def __init__(self, folder: Path, given: dict[str, Any]) -> None:
        self.folder = folder
        config = config_from(given, "test")
        self.final: Figures = run_simulation(
            config, given, POPULATION, folder, RunOptions(), noise_keys=DerivedKeys(bytes(32))
        )
        release = read_release(folder / "releases" / "latest")
        self.plan: Plan = release.plan
        self.schema: Schema = released_schema(self.plan)
        self.released = torch.tensor(release.parameters).double()
        whole = initial_parameters(config.model, config.seed)
        self.start = part_of(whole, schema_of(config.model), self.schema)
        self.trainer = LocalTrainer(self.plan)
        self.results: dict[str, LocalResult] = {
            name: self.trainer.train(
                self.start, POPULATION.clients[name], round_number=1, client_name=name
            )
            for name in POPULATION.clients
        }
        # Uploads and releases lie alike: nothing is generated, and nothing frozen.
        assert upload_schema(self.plan).slices == self.schema.slices

    def moved(self) -> Tensor:
        return self.released - self.start.double()

    def updates(self) -> list[Tensor]:
        return [result.update.double() for result in self.results.values()]

    def kept(self, name: str) -> Tensor:
        state = read_state(self.folder / "states" / name / "000001.bin", self.trainer.layout)
        assert state is not None
        return state.personal


def attentive(schema: Schema, updates: list[Tensor]) -> tuple[Tensor, Mapping[str, list[float]]]:
    """Return the sum of each tensor by e^{κ(s/C - 1)} over its weights, and those weights."""
    total, shares = torch.zeros(schema.element_count, dtype=torch.float64), {}
    for name, where in schema.slices.items():
        weights = [math.exp(STRENGTH * (float(own[where].norm()) / CLIP - 1)) for own in updates]
        shares[name] = [weight / sum(weights) for weight in weights]
        for share, own in zip(shares[name], updates, strict=True):
            total[where] += share * own[where]
    return total, shares


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [{}, {"model": BATCH, "personalisation": {"method": "fedbn"}}],
    ids=["layer", "fedbn"],
)
def test_attention_weighs_each_tensor_of_a_voice_by_how_far_it_moved_not_by_its_clips(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    privacy = {"mode": "none", "clipping_norm": CLIP}
    run = Run(tmp_path, tables(privacy=privacy, aggregation=ATTENTIVE, **changed))

    expected, shares = attentive(run.schema, run.updates())

    assert all(float(update.norm()) <= CLIP * (1 + 1e-6) for update in run.updates())
    assert_close(run.moved(), expected, rtol=0, atol=1e-6)
    # The rule matters here: some tensors are the one voice's, others the other's.
    first = [share for share, _ in shares.values()]
    assert min(first) < 0.48
    assert max(first) > 0.52
    assert not any("batch_norm" in name for name in run.schema.slices)


def test_noise_on_the_mean_of_voices_is_as_wide_as_it_is_calibrated(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        tables(privacy=CENTRAL, aggregation={"rule": "mean", "weighting": "equal"}),
    )

    noise = run.moved() - torch.stack(run.updates()).mean(0)

    # z C/M, and a thousandth for the grid. With d draws the deviation is off by a factor of
    # 1 ± 1/sqrt(2d), and the mean by 1/sqrt(d) of it: 5 of each, for keys that are fixed.
    std, draws = 0.5 * CLIP / 2, len(noise)
    assert float(noise.std()) == pytest.approx(std, rel=1e-3 + 5 / math.sqrt(2 * draws))
    assert abs(float(noise.mean())) < 5 * std / math.sqrt(draws)
    assert float(read_metrics(tmp_path)[-1]["epsilon"] or 0) > 0


def test_running_statistics_of_voices_are_averaged_by_their_frames(tmp_path: Path) -> None:
    run = Run(tmp_path, tables(model=BATCH))

    weights = torch.tensor(BY_EXAMPLES, dtype=torch.float64)
    expected = weights @ torch.stack(run.updates())

    assert_close(run.moved(), expected, rtol=0, atol=1e-6)
    assert [result.example_count for result in run.results.values()] == [24, 108]
    counted = [name for name in run.schema.slices if name.endswith("batch_count")]
    # Three convolutions before the text, and two of three behind the frames.
    assert len(counted) == 5
    for name in counted:
        assert float(run.released[run.schema.slices[name]]) == pytest.approx((2 * 1 + 9 * 3) / 11)


@pytest.mark.slow
def test_running_statistics_stay_usable_over_rounds(tmp_path: Path) -> None:
    rounds = {"cap": 4, "cohort_size": 2, "quorum": 1, "deadline_s": 60.0}

    run = Run(tmp_path, tables(model=BATCH, rounds=rounds))

    statistics = [name for name in run.schema.slices if is_statistic(name)]
    assert len(statistics) == 15
    assert bool(run.released.isfinite().all())
    for name in statistics:
        if name.endswith("running_var"):
            assert float(run.released[run.schema.slices[name]].min()) > 0
    assert math.isfinite(float(run.final["mel_l1"] or math.nan))


def test_what_would_turn_running_variances_negative_is_refused() -> None:
    # int8 shares one scale between variances and counts of batches: a run of it ended in NaN.
    given = tables(model=BATCH, compression={"uplink": "int8"})

    with pytest.raises(ValueError, match=r"batch_norm.running_mean, which a compression .*layer"):
        config_from(given, "test")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"privacy": {"mode": "none", "clipping_norm": CLIP}, "aggregation": ATTENTIVE},
        {"privacy": CENTRAL, "aggregation": {"rule": "mean", "weighting": "equal"}},
        {"model": BATCH},
    ],
    ids=["attentive", "central", "batch"],
)
def test_who_speaks_stays_with_who_speaks(tmp_path: Path, changed: dict[str, Any]) -> None:
    run = Run(tmp_path, tables(**changed))

    assert "speaker.vector" not in run.schema.slices
    kept = [run.kept(name) for name in POPULATION.clients]
    for state, result in zip(kept, run.results.values(), strict=True):
        assert result.personal is not None
        assert state.tolist() == result.personal.personal.tolist()
        assert state.shape == (TINY.speaker_size,)
    assert not torch.equal(*kept)
