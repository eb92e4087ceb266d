"""Say what one candidate setting promises where it is to be deployed, and how to try it here.

Noise is added to a mean, so a cohort of thousands hardly feels what destroys a cohort of ten. A
trial therefore adds the deployment's noise, ``Promise.noise_std``, to the mean of the few clients
at hand. Where the cohorts differ, the result is an extrapolation: it assumes that more clients of
the same kind would not change the mean.
"""

import math
from typing import Any, Literal

import msgspec

from models.vector.schema import Schema
from privacy.accounting.accountant import epsilon_of_tally
from privacy.accounting.checked_values import check_delta
from privacy.accounting.events import (
    Adjacency,
    GaussianRelease,
    LocalRelease,
    SecretCoinFlips,
    TreeRelease,
)
from privacy.accounting.slot_overflow import slot_count_for
from privacy.accounting.tally import Tally
from privacy.clipping.settings import ClippingSettings
from server.aggregation.sensitivity import aggregate_sensitivity, summed_sensitivity
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings

Mode = Literal["central", "local", "ftrl"]
Rule = Literal["mean", "attentive"]
Kind = tuple[Mode, Rule]
MODES: tuple[Mode, ...] = ("central", "local", "ftrl")
ADJACENCY: Adjacency = "zero-out"
NoiseOn = Literal["mean", "sums"]
# A trial promises nothing to anybody: its people are test data.
_PROMISES_NOTHING = {"adjacency": ADJACENCY, "delta": 0.1, "epsilon_budget": 1e12}


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """The deployment for which a promise is made.

    Attributes:
        population_size: N, enrolled people.
        rounds: T, rounds of the whole run.
        delta: δ of the whole run, at most 1 / N.
    """

    population_size: int
    rounds: int
    delta: float

    def __post_init__(self) -> None:
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
        """Whether the noise goes on sums: in modes whose noise is the coordinator's."""
        return self.noise_on == "sums" and self.mode != "local"

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
        epsilon: ε of the whole run at the deployment's δ.
        slot_count: M, places of a round.
        noise_std: Standard deviation of the noise on the aggregate, in parameter units, before the
            server's step. With ``ftrl``: of one node of the tree. With noise on sums: the least,
            where every weight is 1.
        fill: Expected share of filled slots; an empty one pulls the mean to zero, but not where
            sums are noised.
    """

    epsilon: float
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
            tally = tally.plus(_leaf(candidate, deployment), times)
        case "local":
            tally = tally.plus(LocalRelease(noise_multiplier=candidate.noise_multiplier), times)
    return Promise(
        epsilon=epsilon_of_tally(tally, deployment.delta),
        slot_count=slots,
        noise_std=_noise_std(candidate, schema, slots),
        fill=1.0 if candidate.noises_sums else candidate.cohort / slots,
    )


def participation(candidate: Candidate, deployment: Deployment) -> tuple[int, int]:
    """Return the least separation and the most rounds of one person where all take turns."""
    separation = max(1, deployment.population_size // candidate.cohort)
    return separation, math.ceil(deployment.rounds / separation)


# TOML tables hold values of any TOML type.
def trial_tables(
    tables: dict[str, Any],
    candidate: Candidate,
    promise: Promise,
    *,
    cohort_at_hand: int,
    schema: Schema,
) -> dict[str, Any]:
    """Return the configuration that tries a candidate with the clients at hand.

    Draws need not be secret here and are seeded, so that seeds can be compared. ``central`` is one
    draw on the server and ``local`` one a client, of the deployment's size; ``ftrl`` is tried as
    itself, since its noise is correlated over the rounds. Noise on sums is tried as itself too, for
    its share of a layer follows from the weights: with as much less of it as there are fewer
    clients, both sums have the relative noise that they would have in the deployment.
    """
    step = candidate.server_step_size * promise.fill
    aggregation = msgspec.to_builtins(
        msgspec.structs.replace(candidate.aggregation, server_step_size=step)
    )
    privacy: dict[str, Any] = {"clipping_norm": candidate.clipping_norm}
    match candidate.mode:
        case "central" if candidate.noises_sums:
            privacy |= _summed_tables(candidate, cohort_at_hand)
            tables = _with_places(tables, cohort_at_hand)
        case "central":
            # That mode adds its draw after the step: scaled here as the step would.
            magnitude = candidate.server_step_size * promise.noise_std
            privacy |= {"mode": "paper-server", "randomisation_magnitude": magnitude}
        case "local":
            # One client's draw, so that the mean over the clients at hand has the right size.
            magnitude = promise.noise_std / promise.fill * math.sqrt(cohort_at_hand)
            privacy |= {"mode": "paper", "randomisation_magnitude": magnitude}
        case "ftrl":
            privacy |= _tree_tables(candidate, promise, cohort_at_hand, schema)
            tables = _with_places(tables, cohort_at_hand)
    return {**tables, "privacy": privacy, "aggregation": aggregation}


def _slot_count(candidate: Candidate, deployment: Deployment) -> int:
    if candidate.mode != "central" or candidate.cohort == deployment.population_size:
        return candidate.cohort
    return slot_count_for(
        deployment.population_size,
        candidate.cohort / deployment.population_size,
        rounds=deployment.rounds,
        delta=deployment.delta,
    )


def _noise_std(candidate: Candidate, schema: Schema, slots: int) -> float:
    if candidate.mode == "local":
        return candidate.noise_multiplier * 2 * candidate.clipping_norm / math.sqrt(slots)
    of_one = candidate.noise_multiplier * _sensitivity(candidate, schema, slots)
    return of_one / candidate.cohort if candidate.noises_sums else of_one


def _sensitivity(candidate: Candidate, schema: Schema, slots: int) -> float:
    sensitivity = summed_sensitivity if candidate.noises_sums else aggregate_sensitivity
    return sensitivity(
        candidate.aggregation,
        schema,
        ClippingSettings(clipping_norm=candidate.clipping_norm),
        slot_count=slots,
        adjacency=ADJACENCY,
    )


def _leaf(candidate: Candidate, deployment: Deployment) -> TreeRelease:
    separation, most = participation(candidate, deployment)
    return TreeRelease(
        noise_multiplier=candidate.noise_multiplier,
        adjacency=ADJACENCY,
        min_separation=separation,
        max_participation=most,
        tree_number=0,
    )


def _tree_tables(
    candidate: Candidate, promise: Promise, cohort_at_hand: int, schema: Schema
) -> dict[str, Any]:
    """Return the tree's settings with the multiplier that gives the deployment's noise here."""
    if candidate.noises_sums:
        of_mode = _summed_tables(candidate, cohort_at_hand)
    else:
        here = _sensitivity(candidate, schema, cohort_at_hand)
        of_mode = {"noise_multiplier": promise.noise_std / here, **_PROMISES_NOTHING}
    return {**of_mode, "mode": "ftrl", "min_separation": 1, "max_participation": 1_000_000}


def _summed_tables(candidate: Candidate, cohort_at_hand: int) -> dict[str, Any]:
    """Return settings under which few clients' sums have the relative noise of the deployment's."""
    multiplier = candidate.noise_multiplier * cohort_at_hand / candidate.cohort
    on_sums = {"mode": "central", "noise_multiplier": multiplier, "noise_on": "sums"}
    return {**on_sums, **_PROMISES_NOTHING}


def _with_places(tables: dict[str, Any], cohort_at_hand: int) -> dict[str, Any]:
    """Return the tables with as many places as clients at hand: a guarantee fixes their number."""
    rounds = {**tables["rounds"], "cohort_size": cohort_at_hand}
    rounds.pop("participation_rate", None)
    if rounds.pop("population_size", None) is not None:
        rounds["selection"] = "drawn"  # Places of secret coins are more than those at hand.
    return {**tables, "rounds": rounds}
