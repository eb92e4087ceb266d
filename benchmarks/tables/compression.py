"""Say what stands in the tables of compressed updates: every form on one preset and its seeds."""

from collections.abc import Iterable

from benchmarks.tables.attention import MINUTES_PER_MILLION_TOKENS
from benchmarks.tables.definition import RANKED, Row, TableDefinition

SEEDS = (1, 2, 3)
FIGURES = (*RANKED, "bytes_up", "bytes_down")
PLAIN = "float32"
MOVES = "releases as what changed"
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
    MOVES: ('compression={uplink="none", downlink="delta", downlink_step=0.000244140625}',),
}
UPWARDS = (PLAIN, "int8, zstd", "int4, fed back")
PROMISED = (*UPWARDS, MOVES)
"""The forms that promises are made of, in both directions; the others have one seed."""
LENGTH = ("rounds.cap=30", "evaluation.every_rounds=3")
# As many tokens as thirty rounds of text messages.
LENGTH_OF_PTB = ("rounds.cap=15", "evaluation.every_rounds=3")


def _rows(forms: Iterable[str], seeds: tuple[int, ...], length: tuple[str, ...]) -> tuple[Row, ...]:
    return tuple(Row(name, (*FORMS[name], *length), seeds) for name in forms)


def _table(
    title: str, preset: str, rows: tuple[Row, ...], million_tokens: float
) -> TableDefinition:
    """Return a table each of whose runs sees so many tokens."""
    runs = sum(len(row.seeds) for row in rows)
    return TableDefinition(
        title=f"Compressed updates: {title}, {million_tokens} million tokens a run",
        preset=preset,
        rows=rows,
        figures=FIGURES,
        minutes=MINUTES_PER_MILLION_TOKENS * million_tokens * runs,
        references=(PLAIN,),
        fractions=("bytes_up", "bytes_down"),
    )


_OTHERS = tuple(name for name in FORMS if name not in PROMISED)
TABLES = {
    "compression-sms": _table(
        "NUS SMS, every phone user a client",
        "keyboard-sms-scratch",
        _rows(PROMISED, SEEDS, LENGTH),
        1.5,
    ),
    "compression-ptb": _table(
        "Penn Treebank, 100 IID clients",
        "fedatt-ptb",
        _rows(UPWARDS, SEEDS, LENGTH_OF_PTB),
        1.4,
    ),
    "compression-forms": _table(
        "NUS SMS, every phone user a client, the other forms",
        "keyboard-sms-scratch",
        (
            Row(PLAIN, LENGTH, SEEDS[:1], run=("compression-sms", PLAIN)),
            *_rows(_OTHERS, SEEDS[:1], LENGTH),
        ),
        1.5,
    ),
}
QUICK = {
    "quick": TableDefinition(
        title="The machinery of compressed updates on the manual's topics",
        preset="keyboard-tiny",
        rows=_rows(FORMS, (1,), ("rounds.cap=2",)),
        figures=FIGURES,
        minutes=1.0,
        references=(PLAIN,),
        fractions=("bytes_up", "bytes_down"),
    )
}
