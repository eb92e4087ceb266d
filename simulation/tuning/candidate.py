"""Say what one candidate setting promises where it is to be deployed.

Under ``masked`` the noise of all contributors is in the model, and that of the honest ones among
the fewest counts: what deploys has a quorum of 0.8 of its cohort.
"""

import math
from typing import Literal

import msgspec

from models.vector.schema import Schema
from privacy.accounting.accountant import epsilon_of_tally
from privacy.accounting.buffer_design import Buffers, design_buffers
from privacy.accounting.checked_values import check_delta
from privacy.accounting.events import (
    Adjacency,
    BufferedRelease,
    GaussianRelease,
    LocalRelease,
    MaskedRelease,
    SecretCoinFlips,
)
from privacy.accounting.slot_overflow import slot_count_for
from privacy.accounting.tally import Tally
from privacy.clipping.settings import ClippingSettings
from privacy.noise.masked_settings import share_of_devices
from server.aggregation.sensitivity import aggregate_sensitivity, summed_sensitivity
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings

Mode = Literal["central", "local", "ftrl", "masked"]
Rule = Literal["mean", "attentive"]
Kind = tuple[Mode, Rule]
MODES: tuple[Mode, ...] = ("central", "local", "ftrl", "masked")
ADJACENCY: Adjacency = "zero-out"
NoiseOn = Literal["mean", "sums"]
_LEAST_OF_COHORT = 0.8
"""Share of a masked cohort with which its round may close."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """The deployment for which a promise is made.

    Attributes:
        population_size: N, enrolled people.
        rounds: T, rounds of the whole run.
        delta: δ of the whole run, at most 1 / N.
        honest_share: Share of a round's fewest contributors believed to add their noise, in (0, 1];
            for ``masked`` alone, and None without it.
    """

    population_size: int
    rounds: int
    delta: float
    honest_share: float | None = None

    def __post_init__(self) -> None:
        if self.honest_share is not None and not 0 < self.honest_share <= 1:
            raise ValueError(f"honest_share must lie in (0, 1], got {self.honest_share}")
        for name in ("population_size", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        check_delta(self.delta, population_size=self.population_size)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the search.

    Attributes:
        noise_multiplier: z; > 0.
        clipping_norm: C, in parameter units; > 0.
        attention_strength: κ; 0 with the rule ``mean``.
        cohort: People whom a round expects, N q.
        noise_on: What the coordinator noises; see ``CentralNoise``.
    """

    mode: Mode
    rule: Rule
    noise_multiplier: float
    clipping_norm: float
    attention_strength: float
    cohort: int
    server_step_size: float
    noise_on: NoiseOn = "mean"

    @property
    def noises_sums(self) -> bool:
        """Whether the noise goes on sums: under masks, or where the coordinator adds it so."""
        return self.mode == "masked" or (self.noise_on == "sums" and self.mode != "local")

    @property
    def kind(self) -> Kind:
        """The group that it is compared with: noise mode and rule."""
        return self.mode, self.rule

    @property
    def aggregation(self) -> AggregationSettings:
        """The rule's settings."""
        return rule_settings(self.rule, self.attention_strength, self.server_step_size)


def rule_settings(
    rule: Rule, attention_strength: float, server_step_size: float
) -> AggregationSettings:
    """Return a rule's settings; the equal mean has no attention strength."""
    if rule == "mean":
        return MeanSettings(weighting="equal", server_step_size=server_step_size)
    return AttentiveSettings(
        attention_strength=attention_strength, server_step_size=server_step_size
    )


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promise of a candidate to a deployment's people, and its price to the model.

    Attributes:
        epsilon: ε of the whole run at the deployment's δ, against readers of releases.
        coordinator_epsilon: The same against the coordinator, no attempt abandoned; None where it
            sees updates before any noise.
        slot_count: M, places of a round.
        noise_std: Standard deviation of the noise on the aggregate, in parameter units, before the
            server's step. With ``ftrl``: of each round's own draw. With noise on sums: the least,
            where every weight is 1.
        fill: Expected share of filled slots; an empty one pulls the mean to zero, but not where
            sums are noised.
    """

    epsilon: float
    coordinator_epsilon: float | None
    slot_count: int
    noise_std: float
    fill: float


def promise_of(candidate: Candidate, deployment: Deployment, schema: Schema) -> Promise:
    """Return what a candidate promises.

    Raises:
        ValueError: If the cohort is larger than the population, or a value is out of its range.
        UnprovedSensitivityError: If the rule has no proved bound for these settings.
    """
    if not 1 <= candidate.cohort <= deployment.population_size:
        raise ValueError(
            f"cohort must lie between 1 and the population of {deployment.population_size}, "
            f"got {candidate.cohort}; raise --population or lower --simulated-cohort"
        )
    slots = _slot_count(candidate, deployment)
    tally, times = Tally(), deployment.rounds
    match candidate.mode:
        case "central":
            sampling = SecretCoinFlips(
                sampling_rate=candidate.cohort / deployment.population_size,
                population_size=deployment.population_size,
                slot_count=slots,
            )
            event = GaussianRelease(
                noise_multiplier=candidate.noise_multiplier,
                adjacency=ADJACENCY,
                sampling=sampling,
            )
            tally = tally.plus(event, times)
        case "ftrl":
            tally = tally.plus(_buffered(candidate, deployment), times)
        case "local":
            tally = tally.plus(LocalRelease(noise_multiplier=candidate.noise_multiplier), times)
        case "masked":
            released = MaskedRelease(
                noise_multiplier=candidate.noise_multiplier,
                adjacency=ADJACENCY,
                honest_contributors=honest_contributors(candidate, deployment),
            )
            tally = tally.plus(released, times)
    epsilon = epsilon_of_tally(tally, deployment.delta)
    return Promise(
        epsilon=epsilon,
        # As many attempts as rounds: the coordinator then sees what readers see.
        coordinator_epsilon=epsilon if candidate.mode in ("local", "masked") else None,
        slot_count=slots,
        noise_std=_noise_std(candidate, deployment, schema, slots),
        fill=1.0 if candidate.noises_sums else candidate.cohort / slots,
    )


def participation(candidate: Candidate, deployment: Deployment) -> tuple[int, int]:
    """Return the least separation and the most rounds of one person where all take turns."""
    separation = max(1, deployment.population_size // candidate.cohort)
    return separation, math.ceil(deployment.rounds / separation)


def masked_quorum(candidate: Candidate) -> int:
    """Return with how few of a masked cohort its round may close."""
    return share_of_devices(_LEAST_OF_COHORT, candidate.cohort)


def honest_contributors(candidate: Candidate, deployment: Deployment) -> int:
    """Return how many of the fewest contributors of a masked round are believed to add noise.

    Raises:
        ValueError: If the deployment does not say which share of them.
    """
    if deployment.honest_share is None:
        raise ValueError(
            "honest_share must be given for mode masked: it decides privacy and has no default"
        )
    return share_of_devices(deployment.honest_share, masked_quorum(candidate))


def buffers(candidate: Candidate, deployment: Deployment) -> Buffers:
    """Return the buffers of least noise for one candidate of mode ``ftrl``.

    Noise along a tree is not tried: it left more in the model at every setting that was measured.
    """
    return design_buffers(deployment.rounds, *participation(candidate, deployment))


def _slot_count(candidate: Candidate, deployment: Deployment) -> int:
    if candidate.mode != "central" or candidate.cohort == deployment.population_size:
        return candidate.cohort
    return slot_count_for(
        deployment.population_size,
        candidate.cohort / deployment.population_size,
        rounds=deployment.rounds,
        delta=deployment.delta,
    )


def _noise_std(candidate: Candidate, deployment: Deployment, schema: Schema, slots: int) -> float:
    if candidate.mode == "local":
        return candidate.noise_multiplier * 2 * candidate.clipping_norm / math.sqrt(slots)
    of_one = candidate.noise_multiplier * sensitivity_of(candidate, schema, slots)
    if candidate.mode == "masked":
        # Every contributor's share is in the sum, and the honest ones alone make z.
        of_one *= math.sqrt(slots / honest_contributors(candidate, deployment))
    return of_one / candidate.cohort if candidate.noises_sums else of_one


def sensitivity_of(candidate: Candidate, schema: Schema, slots: int) -> float:
    """Return how far one person moves what a candidate noises, among so many places."""
    sensitivity = summed_sensitivity if candidate.noises_sums else aggregate_sensitivity
    return sensitivity(
        candidate.aggregation,
        schema,
        ClippingSettings(clipping_norm=candidate.clipping_norm),
        slot_count=slots,
        adjacency=ADJACENCY,
    )


def _buffered(candidate: Candidate, deployment: Deployment) -> BufferedRelease:
    separation, most = participation(candidate, deployment)
    decays, scales = buffers(candidate, deployment)
    return BufferedRelease(
        noise_multiplier=candidate.noise_multiplier,
        adjacency=ADJACENCY,
        min_separation=separation,
        max_participation=most,
        buffer_decays=decays,
        buffer_scales=scales,
    )
