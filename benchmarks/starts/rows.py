"""Say what stands in the tables of a keyboard that starts from the public English model."""

from benchmarks.tables.attention import FEDAVG, falling
from benchmarks.tables.definition import RANKED, STANDS_STILL, Row, TableDefinition
from models.settings.personalisation import AdaptedSettings

SHARED = "from the start"
"""Row whose model is adapted, person by person."""

SCRATCH = "from scratch, 100 rounds"
"""The best federated recipe before there was a start, and as many tokens."""

CENTRAL = "central, from the start"
ADAPTED = AdaptedSettings()
"""How every person's device adapts the shared model."""

PEOPLE = ("top1_recall", "top3_recall", "keystroke_savings")
"""Figures of people, one by one; a table of other figures has none."""

SEEDS = (1, 2, 3)

_SCRATCH_PRESET = "keyboard-sms-scratch"
_IN_ONE_PLACE = (
    "data.partition=groups",
    "data.client_count=1",
    "aggregation.server_step_size=1.0",
    "rounds={cap=8, cohort_size=1, quorum=1, deadline_s=600.0}",
    "training.learning_rate=2.0",
    "training.decay={last_round=8, final_share=0.05}",
    "evaluation.every_rounds=1",
)

_NO_ROUND = (
    STANDS_STILL,
    "rounds={cap=1, cohort_size=1, quorum=1, deadline_s=600.0}",
    "evaluation.every_rounds=1",
)

TABLES = {
    "keyboard-start": TableDefinition(
        title="A keyboard from the public start: NUS SMS, everybody's newest fifth",
        preset="keyboard-sms",
        rows=(
            Row(SCRATCH, (*FEDAVG, *falling(100)), SEEDS, preset=_SCRATCH_PRESET),
            Row(SHARED, (), SEEDS),
            Row(CENTRAL, _IN_ONE_PLACE, SEEDS),
        ),
        figures=PEOPLE,
        minutes=180.0,
    ),
    # Nobody's own: the start has read what these people would hold out, and the test text is by
    # others.
    "keyboard-start-irc": TableDefinition(
        title="A keyboard from the public start: Ubuntu IRC, 500 people, the published test text",
        preset="keyboard-irc",
        rows=(Row("start alone", _NO_ROUND), Row(SHARED, (), SEEDS)),
        figures=(*RANKED, "keystroke_savings"),
        minutes=50.0,
    ),
}

_TINY = (
    "vocabulary.size=500",
    "model.vocabulary_size=500",
    "rounds={cap=2, cohort_size=3, quorum=2, deadline_s=60.0}",
    "evaluation.every_rounds=1",
)
QUICK = {
    "quick": TableDefinition(
        title="The machinery of a keyboard that is adapted, on the manual's topics",
        preset="keyboard-tiny",
        rows=(Row(SHARED, (), (1, 2)), Row(CENTRAL, ("training.learning_rate=2.0",))),
        figures=PEOPLE,
        minutes=1.0,
        settings=("data.partition=users", *_TINY),
    )
}
