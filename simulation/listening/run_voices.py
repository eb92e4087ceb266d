"""Let the voices of a finished run speak: one for each release that its folder keeps.

Who speaks is the client whose clips a text is from, with the vector that it keeps to itself; where
clips were dealt without regard to speakers, the released voice speaks all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from edge_client.datasets.registry import load_speech
from models.registry import voice_network
from models.speech_alphabet import encode_speech
from models.speech_synthesis import synthesise
from models.transformer_tts import TransformerTts
from models.transformer_tts_settings import TransformerTtsSettings
from simulation.listening.corpus import Corpus, Real
from simulation.listening.voices import Kind, Utterance, Voice
from simulation.partition_record import PARTITION_FILE, PartitionRecord
from simulation.speech_population import held_out_clips
from simulation.understanding.finished_run import FinishedRun, open_run

_SEED = 1
_LONGEST = 2


class NotSpeechError(ValueError):
    """Raised when a run has no voice to listen to."""


class Speakers:
    """Make each speaker's network of a release when it is asked for, and keep it."""

    def __init__(self, run: FinishedRun, clients: Mapping[str, str], anybody: str) -> None:
        """Take a release, the client of each speaker, and the client of all other speakers."""
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
    """Speak with the model of one release.

    Attributes:
        name: What tables call it.
        speakers: Gives a speaker's network.
        kind: What it is in a table.
    """

    name: str
    speakers: Speakers
    kind: Kind = "voice"

    def say(self, real: Real) -> Utterance:
        """Say the text of a clip in its speaker's voice.

        Of the clip's sound only the length counts: a voice that has not stopped at twice that is
        cut off.
        """
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


def open_voices(folder: Path, data: Path | None) -> tuple[Corpus, list[Voice], str]:
    """Open a finished run of speech.

    Args:
        folder: Of the run.
        data: Where its data set lies.

    Returns:
        The clips it was trained on and those it held out, its voices from the oldest release to
        the newest, and a line that says what they are.

    Raises:
        NoFinishedRunError: If there is no run, or it is not over.
        NotSpeechError: If it is one of another task.
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
    corpus = Corpus(run.config.data.dataset, held.train, held.test, model.mel, model.clips)
    record = msgspec.json.decode((folder / PARTITION_FILE).read_bytes(), type=PartitionRecord)
    clients = {client.owner: client.name for client in record.clients if client.owner}
    anybody = record.clients[0].name
    rounds = [int(path.name) for path in run.folder.releases.published()]
    voices: list[Voice] = [
        RunVoice(_name(release), Speakers(release, clients, anybody))
        for release in map(run.at, rounds)
    ]
    return corpus, voices, f"Voices are the releases that {folder.name} keeps"


def _name(run: FinishedRun) -> str:
    model = run.plan.model
    layers = model.layer_count if isinstance(model, TransformerTtsSettings) else 0
    return f"round {run.model_round}, {layers}+{layers} layers"
