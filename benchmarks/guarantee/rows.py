"""Say what stands in the table of the keyboard under a guarantee.

A row is a run of the preset's people, a few of them in a round. The mean of their updates gets the
noise that a cell's cohort of thousands would get, and the step that it would take: its empty places
shorten it. That more people of the same kind would not change the mean is an assumption.
"""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.guarantee.cells import (
    CELLS,
    COHORTS,
    PRESET,
    ROUNDS,
    Cell,
    candidate,
    cell_of,
    promise,
    schema,
)
from benchmarks.tables.definition import STANDS_STILL, Row, TableDefinition
from simulation.config.overrides import parse_override
from simulation.config.simulation import read_tables, with_settings
from simulation.tuning.trial import trial_tables

AT_HAND = 4
"""People of a round here."""

SEEDS = (1, 2, 3)
START, SCRATCH = "from the start", "from scratch"
BEFORE = "the start, before any round"
FIGURES = ("test_top1_recall", "test_top3_recall", "keystroke_savings", "test_perplexity")
SCRATCH_EPSILON = 2.0
"""The budget at which random parameters are compared."""

_SCRATCH_PRESET = "keyboard-sms-scratch"


# The embedded text's six people, and a model that learns it in seconds.
_QUICK = (
    'data={dataset="manual", partition="groups", client_count=6, keystrokes=true}',
    "vocabulary.size=200",
    "model.vocabulary_size=200",
    "model.hidden_size=8",
    "rounds={cap=2, cohort_size=3, quorum=3, deadline_s=60.0}",
)


def row_name(start: str, cell: Cell | None) -> str:
    """Return a row's name: what it starts from, and its deployment, or None without noise."""
    if cell is None:
        return f"{start}, no noise"
    return f"{start}, ε = {cell.epsilon:g}, {cell.population_size:,} people"


def cells_by_row() -> dict[str, Cell]:
    """Return the deployment of every row that has one."""
    return {row_name(START, cell): cell for cell in CELLS} | {
        row_name(SCRATCH, cell): cell for cell in _compared()
    }


def table() -> TableDefinition:
    """Return the table."""
    return TableDefinition(
        title="A keyboard under a guarantee, from the public start: text messages of 159 people",
        preset=PRESET,
        rows=tuple(_rows()),
        minutes=80.0,
        figures=FIGURES,
        curve=None,
        references=("bigram",),
        settings=_settings(),
        # A model that noise destroys may end in no number.
        may_be_lost=True,
    )


def quick_table() -> TableDefinition:
    """Return two small rows from random parameters: no start of such a model ships."""
    compared = cell_of(min(COHORTS), SCRATCH_EPSILON)
    return TableDefinition(
        title="The machinery of the keyboard under a guarantee on the manual's topics",
        preset=PRESET,
        rows=(_scratch_row(None, (1,), *_QUICK), _scratch_row(compared, (1,), *_QUICK)),
        minutes=1.0,
        figures=FIGURES,
        curve=None,
        references=(),
        settings=_settings(),
    )


def _rows() -> list[Row]:
    # One person trains, and nothing comes of it.
    nobody = (STANDS_STILL, "rounds.cap=1")
    alone = ("rounds.cohort_size=1", "rounds.quorum=1")
    return [
        Row(BEFORE, (*_quiet(), *nobody, *alone)),
        Row(row_name(START, None), _quiet(), SEEDS),
        *(Row(row_name(START, cell), _noised(cell), SEEDS) for cell in CELLS),
        _scratch_row(None, SEEDS),
        *(_scratch_row(cell, SEEDS) for cell in _compared()),
    ]


def _scratch_row(cell: Cell | None, seeds: tuple[int, ...], *more: str) -> Row:
    noise = _quiet() if cell is None else _noised(cell)
    settings = (*_without_start(), *noise, *more)
    return Row(row_name(SCRATCH, cell), settings, seeds, preset=_SCRATCH_PRESET)


def _compared() -> list[Cell]:
    """Return the deployments that start from random parameters too."""
    return [cell_of(people, SCRATCH_EPSILON) for people in sorted(COHORTS)]


def _settings() -> tuple[str, ...]:
    """Return how every run differs from the preset: few people a round, and the last model."""
    return (
        "data.keystrokes=true",
        f"rounds={{cap={ROUNDS}, cohort_size={AT_HAND}, quorum={AT_HAND}, deadline_s=600.0}}",
        'training.precision="float32"',
        # The last round's model, as a coordinator without an evaluation of its own publishes it.
        'evaluation={kind="none"}',
    )


def _quiet() -> tuple[str, ...]:
    clipping_norm = candidate(CELLS[0]).clipping_norm
    return (f'privacy={{mode="none", clipping_norm={clipping_norm}}}',)


def _noised(cell: Cell) -> tuple[str, ...]:
    """Return the noise and the step of a cell, as the tuner tries it with the people at hand."""
    tried = trial_tables(
        read_tables(PRESET),
        candidate(cell),
        promise(cell),
        deployment=cell.deployment,
        cohort_at_hand=AT_HAND,
        schema=schema(),
    )
    return tuple(f"{name}={_inline(tried[name])}" for name in ("privacy", "aggregation"))


def _without_start() -> tuple[str, ...]:
    """Return the tables of a run that starts from random parameters and is alike otherwise."""
    overrides = [parse_override(text) for text in _settings()]
    tables = with_settings(read_tables(PRESET), overrides)
    return tuple(
        f"{name}={_inline(value)}"
        for name, value in tables.items()
        if name not in ("seed", "start_from")
    )


# TOML tables hold values of any TOML type.
def _inline(table: Mapping[str, Any]) -> str:
    """Return a table on one line."""
    pairs = (
        f"{key} = {_inline(value) if isinstance(value, Mapping) else json.dumps(value)}"
        for key, value in table.items()
    )
    return f"{{{', '.join(pairs)}}}"
