"""Audit a coordinator that is killed in every round, through its own store and recovery."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.settings.model import schema_of
from server.closing.summing import Contribution
from server.config.plans import make_plan
from server.config.store import StoreSettings
from server.records.inbox import Inbox
from server.records.store import Store, open_store
from server.releases.files import NewRelease, ReleaseFolder
from server.releases.publishing import NO_PREVIOUS, record_release
from server.releases.recovery import recover
from simulation.auditing.canaries import Coordinator
from simulation.auditing.mechanism import Subject, audit_mechanism, subject
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]

ROUNDS = 96
CENTRAL = (
    'privacy={mode="central", clipping_norm=1.0, noise_multiplier=0.5, delta=1e-4, '
    'epsilon_budget=1000.0, adjacency="zero-out"}'
)


@pytest.fixture(autouse=True)
def repeatable_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cryptographic generator repeat: an audit is wrong three times in 10,000."""
    monkeypatch.setattr(os, "urandom", random.Random(3).randbytes)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(StoreSettings(url=f"sqlite:///{tmp_path / 'store.db'}"))
    yield opened
    opened.close()


@dataclass
class Restarting:
    """Close rounds, and be killed between recording a release and publishing it.

    ``forgets`` is the fault: the restarted coordinator also closes the recorded round again.
    """

    inner: Coordinator
    first: NewRelease
    store: Store
    inbox: Inbox
    folder: ReleaseFolder
    forgets: bool
    round_number: int = 0
    digest: bytes = NO_PREVIOUS

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        (parameters,) = self.inner.publish(contributions)
        new = replace(
            self.first,
            round_number=self.round_number,
            parameters=parameters.numpy(),
            previous_sha256=self.digest,
        )
        record = self.folder.build(new, None)
        record_release(self.store, new, record, opened_at=1.0, now=2.0)
        # Killed here; a new process finds store and folder as they are.
        recover(self.store, self.inbox, self.folder, now=3.0)
        published = torch.tensor(self.folder.read(self.round_number).parameters)
        self.round_number += 1
        self.digest = bytes.fromhex(record.parameters_sha256)
        return [published, *(self.inner.publish(contributions) if self.forgets else [])]


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [False, True])
def test_a_killed_coordinator_never_publishes_a_round_with_other_noise(
    configured: Configured, population: Population, store: Store, tmp_path: Path, *, forgets: bool
) -> None:
    config, _ = configured(CENTRAL, "aggregation.attention_strength=0")
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    honest = subject(
        schema_of(plan.model), config.aggregation, config.privacy, slot_count=1000, seed=1
    )
    first = NewRelease(
        round_number=0,
        attempt=0,
        plan=plan,
        vocabulary=population.vocabulary,
        parameters=torch.zeros(schema_of(plan.model).element_count).numpy(),
        previous_sha256=NO_PREVIOUS,
        metrics={},
        guarantee=config.privacy.guarantee,
    )
    restarting = Restarting(
        honest.coordinator,
        first,
        store,
        Inbox(tmp_path / "updates"),
        ReleaseFolder(tmp_path / "releases"),
        forgets,
    )

    found = audit_mechanism(
        Subject(restarting, honest.canaries, honest.privacy), round_count=ROUNDS, seed=2
    )

    # 16 canaries in 96 rounds: a standard error of 3 %; two draws have 1/sqrt(2) of the noise.
    truth = 0.5 * (0.5**0.5 if forgets else 1)
    assert found.estimate.noise_multiplier == pytest.approx(truth, rel=0.15)
    assert bool(found.faults) == forgets
    assert found.republished == (ROUNDS if forgets else 0)
