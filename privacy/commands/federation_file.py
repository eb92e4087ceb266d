"""The part of a federation's file that decides privacy, and what its whole run would release.

The tables are decoded by the structs of which the coordinator's settings are made, so names,
defaults and rules are stated once. Other tables and keys are not looked at: whether the file as a
whole can be used is the coordinator's question.
"""

from pathlib import Path

import msgspec

from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.checked_values import check_count, check_delta
from privacy.accounting.events import Adjacency, EvaluationRelease
from privacy.accounting.onlookers import Onlooker
from privacy.accounting.tally import Tally
from privacy.clipping.noised_sums import sums_sensitivity
from privacy.clipping.rule_settings import (
    ATTENTION_STRENGTH,
    ServerStep,
    check_attention_strength,
)
from privacy.clipping.sensitivity import attentive_sensitivity, mean_sensitivity
from privacy.example_level.settings import LOCAL_EPOCHS, ExamplePrivacySettings
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, read_toml
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.evaluation_settings import MeasuredModels
from privacy.noise.participation_settings import Participation
from privacy.noise.plan_events import (
    budget_of,
    budgets_of,
    evaluation_event,
    events_of,
    fixed_slot_count,
)
from privacy.noise.settings import PrivacySettings, noises_sums


class FederationTablesError(ValueError):
    """Raised when a federation's file cannot be read; names the file and the key."""


class AggregationTable(ServerStep, frozen=True, kw_only=True):
    """The weight of one person; a bound is known for the rules ``mean`` and ``attentive``."""

    rule: str
    attention_strength: float = ATTENTION_STRENGTH

    def __post_init__(self) -> None:
        super().__post_init__()
        check_attention_strength(self.attention_strength)


class TrainingTable(msgspec.Struct, frozen=True, kw_only=True):
    """The second layer, that of each sentence."""

    local_epochs: int = LOCAL_EPOCHS
    example_privacy: ExamplePrivacySettings | None = None

    def __post_init__(self) -> None:
        check_count(self.local_epochs, "local_epochs")


class PersonalisationTable(msgspec.Struct, frozen=True, kw_only=True):
    """The method, by which a round may let out more than the aggregate."""

    method: str | None = None

    @property
    def vector_count(self) -> int:
        """Return how many noised vectors a round lets out (`server.personalisation`)."""
        # Its hypernetwork is taught by a second one.
        return 2 if self.method == "fedtp" else 1


class FederationTables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that decide privacy."""

    privacy: PrivacySettings
    rounds: Participation
    aggregation: AggregationTable
    training: TrainingTable = TrainingTable()
    evaluation: MeasuredModels = MeasuredModels()
    personalisation: PersonalisationTable = PersonalisationTable()

    def __post_init__(self) -> None:
        budget, people = self.budget, self.rounds.population_size
        if budget is not None and people is not None:
            check_delta(budget.delta, population_size=people)

    @property
    def budget(self) -> PrivacyBudget | None:
        """Return what the run may spend against readers; None where the mode promises nothing."""
        return budget_of(self.privacy)

    @property
    def budgets(self) -> tuple[PrivacyBudget, ...]:
        """Return everything that the run has to keep, one an onlooker; readers' first."""
        return budgets_of(self.privacy)

    @property
    def slot_count(self) -> int | None:
        """Return the fixed number of places of a round, M; None where the file fixes none."""
        if self.rounds.selection == "sampled" and isinstance(self.privacy, CentralNoise):
            return fixed_slot_count(self.rounds, self.privacy)
        return self.rounds.cohort_size

    @property
    def expected_clients(self) -> int | None:
        """Return how many clients a round expects; None where the file does not say."""
        rate, people = self.rounds.participation_rate, self.rounds.population_size
        if self.rounds.selection == "sampled" and rate is not None and people is not None:
            return max(1, round(rate * people))
        return self.rounds.cohort_size

    @property
    def evaluation_event(self) -> EvaluationRelease | None:
        """Return one evaluation by devices, or None; ValueError if no noise bounds its counts."""
        if self.evaluation.kind != "devices" or self.budget is None:
            return None
        event = evaluation_event(self.evaluation, self.rounds, self.privacy)
        if event is None:
            raise ValueError(
                'evaluation.kind = "devices" needs evaluation.noise, and mode "central" or "ftrl", '
                "or nothing bounds what counts tell"
            )
        return event

    def evaluation_count(self, rounds: int | None = None) -> int:
        """Return the evaluations by devices up to the cap, or in the first ``rounds``."""
        if self.evaluation_event is None:
            return 0
        return (self.rounds.cap if rounds is None else rounds) // self.evaluation.every_rounds


def read_tables(path: Path) -> FederationTables:
    """Read a federation's TOML file; FederationTablesError names the file and the key."""
    try:
        return decoded(read_toml(path), FederationTables)
    except TomlError as error:
        raise FederationTablesError(f"{path} is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise FederationTablesError(f"{path}: {error}") from None


def tally_of_run(
    tables: FederationTables, rounds: int | None = None, onlooker: Onlooker = "readers"
) -> Tally:
    """Return what a run shows an onlooker up to its cap, or in its first ``rounds``.

    Evaluations are included. A device counts as if it took part in every round that the plan
    allows, and every round as if its first attempt were released. Raises ValueError if a draw does
    not say enough, or cannot be accounted for.
    """
    total = tally_of_models(tables, tables.rounds.cap if rounds is None else rounds, onlooker)
    event, count = tables.evaluation_event, tables.evaluation_count(rounds)
    return total if event is None or not count else total.plus(event, count)


def tally_of_models(tables: FederationTables, count: int, onlooker: Onlooker = "readers") -> Tally:
    """Return what the models of the first rounds, at least 1, show, without evaluations."""
    privacy, total = tables.privacy, Tally(onlooker=onlooker)
    # Rounds are alike but for the tree that they are in.
    length = privacy.restart_rounds if isinstance(privacy, TreeNoise) else None
    for first in range(1, count + 1, length or count):
        times = min(length or count, count - first + 1)
        for event in events_of(first, tables.rounds, privacy):
            total = total.plus(event, times)
    return total


def aggregate_sensitivity(
    tables: FederationTables, adjacency: Adjacency, *, rule: str | None = None
) -> float:
    """Return how far one person moves what is noised, before the server's step, in parameter units.

    That is the aggregate, or the sums that it is divided from. A model has several layers: the
    bound for one clip over several is used for a flat clip. The rule is the file's unless another
    is named. Raises ValueError if the rule, the clip or the number of places gives no bound.
    """
    norm, slots = tables.privacy.clipping_norm, tables.slot_count
    rule = rule or tables.aggregation.rule
    if norm is not None and rule in ("mean", "attentive") and noises_sums(tables.privacy):
        # The same for every number of layers and places.
        return sums_sensitivity([norm], layer_count=1, adjacency=adjacency)
    if norm is None or slots is None:
        raise ValueError("no bound is known without clipping_norm and a fixed cohort_size")
    if rule == "mean":
        return mean_sensitivity(slot_count=slots, clipping_norms=[norm], adjacency=adjacency)
    if rule != "attentive":
        raise ValueError(f"no bound is known for rule {rule}")
    return attentive_sensitivity(
        slot_count=slots,
        attention_strength=tables.aggregation.attention_strength,
        clipping_norms=[norm],
        # The shares of a clip by layers square up to the same norm as one layer's clip.
        layer_count=2 if tables.privacy.clipping == "flat" else 1,
        adjacency=adjacency,
    )
