"""Listening's additions to a table of voices: figures of each run, and the rows around them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import Outcome, RunRecord, rounds_with
from benchmarks.tables.report import Rows, figures_of, write_report
from simulation.figures.metrics import Figures, read_metrics, round_of
from simulation.listening.commands import RECOGNISER_FILE, ListenRequest, listen_to_run
from simulation.listening.recogniser_training import TrainingSettings
from simulation.listening.session import FIGURES_FILE
from simulation.listening.table import ListeningReport, VoiceFigures

FOLDER = "listening"
CLIPS = 16
EPOCHS = 15
FOLLOWED = "valid_mel_l1"

HEARD = ("mcd_db", "character_error_rate", "stop_accuracy", "diagonality")
_SOON = ("rounds_to_level", "train_s_to_level")
FIGURES = ("test_mel_l1", *HEARD, "train_s", "megabytes", *_SOON)

UNDERSTOOD = 0.2
"""Character error rate at which a voice counts as understood."""
_UNDERSTOOD = ("understood", "rounds_to_understood", "train_s_to_understood")
SPEAKING = ("test_mel_l1", *HEARD, "train_s", "megabytes", *_UNDERSTOOD)


def listen_once(table: TableDefinition, folder: Path, data: Path | None, final: Figures) -> Outcome:
    """Return a finished run's figures with what its voice sounds like, what it took and sent.

    The recogniser lies beside the runs of the table, which hold out the same clips.

    Args:
        table: Not needed.
        folder: Folder of the run; listened to if that was not done before.
        data: Where its data set lies.
        final: The run's own figures.
    """
    path = folder / FOLDER / FIGURES_FILE
    if not path.exists():
        request = ListenRequest(
            folder=path.parent,
            clip_count=CLIPS,
            training=TrainingSettings(epochs=EPOCHS),
            recogniser=folder.parent / RECOGNISER_FILE,
        )
        listen_to_run(folder, data, request)
    report = msgspec.json.decode(path.read_bytes(), type=ListeningReport)
    voices = [row for row in report.voices if row.kind == "voice"]
    kept = sorted(int(path.name) for path in (folder / "releases").glob("[0-9]*"))
    rounds = read_metrics(folder)
    # Under a guarantee a round tells no bytes.
    sent = sum(float(rounds[-1].get(way) or 0) for way in ("bytes_down", "bytes_up"))
    return Outcome(
        final={
            **final,
            **_heard(voices[-1]),
            **_understood(dict(zip(kept, voices, strict=True)), rounds),
            "train_s": sum(float(row["round_s"] or 0) for row in rounds),
            "megabytes": sent / 1e6 if sent else None,
        },
        rounds=rounds_with(folder, FOLLOWED, "round_s"),
        more={"around": {row.voice: _heard(row) for row in report.voices if row.kind != "voice"}},
    )


def write_listened(
    name: str,
    table: TableDefinition,
    rows: Rows,
    folder: Path,
    *,
    command: str,
    runs: Mapping[str, Sequence[RunRecord]],
) -> None:
    """Write ``NAME.json``, ``NAME.md`` and ``NAME.png``, with the ceiling and the floors.

    How soon a run gets there is counted to the level that the worst of all runs ends at.

    Args:
        name: Name of the files.
        table: Definition of the rows.
        rows: Figures by row.
        folder: Where to write.
        command: Command that made the table.
        runs: Each row's runs, followed where the table asks how soon.
    """
    everyone = [run for of_row in runs.values() for run in of_row]
    around = {
        voice: {name: float(value) for name, value in heard.items() if value is not None}
        for voice, heard in everyone[0].more["around"].items()
    }
    if _SOON[0] in table.figures:
        level = max(_followed(run)[-1][1] for run in everyone)
        rows = {
            row: {**figures, **figures_of([_soon(run, level) for run in runs[row]], _SOON)}
            for row, figures in rows.items()
        }
        table = replace(table, title=f"{table.title}; level: mel L1 of {level:.3f}")
    write_report(name, table, {**around, **rows}, folder, command=command, runs=runs)


def _heard(voice: VoiceFigures) -> Figures:
    return {name: getattr(voice, name) for name in HEARD}


def _understood(voices: Mapping[int, VoiceFigures], rounds: Sequence[Figures]) -> Figures:
    """Return whether a voice of those listened to is understood, 1 or 0, and how soon one is.

    The mean of ``understood`` is the share of seeds that the means of the other two are over.
    """
    for number, row in voices.items():
        if row.character_error_rate <= UNDERSTOOD:
            taken = sum(float(own["round_s"] or 0) for own in rounds if round_of(own) <= number)
            return dict(zip(_UNDERSTOOD, (1, number, taken), strict=True))
    return {_UNDERSTOOD[0]: 0}


def _followed(run: RunRecord) -> list[tuple[int, float, float]]:
    """Return the rounds that were measured: number, mel L1, seconds of training until then."""
    seconds, found = 0.0, []
    for row in run.rounds:
        seconds += float(row["round_s"] or 0)
        loss = row.get(FOLLOWED)
        if isinstance(loss, int | float):
            found.append((round_of(row), float(loss), seconds))
    return found


def _soon(run: RunRecord, level: float) -> Figures:
    """Return when a run first was as good as that."""
    number, _, seconds = next(point for point in _followed(run) if point[1] <= level)
    return {"rounds_to_level": number, "train_s_to_level": seconds}
