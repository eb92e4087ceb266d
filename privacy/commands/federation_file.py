"""Read what a federation's file says about privacy, and add up what its whole run would release.

Only the tables [privacy], [rounds], [aggregation], [training], [evaluation] and [personalisation]
are looked at, and of all but the first only the keys that decide privacy. Whether the file as a
whole can be used is the coordinator's question: it reads the same text strictly, and a test holds
both to the same events.
"""

import tomllib
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from privacy.accounting.checked_values import check_count, check_delta
from privacy.accounting.events import (
    Adjacency,
    EvaluationRelease,
    GaussianRelease,
    LocalRelease,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.accounting.slot_overflow import slot_count_for
from privacy.accounting.tally import Tally
from privacy.clipping.sensitivity import attentive_sensitivity, mean_sensitivity
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.evaluation_settings import EvaluationNoise, evaluation_release
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings


class FederationTablesError(ValueError):
    """Raised when a federation's file cannot be read; names the file and the key."""


class RoundsTable(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what [rounds] says about who takes part; other keys are not looked at.

    Attributes:
        cap: Rounds of the whole run.
        selection: ``sampled`` is the coordinator's secret coin flips; the others amplify nothing.
        cohort_size: Places of a round, M.
        participation_rate: q with ``sampled``.
        population_size: Most people that will be enrolled; with ``sampled``.
    """

    cap: int
    selection: Literal["drawn", "first-come", "sampled"] = "drawn"
    cohort_size: int | None = None
    participation_rate: float | None = None
    population_size: int | None = None

    def __post_init__(self) -> None:
        check_count(self.cap, "rounds.cap")


class AggregationTable(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what [aggregation] says about the weight of one person.

    Attributes:
        rule: Name of the rule; a bound is known for ``mean`` and ``attentive``.
        attention_strength: κ of ``attentive``.
        server_step_size: What the aggregate is multiplied by.
    """

    rule: str
    attention_strength: float = 0.5
    server_step_size: float = 1.0


class TrainingTable(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what [training] says about the second layer, of each sentence.

    Attributes:
        local_epochs: How often an example is drawn in a round, on average.
        example_privacy: The second layer; None is none.
    """

    local_epochs: int = 1
    example_privacy: ExamplePrivacySettings | None = None

    def __post_init__(self) -> None:
        check_count(self.local_epochs, "training.local_epochs")


class EvaluationTable(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what [evaluation] says about the counts of devices.

    Attributes:
        kind: ``devices`` counts; the others tell of nobody.
        every_rounds: Rounds from one evaluation to the next.
        cohort_size: Devices asked in one.
        noise: How their counts are limited and noised; None only without a guarantee.
    """

    kind: Literal["none", "public", "devices"] = "none"
    every_rounds: int = 1
    cohort_size: int | None = None
    noise: EvaluationNoise | None = None

    def __post_init__(self) -> None:
        check_count(self.every_rounds, "evaluation.every_rounds")
        if self.kind == "devices":
            check_count(self.cohort_size, "evaluation.cohort_size")


class PersonalisationTable(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what [personalisation] says about what a round lets out beside the aggregate.

    Attributes:
        method: Name of the method; ``fedtp`` teaches its hypernetwork by a second noised vector.
    """

    method: str = "global"

    @property
    def vector_count(self) -> int:
        """Return how many noised vectors a round lets out (`server.personalisation`)."""
        return 2 if self.method == "fedtp" else 1


class FederationTables(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the tables that decide privacy."""

    privacy: PrivacySettings
    rounds: RoundsTable
    aggregation: AggregationTable
    training: TrainingTable = TrainingTable()
    evaluation: EvaluationTable = EvaluationTable()
    personalisation: PersonalisationTable = PersonalisationTable()

    @property
    def slot_count(self) -> int | None:
        """Return the fixed number of places of a round, M; None where the file fixes none."""
        rounds, privacy = self.rounds, self.privacy
        if rounds.selection != "sampled" or rounds.cohort_size is not None:
            return rounds.cohort_size
        if rounds.population_size is None or not isinstance(privacy, CentralNoise):
            return None
        return slot_count_for(
            rounds.population_size,
            rounds.participation_rate or 0.0,
            rounds=rounds.cap,
            delta=privacy.delta,
        )

    @property
    def evaluation_event(self) -> EvaluationRelease | None:
        """Return what one evaluation by devices tells the accountant; None where none is.

        Raises:
            ValueError: If the mode promises something that counts without noise would break.
        """
        evaluation, privacy = self.evaluation, self.privacy
        if evaluation.kind != "devices" or not isinstance(privacy, _CALIBRATED):
            return None
        if isinstance(privacy, LocalNoise) or evaluation.noise is None:
            raise ValueError(
                'evaluation.kind = "devices" needs evaluation.noise, and mode "central" or "ftrl", '
                "or nothing bounds what counts tell"
            )
        return evaluation_release(
            evaluation.noise,
            privacy.adjacency,
            cohort_size=evaluation.cohort_size or 0,
            coins_among=self.rounds.population_size if self.rounds.selection == "sampled" else None,
        )

    def evaluation_count(self, rounds: int | None = None) -> int:
        """Return the evaluations by devices up to the cap, or in the first ``rounds``."""
        if self.evaluation_event is None:
            return 0
        return (self.rounds.cap if rounds is None else rounds) // self.evaluation.every_rounds

    @property
    def delta(self) -> float | None:
        """Return δ; None where the mode promises nothing."""
        return self.privacy.delta if isinstance(self.privacy, _CALIBRATED) else None

    @property
    def epsilon_budget(self) -> float | None:
        """Return the largest ε of the run; None where the mode promises nothing."""
        return self.privacy.epsilon_budget if isinstance(self.privacy, _CALIBRATED) else None


_CALIBRATED = (CentralNoise, LocalNoise, TreeNoise)


def read_tables(path: Path) -> FederationTables:
    """Read a federation's TOML file.

    Raises:
        FederationTablesError: If it is no TOML, or a key that decides privacy is missing, of the
            wrong type, or out of its range.
        OSError: If it cannot be read.
    """
    try:
        tables = msgspec.convert(tomllib.loads(path.read_text("utf-8")), FederationTables)
        if isinstance(tables.privacy, _CALIBRATED) and tables.rounds.population_size is not None:
            check_delta(tables.privacy.delta, population_size=tables.rounds.population_size)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FederationTablesError(f"{path} is no TOML: {error}") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise FederationTablesError(f"{path}: {error}") from None
    return tables


def tally_of_run(tables: FederationTables, rounds: int | None = None) -> Tally:
    """Return what a run releases up to its cap, or in its first ``rounds``, evaluations included.

    A device counts as if it took part in every round that the plan allows.

    Raises:
        ValueError: If a draw does not say enough, or cannot be accounted for.
    """
    total = tally_of_models(tables, tables.rounds.cap if rounds is None else rounds)
    event, count = tables.evaluation_event, tables.evaluation_count(rounds)
    return total if event is None or not count else total.plus(event, count)


def tally_of_models(tables: FederationTables, count: int) -> Tally:
    """Return what the models of the first ``count`` rounds release, without evaluations.

    Raises:
        ValueError: As `tally_of_run`.
    """
    match tables.privacy:
        case NoNoise():
            return Tally().plus(UnprotectedRelease(mode="none"), count)
        case PaperNoise():
            return Tally().plus(UnprotectedRelease(mode="paper"), count)
        case PaperServerNoise():
            return Tally().plus(UnprotectedRelease(mode="paper-server"), count)
        case LocalNoise(noise_multiplier=z):
            return Tally().plus(LocalRelease(noise_multiplier=z), count)
        case CentralNoise(noise_multiplier=z, adjacency=adjacency):
            event = GaussianRelease(
                noise_multiplier=z, adjacency=adjacency, sampling=_coins(tables)
            )
            return Tally().plus(event, count)
        case TreeNoise() as tree:
            return _tally_of_trees(tree, count)
        case _:
            assert_never(tables.privacy)


def aggregate_sensitivity(tables: FederationTables, adjacency: Adjacency) -> float:
    """Return how far one person moves the aggregate, before the server's step, in parameter units.

    A model has several layers: the bound for one clip over several is used for a flat clip.

    Raises:
        ValueError: If the rule, the clip or the number of places gives no bound.
    """
    norm, slots = tables.privacy.clipping_norm, tables.slot_count
    if norm is None or slots is None:
        raise ValueError("no bound is known without clipping_norm and a fixed cohort_size")
    if tables.aggregation.rule == "mean":
        return mean_sensitivity(slot_count=slots, clipping_norms=[norm], adjacency=adjacency)
    if tables.aggregation.rule != "attentive":
        raise ValueError(f"no bound is known for rule {tables.aggregation.rule}")
    return attentive_sensitivity(
        slot_count=slots,
        attention_strength=tables.aggregation.attention_strength,
        clipping_norms=[norm],
        # The shares of a clip by layers square up to the same norm as one layer's clip.
        layer_count=2 if tables.privacy.clipping == "flat" else 1,
        adjacency=adjacency,
    )


def _coins(tables: FederationTables) -> SecretCoinFlips | None:
    rounds = tables.rounds
    if rounds.selection != "sampled":
        return None
    slots = tables.slot_count
    if rounds.participation_rate is None or rounds.population_size is None or slots is None:
        raise ValueError(
            'rounds.selection = "sampled" needs participation_rate and population_size: '
            "amplification rests on both"
        )
    return SecretCoinFlips(
        sampling_rate=rounds.participation_rate,
        population_size=rounds.population_size,
        slot_count=slots,
    )


def _tally_of_trees(tree: TreeNoise, count: int) -> Tally:
    total = Tally()
    length = tree.restart_rounds or count
    for first in range(1, count + 1, length):
        event = TreeRelease(
            noise_multiplier=tree.noise_multiplier,
            adjacency=tree.adjacency,
            min_separation=tree.min_separation,
            max_participation=tree.max_participation,
            tree_number=tree.place_in_tree(first)[0],
        )
        total = total.plus(event, min(length, count - first + 1))
    return total
