"""Turn the data set that a configuration names into its population, as the task needs it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from models.plugins.loaded import has_part
from models.plugins.parts import Part
from simulation.config.simulation import SimulationConfig
from simulation.population.characters import build_character_population
from simulation.population.images import build_image_population
from simulation.population.novel_clients import keep_novel_out
from simulation.population.population import Population, PopulationError
from simulation.population.rows import build_row_population
from simulation.population.sequences import build_sequence_population
from simulation.population.speech import build_speech_population
from simulation.population.text import build_text_population
from simulation.population.vocoder import build_vocoder_population


def build_population(config: SimulationConfig, path: Path | None) -> Population:
    """Load the configuration's data set, deal it to clients, and keep the novel ones out.

    Embedded data sets need no path.

    Raises:
        DatasetError: If the data set cannot be loaded.
        PartitionError: If there is too little to deal as asked.
        PopulationError: If nobody in it could train, or no data set is known for the task.
        VocabularyError: If the word list cannot be loaded.
    """
    return keep_novel_out(_dealt(config, path), config.data)


def _dealt(config: SimulationConfig, path: Path | None) -> Population:
    if config.task == "sequence":
        return build_sequence_population(config)
    build = _BUILDERS.get(config.task)
    if build is None and has_part(Part.TASKS, config.task):
        build = build_row_population
    if build is None:
        raise PopulationError(f'task "{config.task}" has no data sets')
    return build(config, path)


_BUILDERS: Mapping[str, Callable[[SimulationConfig, Path | None], Population]] = {
    "next_word": build_text_population,
    "next_character": build_character_population,
    "image_classification": build_image_population,
    "speech": build_speech_population,
    "vocoder": build_vocoder_population,
}
