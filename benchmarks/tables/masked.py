"""Say what stands in the tables of noised sums: noise on the mean, on the sums, or by devices.

Runs of a table have the same data, rounds, cohort, clip and step. Noise is added to a mean, so
the few clients at hand get that of the larger cohort that would be deployed, as the tuner adds it:
a sum of m updates gets m/M of the noise of one of M, and a mean is noised by z times the
sensitivity of one over M places. That more clients of the same kind would not change the mean is
an assumption.
"""

from dataclasses import dataclass

from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.robustness import BETWEEN
from models.vector.schema import SENT, Schema
from privacy.clipping.settings import ClippingSettings
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AttentiveSettings
from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.tuning.candidate import ADJACENCY

NO_NOISE, MEAN, SUMS, MASKED = (
    "no noise",
    "noise on the mean",
    "noise on the sums",
    "masked, noise of the devices",
)
COMPARED = ((SUMS, MEAN), (MASKED, SUMS))
MULTIPLIERS = (0.5, 1.0, 2.0)
FIGURES = ("test_perplexity", "test_top3_recall")
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Plan:
    """One table: a preset made small, and the deployment whose noise it gets.

    Attributes:
        title: One line.
        preset: Settings that the runs start from.
        settings: Changes to it for every run.
        strengths: κ of each block of lines.
        clipping_norm: C, in parameter units.
        at_hand: Clients of a round here; m.
        cohort: Clients of a deployed round; M. Equal to ``at_hand`` where the noise is real.
        population_size: Enrolled people of the deployment.
        rounds: Rounds of a run, here and deployed.
        minutes: Rough duration on two quiet cores.
        seeds: Seeds of every row.
        multipliers: z of the lines of a block.
    """

    title: str
    preset: str
    settings: tuple[str, ...]
    strengths: tuple[float, ...]
    clipping_norm: float
    at_hand: int
    cohort: int
    population_size: int
    rounds: int
    minutes: float
    seeds: tuple[int, ...] = SEEDS
    multipliers: tuple[float, ...] = MULTIPLIERS

    @property
    def schema(self) -> Schema:
        """Tensors that are sent."""
        overrides = [parse_override(text) for text in self.settings]
        tables = with_settings(read_tables(self.preset), overrides)
        return config_from(tables, self.preset).schema.with_roles(*SENT)

    @property
    def table(self) -> TableDefinition:
        """Its runs: a line for each κ and z, a column for each way of noise."""
        rows = [row for strength in self.strengths for row in self._rows(strength)]
        every = max(1, self.rounds // 4)
        return TableDefinition(
            title=self.title,
            preset=self.preset,
            rows=tuple(rows),
            minutes=self.minutes,
            figures=FIGURES,
            curve=None,
            references=(),
            settings=(
                *self.settings,
                f"rounds={{cap={self.rounds}, cohort_size={self.at_hand}, quorum={self.at_hand}, "
                "deadline_s=600.0}",
                f"evaluation.every_rounds={every}",
            ),
            # A model that noise destroys may end in no number.
            may_be_lost=True,
        )

    def _rows(self, strength: float) -> list[Row]:
        clip = f"clipping_norm={self.clipping_norm}"
        rule = f'aggregation={{rule="attentive", attention_strength={strength}}}'
        clipped = (rule, f'privacy={{mode="none", {clip}}}')
        rows = [Row(row_name(strength, 0, NO_NOISE), clipped, self.seeds)]
        on_mean, on_sums = self._noise_here(strength)
        for multiplier in self.multipliers:
            for column, mode, here in (
                (MEAN, 'mode="central"', on_mean),
                (SUMS, 'mode="central", noise_on="sums"', on_sums),
                # Every device is believed, so all of the noise counts; the quorum is everybody.
                (
                    MASKED,
                    'mode="masked", honest_share=1.0, coordinator_epsilon_budget=1e12',
                    on_sums,
                ),
            ):
                # These runs promise nothing to anybody: their people are test data.
                noise = (
                    f"privacy={{{mode}, {clip}, noise_multiplier={multiplier * here!r}, "
                    f'delta=0.1, epsilon_budget=1e12, adjacency="{ADJACENCY}"}}'
                )
                name = row_name(strength, multiplier, column)
                rows.append(Row(name, (rule, noise), self.seeds))
        return rows

    def _noise_here(self, strength: float) -> tuple[float, float]:
        """Return what z is multiplied by here, where the mean is noised and where sums are."""
        rule = AttentiveSettings(attention_strength=strength)
        clipping = ClippingSettings(clipping_norm=self.clipping_norm)
        deployed, here = (
            aggregate_sensitivity(
                rule, self.schema, clipping, slot_count=places, adjacency=ADJACENCY
            )
            for places in (self.cohort, self.at_hand)
        )
        return deployed / here, self.at_hand / self.cohort


def row_name(strength: float, multiplier: float, column: str) -> str:
    """Return a row's name: its line of the table, and its column."""
    return f"κ = {strength:g}, z = {multiplier:g}{BETWEEN}{column}"


_SMALL = (
    "model.hidden_size=64",
    "model.vocabulary_size=2000",
    'training.precision="float32"',
    "training.batch_size=20",
    "training.bptt_steps=20",
)
_SMS = (*_SMALL, "vocabulary.size=2000", "data.keystrokes=false")
_PTB = (*_SMALL, 'vocabulary={name="english-10k", size=2000}')
# The other tensors stay as they were drawn: under noise for a hundred people, few can be trained.
_BIASES = 'training.frozen=["embedding.weight", "gru.weight_ih_l0", "gru.weight_hh_l0"]'


def _sms(title: str, strengths: tuple[float, ...], minutes: float) -> Plan:
    return Plan(
        title=f"Text messages, 16 phone users a round, noise of a cohort of 1,000: {title}",
        preset="keyboard-sms-scratch",
        settings=_SMS,
        strengths=strengths,
        clipping_norm=10.0,
        at_hand=16,
        cohort=1_000,
        population_size=1_000_000,
        rounds=20,
        minutes=minutes,
    )


def _ptb(title: str, strengths: tuple[float, ...], minutes: float) -> Plan:
    return Plan(
        title=f"Penn Treebank, 10 of 200 clients a round, noise of a cohort of 1,000: {title}",
        preset="fedatt-ptb",
        settings=(*_PTB, "data.client_count=200"),
        strengths=strengths,
        clipping_norm=10.0,
        at_hand=10,
        cohort=1_000,
        population_size=1_000_000,
        rounds=12,
        minutes=minutes,
    )


PLANS = {
    "masked-sms": _sms("attention of 0.5", (0.5,), 10),
    "masked-ptb": _ptb("attention of 0.5", (0.5,), 10),
    "masked-sms-strengths": _sms("no attention, and attention of 1", (0.0, 1.0), 20),
    "masked-ptb-strengths": _ptb("no attention", (0.0,), 10),
    "masked-cohort": Plan(
        title="Penn Treebank, 100 of 2,000 clients a round and their own noise, biases alone",
        preset="fedatt-ptb",
        settings=(*_PTB, "data.client_count=2000", _BIASES),
        strengths=(0.5,),
        clipping_norm=5.0,
        at_hand=100,
        cohort=100,
        population_size=2_000,
        rounds=12,
        minutes=10,
    ),
}
QUICK_PLANS = {
    "quick": Plan(
        title="The machinery of noised sums on the manual's topics",
        preset="keyboard-tiny",
        settings=("vocabulary.size=200", "model.vocabulary_size=200", "model.hidden_size=8"),
        strengths=(0.5,),
        clipping_norm=10.0,
        at_hand=3,
        cohort=1_000,
        population_size=1_000_000,
        rounds=2,
        minutes=1,
        seeds=(1,),
        multipliers=(1.0,),
    )
}
TABLES = {name: plan.table for name, plan in PLANS.items()}
QUICK = {name: plan.table for name, plan in QUICK_PLANS.items()}
