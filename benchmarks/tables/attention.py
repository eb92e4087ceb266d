"""Say what stands in each table of attentive aggregation: which runs, and at which length.

Every federated run of a table has the same server step size and sees the same number of training
tokens, repeats included: at a larger client fraction there are fewer rounds.
"""

from benchmarks.tables.definition import RANKED, Row, TableDefinition

# What two workers on two quiet cores need for the small model; a busy machine needs more.
MINUTES_PER_MILLION_TOKENS = 1.5

FEDAVG = ('aggregation={rule="mean", server_step_size=1.0}', 'privacy={mode="none"}')
EQUAL = (
    'aggregation={rule="mean", weighting="equal", server_step_size=1.0}',
    'privacy={mode="none"}',
)
LITERAL = (
    'aggregation={rule="literal", norm="frobenius", server_step_size=1.0}',
    'privacy={mode="none"}',
)
# Clipping norm and attention strength are the preset's.
CLIPPED = ("aggregation.server_step_size=1.0",)
RULES = {"FedAvg": FEDAVG, "FedAtt, literal": LITERAL, "FedAtt, clipped": CLIPPED}

KEYBOARD = (*RANKED, "keystroke_savings", "keystroke_ceiling")


def _length(rounds: int) -> tuple[str, ...]:
    """Return the settings of a run of that many rounds, measured ten times on the way."""
    return (f"rounds.cap={rounds}", f"evaluation.every_rounds={max(1, rounds // 10)}")


def _fraction(rate: float, rounds: int) -> tuple[str, ...]:
    return (f"rounds.participation_rate={rate}", *_length(rounds))


def _central(
    partition: str, rounds: int, parts: int = 1, run: tuple[str, str] | None = None
) -> Row:
    """Return the same model and optimiser in one place: a round is a pass over a part of the text.

    Its steps are a quarter as large: those of the clients are averaged, and at their size a single
    learner diverges.

    Args:
        partition: Deals the text to its parts.
        rounds: Parts that are trained on, one after the other.
        parts: Parts of equal size that the text is in; one is drawn every round.
        run: Where another table has the same run.
    """
    settings = (
        *FEDAVG,
        "training.learning_rate=2.5",
        f"data.partition={partition}",
        f"data.client_count={parts}",
        f"rounds={{cap={rounds}, cohort_size=1, quorum=1, deadline_s=600.0}}",
        "evaluation.every_rounds=1",
    )
    return Row("central", settings, run=run)


def _rules(length: tuple[str, ...], seeds: tuple[int, ...]) -> tuple[Row, ...]:
    return tuple(Row(name, (*rule, *length), seeds) for name, rule in RULES.items())


THREE = (1, 2, 3)


def falling(rounds: int) -> tuple[str, ...]:
    """Return the settings of a run whose local steps get smaller from round to round."""
    return (*_length(rounds), f"training.decay={{last_round={rounds}, final_share=0.05}}")


# A third of the presets' length: what three seeds of every rule cost on two cores decides.
PTB_LENGTH = _length(30)

TABLES = {
    "fedatt-ptb": TableDefinition(
        title="Penn Treebank, 100 IID clients, one local epoch, 2.8 million tokens a run",
        preset="fedatt-ptb",
        rows=(
            *_rules(PTB_LENGTH, THREE),
            _central("iid", 3),
            Row("FedAvg, steps fall to a twentieth", (*FEDAVG, *falling(30))),
            Row("FedSGD (C = 1, E = 1)", (*FEDAVG, *_fraction(1.0, 3))),
            Row("FedAvg, C = 0.5", (*FEDAVG, *_fraction(0.5, 6))),
            Row("FedAtt, clipped, C = 0.5", (*CLIPPED, *_fraction(0.5, 6))),
        ),
        minutes=MINUTES_PER_MILLION_TOKENS * 2.8 * 14,
    ),
    "fedatt-ptb-long": TableDefinition(
        title="Penn Treebank at the preset's length, 9.3 million tokens a run",
        preset="fedatt-ptb",
        rows=(*_rules(_length(100), (1,)), _central("iid", 10)),
        minutes=MINUTES_PER_MILLION_TOKENS * 9.3 * 4,
    ),
    "keyboard-sms": TableDefinition(
        title="NUS SMS, every phone user a client, one local epoch, 1.5 million tokens a run",
        preset="keyboard-sms-scratch",
        rows=(
            *_rules(_length(30), THREE),
            _central("groups", 3),
            Row("FedSGD (C = 1, E = 1)", (*FEDAVG, *_fraction(1.0, 3))),
            Row("FedAvg, equal weights", (*EQUAL, *_length(30))),
            Row("FedAvg, 100 rounds (5 million tokens)", (*FEDAVG, *_length(100))),
            Row("FedAvg, 100 rounds, steps fall to a twentieth", (*FEDAVG, *falling(100))),
            Row("FedAtt, clipped, 100 rounds, the same", (*CLIPPED, *falling(100))),
            Row("FedAvg, C = 0.5", (*FEDAVG, *_fraction(0.5, 6))),
            Row("FedAtt, clipped, C = 0.5", (*CLIPPED, *_fraction(0.5, 6))),
        ),
        figures=KEYBOARD,
        minutes=MINUTES_PER_MILLION_TOKENS * (1.5 * 14 + 5 * 3),
    ),
    "fedatt-wikitext2": TableDefinition(
        title="WikiText-2, 100 IID clients, 10,000 words, 3.1 million tokens a run",
        preset="fedatt-wikitext2",
        # A pass and a half, as many tokens as the federated runs see.
        rows=(*_rules(_length(15), (1,)), _central("iid", 3, parts=2)),
        minutes=MINUTES_PER_MILLION_TOKENS * 3.1 * 4,
    ),
    "fedatt-reddit": TableDefinition(
        title="Reddit comments, 100 IID clients, 1.2 million tokens a run",
        preset="fedatt-reddit",
        rows=(*_rules(_length(20), (1,)), _central("iid", 2)),
        minutes=MINUTES_PER_MILLION_TOKENS * 1.2 * 4,
    ),
    "noise": TableDefinition(
        title="Randomisation by each client (Eq. 6), FedAtt literal, PTB, 2.8 million tokens a run",
        preset="fedatt-ptb",
        rows=(
            Row("β = 0", (*LITERAL, *PTB_LENGTH), x=0.0, run=("fedatt-ptb", "FedAtt, literal")),
            *(
                Row(
                    f"β = {beta:g}",
                    (
                        LITERAL[0],
                        f'privacy={{mode="paper", randomisation_magnitude={beta}}}',
                        *PTB_LENGTH,
                    ),
                    x=beta,
                )
                for beta in (0.001, 0.005, 0.01, 0.05)
            ),
            _central("iid", 3, run=("fedatt-ptb", "central")),
        ),
        setting="randomisation magnitude β",
        minutes=MINUTES_PER_MILLION_TOKENS * 2.8 * 4,
    ),
    "scale": TableDefinition(
        title="Model scale, FedAvg, PTB, 2.8 million tokens a run; large as 20 steps",
        preset="fedatt-ptb",
        rows=(
            Row("small (300), tied", (*FEDAVG, *PTB_LENGTH), run=("fedatt-ptb", "FedAvg")),
            *(
                Row(
                    f"{name} ({hidden}), {'tied' if tied else 'untied'}",
                    (
                        *FEDAVG,
                        f"model.hidden_size={hidden}",
                        f"model.tied={str(tied).lower()}",
                        *PTB_LENGTH,
                    ),
                )
                for name, hidden, tied in (
                    ("small", 300, False),
                    ("medium", 650, True),
                    ("medium", 650, False),
                )
            ),
            Row(
                "large (1500), untied, 20 steps",
                (
                    *FEDAVG,
                    "model.hidden_size=1500",
                    "model.tied=false",
                    # One client of about 2,000 tokens: 20 windows of 10 x 10.
                    "data.client_count=460",
                    "rounds={cap=1, cohort_size=1, quorum=1, deadline_s=600.0}",
                ),
            ),
            _central("iid", 3, run=("fedatt-ptb", "central")),
        ),
        # Medium costs about three times as much a token as small.
        minutes=MINUTES_PER_MILLION_TOKENS * (2.8 + 2.8 * 2 * 3 + 1),
    ),
}

QUICK = {
    "quick": TableDefinition(
        title="The machinery at the scale of keyboard-tiny",
        preset="keyboard-tiny",
        rows=(*_rules(_length(3), (1, 2)), _central("groups", 1)),
        figures=KEYBOARD,
        settings=("vocabulary.size=200", "model.vocabulary_size=200", "data.keystrokes=true"),
        minutes=MINUTES_PER_MILLION_TOKENS * 0.5,
    )
}
