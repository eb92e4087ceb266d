"""Make sound by the vocoder of a finished run."""

from pathlib import Path

import torch
from torch import Tensor

from models.audio_settings import MelSettings
from models.model_settings import schema_of
from models.parameters import load_parameters
from models.personalisation_settings import GlobalSettings
from models.registry import build_network, vocoder_network
from models.vocoder import Vocoder
from models.vocoder_settings import VocoderSettings
from simulation.understanding.finished_run import open_run


class WrongVocoderError(ValueError):
    """Raised when a run's vocoder cannot make the sound that is asked for; says why."""


class NeuralVocoder:
    """Make sound by a trained network, in one pass."""

    def __init__(self, network: Vocoder) -> None:
        """Take a trained network."""
        self._network = network.eval()

    @torch.no_grad()
    def __call__(self, mel: Tensor) -> Tensor:
        """Return sound, shape ``((frames - 1) * hop_size,)``, of ``(mel, frames)``."""
        sound: Tensor = self._network(mel.float().unsqueeze(0))
        return sound[0]


def open_vocoder(folder: Path, mel: MelSettings) -> NeuralVocoder:
    """Open the vocoder of a finished run.

    Args:
        folder: Of the run.
        mel: The spectrograms that it is to make sound of.

    Raises:
        NoFinishedRunError: If there is no run, or it is not over.
        WrongVocoderError: If it is one of another task, reads other spectrograms, or has no model
            for everyone.
    """
    run = open_run(folder)
    model = run.config.model
    if not isinstance(model, VocoderSettings):
        raise WrongVocoderError(
            f'a vocoder must be a run of task "vocoder", {folder} is of task "{run.config.task}"'
        )
    if not isinstance(run.config.personalisation, GlobalSettings):
        raise WrongVocoderError(
            f"a vocoder must be the same for everyone, {folder} has method "
            f'"{run.config.personalisation.method}"; train one with method "global"'
        )
    if model.mel != mel:
        raise WrongVocoderError(
            f"the vocoder in {folder} must read the voice's spectrograms, {mel}, got {model.mel}; "
            "train it with the voice's model.mel"
        )
    network = vocoder_network(build_network(model))
    load_parameters(network, schema_of(model), run.released)
    return NeuralVocoder(network)
