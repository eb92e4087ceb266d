"""Say what a results table is made of: rows, each a run for every seed."""

from dataclasses import dataclass

STANDS_STILL = "aggregation.server_step_size=1e-30"
"""A step that moves no float32: after one round of one person the model is the start still."""

RANKED = (
    "test_perplexity",
    "test_top1_recall",
    "test_top3_recall",
    "test_listed_top3_recall",
    "test_unknown_words",
)


@dataclass(frozen=True)
class Row:
    """Name a run, once for each seed.

    Attributes:
        name: Name of the row.
        settings: Changes to the table's preset, as ``sotto-simulate --set`` takes them.
        seeds: Seeds of the runs.
        x: Position on the picture's axis, where the table varies one number.
        run: Table and row whose runs serve here too, because their settings and curve are the
            same; None if the runs are this row's own.
        preset: Settings that this row starts from instead of the table's; the table's own changes
            are made to them too.
    """

    name: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...] = (1,)
    x: float | None = None
    run: tuple[str, str] | None = None
    preset: str | None = None


@dataclass(frozen=True)
class TableDefinition:
    """Name a table.

    Attributes:
        title: One line.
        preset: Settings that the rows start from.
        rows: The runs.
        minutes: Rough duration of all runs on two quiet cores; None if unknown.
        figures: Final figures to report; the picture shows the first.
        curve: Figure of the rounds that the picture follows, or None for bars of the final ones.
        references: Rows that the others are compared with below the table; ``unigram`` and
            ``bigram`` are counted, the rest are runs.
        fractions: Figures that are told as a part of each reference's, such as bytes.
        settings: Changes to the preset for every row and for the baselines.
        setting: Name of the number that ``Row.x`` is, or None.
        kept_every: Every so manyth round's model stays in a run's folder until it is measured; 0
            for none but the last.
        may_be_lost: Whether a run that cannot go on, such as one whose clients all diverge, stands
            in the table without figures; else it ends the command.
    """

    title: str
    preset: str
    rows: tuple[Row, ...]
    minutes: float | None
    figures: tuple[str, ...] = RANKED
    curve: str | None = "valid_perplexity"
    references: tuple[str, ...] = ("bigram", "central")
    fractions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    setting: str | None = None
    kept_every: int = 0
    may_be_lost: bool = False

    @property
    def counts_words(self) -> bool:
        """Return whether unigram and bigram stand in the table."""
        return "bigram" in self.references
