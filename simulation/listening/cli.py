"""The subcommand ``sotto-simulate listen``: measures in place of listeners."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec

from privacy.foundation.flags import Flag
from simulation.commands.flags import WithData
from simulation.listening.defaults import GRIFFIN_LIM_ITERATIONS, RECOGNISER_EPOCHS


class Listening(WithData, frozen=True, kw_only=True):
    """A voice to listen to.

    Attributes:
        run: Folder of a finished run of speech.
        copy_synthesis: Listen to a data set's own clips, made again from their spectrograms,
            instead of a voice: espeak, ljspeech, an4, fsdd or recordings.
        to: Folder to write (default: RUN/listening, or runs/listening-SET).
        clips: Held-out clips to listen to.
        recogniser: Recogniser to use, trained and written if it is not there (default:
            recogniser.safetensors in the folder that is written).
        train_recogniser: Train the recogniser again even if it is there.
        epochs: Passes of the recogniser over the training clips, little more than a minute of a
            core for 700 clips.
        iterations: Steps of Griffin-Lim.
        vocoder: Folder of a finished run of task vocoder that makes the sound, not Griffin-Lim.
        bundle: Exported voice of the run to listen to as well, with the same vocoder as the others;
            give it once for each.
        json: Print the figures as JSON.
    """

    run: Annotated[Path | None, Flag("RUN", positional=True, one_of="voice")] = None
    copy_synthesis: Annotated[str | None, Flag("SET", one_of="voice")] = None
    to: Path | None = None
    clips: int = 16
    recogniser: Annotated[Path | None, Flag("FILE")] = None
    train_recogniser: bool = False
    epochs: int = RECOGNISER_EPOCHS
    iterations: int = GRIFFIN_LIM_ITERATIONS
    vocoder: Annotated[Path | None, Flag("RUN")] = None
    bundle: Annotated[list[Path], Flag("BUNDLE")] = msgspec.field(default_factory=list)
    json: bool = False


def listen(asked: Listening) -> int:
    """Measure what a voice says, between a ceiling and two floors."""
    from simulation.listening.commands import ListenRequest, listen_to_corpus, listen_to_run
    from simulation.listening.corpus import CorpusSettings
    from simulation.listening.recogniser_training import TrainingSettings
    from simulation.listening.table import markdown

    name, run = asked.copy_synthesis, asked.run
    request = ListenRequest(
        folder=asked.to or (run / "listening" if run else Path("runs") / f"listening-{name}"),
        clip_count=asked.clips,
        recogniser=asked.recogniser,
        with_training=asked.train_recogniser,
        training=TrainingSettings(epochs=asked.epochs),
        iterations=asked.iterations,
        vocoder=asked.vocoder,
        bundles=tuple(asked.bundle),
    )
    if run is not None:
        report = listen_to_run(run, asked.data_folder, request)
    elif request.bundles:
        raise ValueError("--bundle needs the folder of the run that the voice is from")
    else:
        report = listen_to_corpus(CorpusSettings(dataset=name or ""), asked.data_folder, request)
    if asked.json:
        sys.stdout.write(f"{msgspec.json.encode(report).decode()}\n")
    else:
        sys.stdout.write(markdown(report))
        sys.stdout.write(f"\n{request.folder}\n")
    return 0
