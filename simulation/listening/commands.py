"""The work of the subcommand ``listen`` once its arguments are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.listening.recogniser import RecogniserSettings, SpeechRecogniser
from simulation.figures.progress import tell
from simulation.listening.corpus import Corpus, CorpusSettings, open_corpus
from simulation.listening.defaults import GRIFFIN_LIM_ITERATIONS
from simulation.listening.recogniser_file import load_recogniser, save_recogniser
from simulation.listening.recogniser_training import TrainingSettings, train_recogniser
from simulation.listening.session import error_rate, listen
from simulation.listening.table import ListeningReport, VoiceFigures
from simulation.listening.voices import GriffinLim, Newcomers, Vocoder, Voice

RECOGNISER_FILE = "recogniser.safetensors"


@dataclass(frozen=True, kw_only=True)
class ListenRequest:
    """The request of ``listen``.

    Attributes:
        folder: Where everything is written.
        recogniser: The recogniser's file; None for one in ``folder``.
        with_training: Whether to train it even if there is one.
        vocoder: Run whose vocoder makes the sound; None for Griffin-Lim.
    """

    folder: Path
    clip_count: int
    training: TrainingSettings
    recogniser: Path | None = None
    with_training: bool = False
    iterations: int = GRIFFIN_LIM_ITERATIONS
    vocoder: Path | None = None
    bundles: tuple[Path, ...] = ()

    @property
    def recogniser_path(self) -> Path:
        """Return the recogniser's file, present or not."""
        return self.recogniser or self.folder / RECOGNISER_FILE


def listen_to_corpus(
    settings: CorpusSettings, data: Path | None, request: ListenRequest
) -> ListeningReport:
    """Listen to a corpus alone: the ceiling and the floors that voices stand between."""
    notes = ["No voice is under test: ceiling and floors only"]
    return _listen(open_corpus(settings, data), [], request, notes)


def listen_to_run(run: Path, data: Path | None, request: ListenRequest) -> ListeningReport:
    """Listen to a finished run's voice: a row for each release kept, and one for novel speakers."""
    from simulation.listening.bundle_voices import open_bundle
    from simulation.listening.run_voices import open_voices

    corpus, voices, newcomers, notes = open_voices(run, data)
    exported = [open_bundle(bundle, corpus.mel) for bundle in request.bundles]
    return _listen(corpus, [*voices, *exported], request, notes, newcomers)


def ready_recogniser(corpus: Corpus, request: ListenRequest) -> SpeechRecogniser:
    """Return the corpus's recogniser from its file, or train it and write the file.

    Raises:
        RecogniserFileError: If the file is damaged, or of another corpus.
    """
    path = request.recogniser_path
    if path.exists() and not request.with_training:
        return load_recogniser(path, corpus=corpus.digest)
    clips = corpus.labelled(corpus.train)
    tell([f"training a recogniser on {len(clips)} clips, {request.training.epochs} epochs"])
    recogniser = train_recogniser(
        clips,
        network=RecogniserSettings(mel_count=corpus.mel.mel_count),
        training=request.training,
        epoch_finished=_tell_epoch(request.training.epochs),
    )
    save_recogniser(path, recogniser, corpus=corpus.digest)
    tell([f"{path}: character error rate {error_rate(recogniser, corpus):.3f} on held-out clips"])
    return recogniser


def _listen(
    corpus: Corpus,
    voices: list[Voice],
    request: ListenRequest,
    notes: list[str],
    newcomers: Newcomers | None = None,
) -> ListeningReport:
    vocoder, name = _vocoder(corpus, request)
    return listen(
        corpus,
        voices,
        request.folder,
        recogniser=ready_recogniser(corpus, request),
        vocoder=vocoder,
        vocoder_name=name,
        clip_count=request.clip_count,
        newcomers=newcomers,
        notes=notes,
        voice_finished=_tell_voice,
    )


def _vocoder(corpus: Corpus, request: ListenRequest) -> tuple[Vocoder, str]:
    """Return the vocoder and its name in tables."""
    if request.vocoder is not None:
        from simulation.listening.run_vocoder import open_vocoder

        return open_vocoder(request.vocoder, corpus.mel), f"the vocoder of {request.vocoder.name}"
    name = f"Griffin-Lim ({request.iterations} iterations)"
    return GriffinLim(corpus.mel, request.iterations), name


def _tell_epoch(epochs: int) -> Callable[[int, float], None]:
    def told(epoch: int, loss: float) -> None:
        tell([f"recogniser: epoch {epoch}/{epochs}: {loss:.3f} nats a character"])

    return told


def _tell_voice(figures: VoiceFigures) -> None:
    tell(
        [
            f"{figures.voice}: MCD {figures.mcd_db:.2f} dB, "
            f"character error rate {figures.character_error_rate:.3f}"
        ]
    )
