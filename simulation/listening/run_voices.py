"""Let the voices of a finished run speak: one for each release that its folder keeps.

A text is spoken by the client whose clip it is from, with that client's own vector; where clips
were dealt without regard to speakers, the released voice speaks all. Clips of a speaker whose
client never trained, and so has no vector, are left out. Novel speakers, to whom `sotto-simulate
novel` fitted the final model, have a row of their own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from edge_client.datasets.registry import load_speech
from models.listening.synthesis import synthesise
from models.networks.registry import voice_network
from models.networks.voice import TransformerTts
from models.settings.voice import TransformerTtsSettings
from models.text.speech_alphabet import encode_speech
from simulation.config.run_files import read_run_file
from simulation.listening.corpus import Corpus, Real
from simulation.listening.voices import Kind, Newcomers, Utterance, Voice
from simulation.population.novel_clients import novel_names
from simulation.population.partition_record import PARTITION_FILE, PartitionRecord
from simulation.population.speech import held_out_clips
from simulation.understanding.finished_run import FinishedRun, open_run
from simulation.understanding.novel_states import NovelFit, kept_fit

_SEED = 1
_LONGEST = 2


class NotSpeechError(ValueError):
    """Raised when a run has no voice to listen to."""


class NoKnownSpeakerError(ValueError):
    """Raised when a run knows nobody's voice whose clips it held out."""


class Speakers:
    """Each speaker's network of a release, made on demand and kept."""

    def __init__(self, run: FinishedRun, clients: Mapping[str, str], anybody: str) -> None:
        """Take the clients of known speakers, and the client ``anybody`` of all others."""
        self._run = run
        self._clients = clients
        self._anybody = anybody
        self._made: dict[str, TransformerTts] = {}

    def network_of(self, speaker: str) -> TransformerTts:
        """Return the network that speaks like a speaker."""
        client = self._clients.get(speaker, self._anybody)
        if client not in self._made:
            self._made[client] = voice_network(self._run.network_of(client))
        return self._made[client]


@dataclass(frozen=True)
class RunVoice:
    """A voice that speaks with the model of one release."""

    name: str
    speakers: Speakers
    kind: Kind = "voice"

    def say(self, real: Real) -> Utterance:
        """Say the text of a clip in its speaker's voice, cut off at twice the clip's length."""
        network = self.speakers.network_of(real.clip.speaker)
        most = network.settings.steps_of(_LONGEST * real.mel.shape[1])
        symbols = encode_speech(real.clip.text, network.settings.text)
        spoken = synthesise(
            network,
            torch.tensor(symbols, dtype=torch.int64),
            generator=torch.Generator().manual_seed(_SEED),
            longest_steps=min(most, network.settings.longest_steps),
        )
        return Utterance(
            spoken.mel.t(),
            attention=spoken.attention.flatten(0, 1),
            has_ended=spoken.has_ended,
        )


class RunVoices(NamedTuple):
    """The voices and the corpus of a run.

    Attributes:
        corpus: Its training clips, and held-out clips of speakers that its voices know.
        voices: From the oldest release to the newest.
        newcomers: Its novel speakers; None if there are none, or nothing was fitted to them.
        notes: Lines that say what is listened to.
    """

    corpus: Corpus
    voices: list[Voice]
    newcomers: Newcomers | None
    notes: list[str]


def open_voices(folder: Path, data: Path | None) -> RunVoices:
    """Open a finished run of speech.

    Raises:
        NoFinishedRunError: If there is no run, or it is not over.
        NotSpeechError: If it is one of another task.
        NoKnownSpeakerError: If no held-out clip is of a speaker that its voices know.
        DatasetError: If its data set cannot be loaded.
    """
    run = open_run(folder)
    model = run.config.model
    if not isinstance(model, TransformerTtsSettings):
        raise NotSpeechError(
            f'listen needs a run of task "speech", {folder} is of task "{run.config.task}"'
        )
    speech = load_speech(
        run.config.data.dataset, data, clip_settings=model.clips, text_settings=model.text
    )
    held = held_out_clips(speech, run.config.data)
    record = read_run_file(folder / PARTITION_FILE, PartitionRecord)
    clients = {client.owner: client.name for client in record.clients if client.owner}
    anybody = record.clients[0].name
    releases = [run.at(int(path.name)) for path in run.folder.releases.published()]
    notes = [f"Voices are the releases that {folder.name} keeps"]
    corpus = Corpus(run.config.data.dataset, held.train, held.test, model.mel, model.clips)
    newcomers = None
    if model.speaker_size and clients:
        novel = {*novel_names([client.name for client in record.clients], run.config.data)}
        known = _known(releases, {s: c for s, c in clients.items() if c not in novel})
        newcomers = _newcomers(run, corpus, {s: c for s, c in clients.items() if c in novel})
        notes += _notes(run, corpus, known, newcomers)
        corpus = _of_speakers(corpus, known)
    voices: list[Voice] = [
        RunVoice(_name(release), Speakers(release, clients, anybody)) for release in releases
    ]
    return RunVoices(corpus, voices, newcomers, notes)


def _known(releases: Sequence[FinishedRun], clients: Mapping[str, str]) -> set[str]:
    """Return the speakers whose clients keep a vector at every release, so that rows compare."""
    return {
        speaker
        for speaker, client in clients.items()
        if all(release.kept_by(client) is not None for release in releases)
    }


def _newcomers(run: FinishedRun, corpus: Corpus, clients: Mapping[str, str]) -> Newcomers | None:
    """Return the novel speakers, with the final model as it was fitted to them."""
    fit = kept_fit(run)
    theirs = _of_speakers(corpus, _known([run], clients))
    if fit is None or not theirs.held_out:
        return None
    voice = RunVoice(_fitted_name(fit), Speakers(run, clients, next(iter(clients.values()))))
    return Newcomers(voice, theirs)


def _fitted_name(fit: NovelFit) -> str:
    to = "all their clips" if fit.longest_s is None else f"{fit.longest_s:g} s"
    return f"novel speakers, fitted to {to}"


def _of_speakers(corpus: Corpus, speakers: Collection[str]) -> Corpus:
    """Return a corpus with the held-out clips of some speakers."""
    clips = tuple(clip for clip in corpus.held_out if clip.speaker in speakers)
    return replace(corpus, held_out=clips)


def _notes(
    run: FinishedRun, corpus: Corpus, known: Collection[str], newcomers: Newcomers | None
) -> list[str]:
    """Return lines on novel and left-out speakers; ``NoKnownSpeakerError`` if no other is left."""
    folder, theirs = run.folder.folder, () if newcomers is None else newcomers.corpus.held_out
    novel = {clip.speaker for clip in theirs}
    left = [clip for clip in corpus.held_out if clip.speaker not in {*known, *novel}]
    if len(left) + len(theirs) == len(corpus.held_out):
        raise NoKnownSpeakerError(
            f"{folder} must hold a clip out of a speaker who had trained at every release that it "
            f"keeps, got {len(corpus.held_out)} clips, all of others; run more rounds, or raise "
            "rounds.cohort_size or data.held_out_clips"
        )
    notes = []
    if newcomers is not None:
        notes.append(
            f'"{newcomers.voice.name}" is round {run.model_round} saying texts of {len(novel)} '
            "speakers who took no part in training; all other rows are of those who did"
        )
    if left:
        has_unfitted = run.config.data.novel_share and newcomers is None
        remedy = f"; `sotto-simulate novel {folder}` fits one to the novel ones"
        notes.append(
            f"{len(left)} held-out clips of {len({clip.speaker for clip in left})} speakers are "
            "left out: their clients had not trained at every release, so no vector says how they "
            f"sound{remedy if has_unfitted else ''}"
        )
    return notes


def _name(run: FinishedRun) -> str:
    model = run.plan.model
    layers = model.layer_count if isinstance(model, TransformerTtsSettings) else 0
    return f"round {run.model_round}, {layers}+{layers} layers"
