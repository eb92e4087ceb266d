"""Make sound with the vocoder that a finished run trained."""

from pathlib import Path

import torch
from torch import Tensor

from models.networks.registry import vocoder_network
from models.settings.audio import MelSettings
from models.settings.vocoder import VocoderSettings
from simulation.config.run_files import read_run_file
from simulation.listening.voices import Vocoder
from simulation.population.partition_record import PARTITION_FILE, PartitionRecord
from simulation.understanding.finished_run import open_run


class NotVocoderError(ValueError):
    """Raised when a run has no vocoder for these spectrograms."""


def open_vocoder(folder: Path, mel: MelSettings) -> Vocoder:
    """Return the vocoder of a finished run for these spectrograms, in float32, without randomness.

    Raises:
        NoFinishedRunError: If there is no run, or it is not over.
        NotVocoderError: If it is one of another task, or of other spectrograms.
    """
    run = open_run(folder)
    model = run.config.model
    if not isinstance(model, VocoderSettings):
        raise NotVocoderError(
            f'a vocoder is a run of task "vocoder", {folder} is of task "{run.config.task}"'
        )
    if model.mel != mel:
        raise NotVocoderError(
            f"the vocoder in {folder} makes sound of other spectrograms: its model.mel must be "
            f"{mel}, got {model.mel}"
        )
    record = read_run_file(folder / PARTITION_FILE, PartitionRecord)
    network = vocoder_network(run.network_of(record.clients[0].name))

    @torch.inference_mode()
    def sound_of(spectrogram: Tensor) -> Tensor:
        made: Tensor = network(spectrogram.float().unsqueeze(0))
        return made[0]

    return sound_of
