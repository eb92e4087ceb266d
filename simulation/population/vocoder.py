"""Make speakers clients of a vocoder, or deal one speaker's recordings to several."""

from pathlib import Path

from edge_client.datasets.registry import load_speech
from edge_client.datasets.sound_segments import sound_segments
from models.settings.vocoder import VocoderSettings
from models.text.speech_alphabet import SpeechTextSettings
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population, PopulationError
from simulation.population.speech import population_of_clips


def build_vocoder_population(config: SimulationConfig, path: Path | None) -> Population:
    """Load the configuration's recordings, deal them, and cut them into segments.

    The embedded set needs no path.

    Raises:
        DatasetError: If the data set cannot be loaded, or a recording is of no use.
        PartitionError: If there are too few clips to deal as asked.
        PopulationError: If the model is no vocoder, or there are too few speakers.
    """
    model = config.model
    if not isinstance(model, VocoderSettings):
        raise PopulationError('task "vocoder" needs model.family = "vocoder"')
    speech = load_speech(
        config.data.dataset, path, clip_settings=model.clips, text_settings=SpeechTextSettings()
    )
    return population_of_clips(speech, config.data, lambda clips: sound_segments(clips, model))
