"""Say what stands in the tables of compressed updates: every form on one preset and its seeds."""

from benchmarks.tables.attention import MINUTES_PER_MILLION_TOKENS
from benchmarks.tables.definition import RANKED, Row, TableDefinition

SEEDS = (1, 2, 3)
FIGURES = (*RANKED, "bytes_up")
PLAIN = "float32"
FORMS = {
    PLAIN: (),
    "bfloat16": ('compression={uplink="bfloat16"}',),
    "int8, zstd": ('compression={uplink="int8", block_size=1024, entropy="zstd"}',),
    "int4, at random": ('compression={uplink="int4"}',),
    "int4, fed back": ('compression={uplink="int4", error_feedback=true}',),
    "int4, fed back, zstd": ('compression={uplink="int4", error_feedback=true, entropy="zstd"}',),
    "int8, top tenth": (
        'compression={uplink="int8", error_feedback=true, keep="top", keep_fraction=0.1}',
    ),
    "int8, rank 8": ('compression={uplink="int8", error_feedback=true, rank=8}',),
}
NAMED = (PLAIN, "int8, zstd", "int4, fed back", "int4, fed back, zstd")
"""The forms that promises are made of; the others have the first seed alone."""
LENGTH = ("rounds.cap=30", "evaluation.every_rounds=3")


def _rows(seeds: tuple[int, ...], length: tuple[str, ...]) -> tuple[Row, ...]:
    return tuple(
        Row(name, (*settings, *length), seeds if name in NAMED else seeds[:1])
        for name, settings in FORMS.items()
    )


def _minutes(million_tokens: float) -> float:
    """Return how long a table takes whose runs see so many tokens each."""
    runs = sum(len(row.seeds) for row in _rows(SEEDS, LENGTH))
    return MINUTES_PER_MILLION_TOKENS * million_tokens * runs


TABLES = {
    "compression-sms": TableDefinition(
        title="Compressed updates: NUS SMS, every phone user a client, 1.5 million tokens a run",
        preset="keyboard-sms",
        rows=_rows(SEEDS, LENGTH),
        figures=FIGURES,
        minutes=_minutes(1.5),
        references=(PLAIN,),
        fractions=("bytes_up",),
    ),
    "compression-ptb": TableDefinition(
        title="Compressed updates: Penn Treebank, 100 IID clients, 2.8 million tokens a run",
        preset="fedatt-ptb",
        rows=_rows(SEEDS, LENGTH),
        figures=FIGURES,
        minutes=_minutes(2.8),
        references=(PLAIN,),
        fractions=("bytes_up",),
    ),
}
QUICK = {
    "quick": TableDefinition(
        title="The machinery of compressed updates on the manual's topics",
        preset="keyboard-tiny",
        rows=_rows((1,), ("rounds.cap=2",)),
        figures=FIGURES,
        minutes=1.0,
        references=(PLAIN,),
        fractions=("bytes_up",),
    )
}
