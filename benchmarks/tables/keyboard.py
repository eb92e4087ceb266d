"""Say what stands in the table of personal keyboards: every method on one set of users."""

from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.own_text import GLOBAL

EPOCHS = (1, 2, 4)
"""Local epochs of fine-tuning: what users gain from the global model by themselves."""

FIGURES = (
    "accuracy",
    "accuracy_clients_mean",
    "accuracy_clients_worst_decile",
    "top3_recall",
    "keystroke_savings",
    "keystroke_savings_clients_mean",
    "perplexity",
)
METHODS = {
    "Local": ('personalisation={method="local"}',),
    "FedPer": ('personalisation={method="fedper"}',),
    "vanilla": ('personalisation={method="vanilla"}',),
    "Ditto": ('personalisation={method="ditto"}',),
    "FedTP": (),
    "FedTP+kNN": ("personalisation.neighbours={}",),
}


def _rows(epochs: tuple[int, ...], seeds: tuple[int, ...]) -> tuple[Row, ...]:
    tuned = f"data.fine_tuning_epochs=[{', '.join(map(str, epochs))}]"
    return (
        Row(GLOBAL, ('personalisation={method="global"}', tuned), seeds),
        *(Row(name, settings, seeds) for name, settings in METHODS.items()),
    )


def _table(
    title: str, seeds: tuple[int, ...], minutes: float, settings: tuple[str, ...] = ()
) -> TableDefinition:
    return TableDefinition(
        title=title,
        preset="fedtp-keyboard",
        rows=_rows(EPOCHS, seeds),
        figures=FIGURES,
        minutes=minutes,
        curve=None,
        references=("bigram",),
        settings=settings,
    )


TABLES = {
    "keyboard-personalisation": _table(
        "Personal keyboards: NUS SMS, the 50 most active phone users", (1, 2, 3), 60.0
    ),
    "keyboard-personalisation-irc": _table(
        "Personal keyboards: Ubuntu IRC, the 50 most active nicknames, one seed",
        (1,),
        20.0,
        ('data.dataset="irc"',),
    ),
}

QUICK_EPOCHS = (1,)
QUICK = {
    "quick": TableDefinition(
        title="The machinery of personal keyboards on the manual's topics",
        preset="fedtp-keyboard",
        rows=_rows(QUICK_EPOCHS, (1,)),
        figures=FIGURES,
        minutes=1.0,
        curve=None,
        references=("bigram",),
        settings=(
            'data.dataset="manual"',
            "data.client_count=6",
            "vocabulary.size=500",
            "model.vocabulary_size=500",
            "rounds.cap=2",
            "rounds.participation_rate=0.5",
        ),
    )
}
