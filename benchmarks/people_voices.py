"""Give people voices: some who shared half a minute, one who read for long, and a stranger.

    python -m benchmarks.people_voices --data DATA --work WORK --out docs/results

Clients are the 24 speakers of AN4 (half a minute each, spelt names and numbers) and a reader of LJ
Speech (120 clips), from DATA; Kathleen, who read 120 sentences of CMU Arctic, is kept out. The
federation is preset `speech-espeak` with them in place of synthetic voices: it begins with the
start that ships, and each device trains its voice on by itself in the last round. Then Kathleen's
is fitted to a minute of her speech, and every voice says the texts that its speaker held out.

A command that was stopped goes on from WORK, which keeps `listen`'s page and sounds. Figures
(``--json`` prints them as one object), for ``an4``, ``reader`` and ``stranger``:

    GROUP_cer           Character error rate of the second judge, which learnt from other people.
    GROUP_real_cer      The same of the real clips.
    GROUP_mcd_db        Mean mel-cepstral distortion, decibels.
    GROUP_speaker       Share of utterances that are nearest to their speaker among all.
    GROUP_clips         Texts that were said.

For ``an4`` and ``reader`` also ``GROUP_other_mcd_db``: the same speaker saying something else.

``--quick`` has 2 rounds and 12 clips a speaker: mechanics. Needs the extras speech-demo and judge.
"""

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import torch

from benchmarks.parts.figures import benchmark_parser, show_figures
from edge_client.datasets.registry import SPEECH_SETS
from edge_client.datasets.sound_file import SoundFile
from models.listening.edit_distance import ReadingErrors, reading_errors
from models.listening.heard_letters import heard_letters
from models.text.speech_alphabet import SpeechTextSettings
from models.text.spoken_text import prepare_speech
from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.cli import main as simulate
from simulation.config.data import DataSettings
from simulation.listening.hearing import UtteranceFigures
from simulation.listening.second_judge import second_reading
from simulation.listening.session import FIGURES_FILE
from simulation.listening.table import ListeningReport
from simulation.population.novel_clients import novel_names
from simulation.population.population import client_name

NAME = "people"
COMMAND = "python -m benchmarks.people_voices --data DATA --work WORK --out docs/results"
SETS = ("an4", "kathleen", "ljspeech")
STRANGER, READER = "kathleen", "ljspeech"
CLIPS, QUICK_CLIPS = 120, 12
ALL_CLIPS = 1_000


def main() -> None:
    """Train, fit, listen, print and write the figures."""
    parser = benchmark_parser(__doc__, quick="2 rounds, 12 clips a speaker")
    parser.add_argument("--data", type=Path, required=True, help="folder with the three sets")
    parser.add_argument("--work", type=Path, required=True, help="folder to work and go on in")
    parser.add_argument("--out", type=Path, help=f"folder to write {NAME}.json to")
    arguments = parser.parse_args()
    recordings, run = arguments.work / "recordings", arguments.work / "run"
    speakers = _gather(arguments.data, recordings)
    settings = _settings(speakers, quick=arguments.quick)
    changes = [word for one in settings for word in ("--set", one)]
    data = ("--data", str(recordings))
    _ask("run", "speech-espeak", *data, "--workers", "1", "--out", str(run), *changes)
    passes = "2" if arguments.quick else "20"
    curve = ("--png", str(arguments.work / "novel.png"))
    _ask("novel", str(run), *data, "--seconds", "60", "--epochs", passes, *curve)
    _ask("listen", str(run), *data, "--clips", str(ALL_CLIPS))
    listening = (run / "listening" / FIGURES_FILE).read_bytes()
    figures = _figures(msgspec.json.decode(listening, type=ListeningReport), recordings)
    if arguments.out is not None:
        _write(arguments.out, settings, figures)
    show_figures(figures, "Voices of people", as_json=arguments.json)


def _gather(data: Path, folder: Path) -> list[str]:
    """Lay out all recordings as a person's own, and return the speakers."""
    speakers = set()
    for name in SETS:
        for recording in SPEECH_SETS[name](data):
            sound = recording.sound
            assert isinstance(sound, SoundFile)
            target = folder / recording.speaker / sound.path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(sound.path.resolve())
            write_atomically(target.with_suffix(".txt"), recording.written.encode(), mode=READABLE)
            speakers.add(recording.speaker)
    return sorted(speakers)


def _settings(speakers: Sequence[str], *, quick: bool) -> tuple[str, ...]:
    """Return what differs from the preset; the deal's seed is the first that keeps her out."""
    clients = {client_name(number): who for number, who in enumerate(speakers, start=1)}
    share = 1 / len(speakers)
    seed = next(
        seed
        for seed in itertools.count(1)
        if [clients[one] for one in novel_names([*clients], _deal(share, seed))] == [STRANGER]
    )
    clips = QUICK_CLIPS if quick else CLIPS
    return (
        f'data={{dataset="recordings", partition="users", clips_per_speaker={clips}, '
        f"novel_share={share:.4f}, seed={seed}}}",
        "model.longest_text=200",
        "model.clips.longest_s=10.5",
        *(("rounds.cap=2", "personalisation.first_round=2") if quick else ()),
    )


def _deal(share: float, seed: int) -> DataSettings:
    return DataSettings(dataset="recordings", partition="users", novel_share=share, seed=seed)


def _ask(*arguments: str) -> None:
    """Give `sotto-simulate` a command, or end as it did."""
    if status := simulate(arguments):
        raise SystemExit(status)


def _figures(report: ListeningReport, recordings: Path) -> dict[str, float]:
    rows = {row.voice: row.utterances for row in report.voices}
    *_, trained, fitted = (row.utterances for row in report.voices if row.kind == "voice")
    figures: dict[str, float] = {}
    for group, said in _groups((*trained, *fitted)).items():
        names = {own.clip for own in said}
        nearest = [own.is_speaker for own in said if own.is_speaker is not None]
        figures |= {
            f"{group}_cer": _rate(said),
            f"{group}_real_cer": _real_rate(recordings, names),
            f"{group}_mcd_db": statistics.fmean(own.mcd_db for own in said),
            f"{group}_speaker": statistics.fmean(nearest),
            f"{group}_clips": len(said),
        }
        others = [own.mcd_db for own in rows["other sentence"] if own.clip in names]
        if others:
            figures[f"{group}_other_mcd_db"] = statistics.fmean(others)
    return figures


def _groups(said: Iterable[UtteranceFigures]) -> dict[str, list[UtteranceFigures]]:
    groups: dict[str, list[UtteranceFigures]] = {"an4": [], "reader": [], "stranger": []}
    of = {READER: "reader", STRANGER: "stranger"}
    for own in said:
        groups[of.get(Path(own.clip).parts[0], "an4")].append(own)
    return groups


def _rate(said: Iterable[UtteranceFigures]) -> float:
    read = [own.second_reading for own in said if own.second_reading is not None]
    return sum(read, ReadingErrors()).rate


def _real_rate(recordings: Path, names: Iterable[str]) -> float:
    errors = ReadingErrors()
    for name in names:
        sound = SoundFile(recordings / name).read()
        written = (recordings / name).with_suffix(".txt").read_text(encoding="utf-8")
        text = heard_letters(prepare_speech(written, SpeechTextSettings()).text)
        mono = torch.from_numpy(sound.channels).mean(1)
        errors += reading_errors(text, second_reading(mono, sound.sample_rate_hz))
    return errors.rate


def _write(out: Path, settings: Sequence[str], figures: Mapping[str, float]) -> None:
    document = {"command": COMMAND, "settings": settings, "figures": figures}
    text = json.dumps(document, indent=2) + "\n"
    write_atomically(out / f"{NAME}.json", text.encode(), mode=READABLE)


if __name__ == "__main__":
    main()
