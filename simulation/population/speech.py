"""Make speakers clients of a voice, or deal one speaker's recordings to several.

The scored clips are drawn from each speaker before the deal. They stay the client's own if every
speaker is a client. Otherwise the released voice is scored on them: during training on every second
one (``valid``), at the end on the others (``test``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path

import torch

from edge_client.datasets.registry import load_speech
from edge_client.datasets.speech_examples import speech_examples
from edge_client.datasets.speech_set import Clip, SpeechSet
from models.settings.voice import TransformerTtsSettings
from simulation.config.data import DataSettings
from simulation.config.simulation import SimulationConfig
from simulation.population.deal_speech import HeldOut, by_ratio, by_speaker, equal_shards, hold_out
from simulation.population.examples import Examples
from simulation.population.partition_record import PartitionRecord, text_record
from simulation.population.population import Population, PopulationError, client_name

_TEST_SHARE = 0.1


def build_speech_population(config: SimulationConfig, path: Path | None) -> Population:
    """Load the configuration's recordings and deal them; the embedded set needs no path.

    Raises:
        DatasetError: If the data set cannot be loaded, or a recording is of no use.
        PartitionError: If there are too few clips to deal as asked.
        PopulationError: If model and partition do not go together.
    """
    data, model = config.data, config.model
    if not isinstance(model, TransformerTtsSettings):
        raise PopulationError('task "speech" needs model.family = "transformer_tts"')
    if model.speaker_size and data.partition != "users":
        raise PopulationError(
            f"model.speaker_size gives each client a voice of its own; with partition = "
            f'"{data.partition}" set it to 0, got {model.speaker_size}'
        )
    speech = load_speech(data.dataset, path, clip_settings=model.clips, text_settings=model.text)
    notes = _notes(speech, model)
    if model.speaker_size:
        speech = replace(speech, test=())
    population = population_of_clips(speech, data, lambda clips: speech_examples(clips, model))
    return replace(population, notes=[*population.notes, *notes])


def population_of_clips(
    speech: SpeechSet, data: DataSettings, examples: Callable[[Sequence[Clip]], Examples]
) -> Population:
    """Deal a data set's clips after drawing the scored ones; ``examples`` makes examples of clips.

    The publishers' own test clips are scored as others' examples.

    Raises:
        DatasetError: If a recording is of no use.
        PartitionError: If there are too few clips to deal as asked.
        PopulationError: If there are too few speakers, or too few clips to hold out as many.
    """
    held = held_out_clips(speech, data)
    dealt, own = _deal(held, data)
    names = {client_name(number): owner for number, owner in enumerate(dealt, start=1)}
    drawn = () if own else held.test
    others = {"valid": drawn[1::2], "test": (*drawn[::2], *speech.test)}
    return Population(
        clients={name: examples(dealt[owner]) for name, owner in names.items()},
        own_test={name: examples(own[owner]) for name, owner in names.items() if owner in own},
        held_out={
            split: {clip.name: examples([clip]) for clip in clips}
            for split, clips in others.items()
        },
        notes=speech.notes,
        partition=_record(data, names, dealt, own),
    )


def held_out_clips(speech: SpeechSet, data: DataSettings) -> HeldOut:
    """Return clips to train on and clips to score, of those that are used at all.

    Raises:
        PopulationError: If a speaker would keep none to train on, or there are too few speakers.
    """
    clips = _used(speech.clips, data)
    most = len(clips) - len({clip.speaker for clip in clips})
    tenth = min(round(_TEST_SHARE * len(clips)), most)
    count = tenth if data.held_out_clips is None else data.held_out_clips
    if count > most:
        raise PopulationError(
            f"data.held_out_clips must be <= {most}, so that of {len(clips)} clips every speaker "
            f"keeps one to train on, got {count}; a tenth would be {tenth}"
        )
    return hold_out(clips, count, generator=_generator(data))


def _used(clips: Sequence[Clip], data: DataSettings) -> list[Clip]:
    ordered = sorted(clips, key=lambda clip: clip.speaker)
    speakers = [list(own) for _, own in groupby(ordered, key=lambda clip: clip.speaker)]
    if data.partition == "users" and data.client_count is not None:
        if len(speakers) < data.client_count:
            raise PopulationError(
                f"speakers must be >= {data.client_count}, one for each client, got "
                f"{len(speakers)}; lower data.client_count"
            )
        speakers = sorted(speakers, key=len, reverse=True)[: data.client_count]
    return [clip for own in speakers for clip in islice(own, data.clips_per_speaker)]


def _deal(
    held: HeldOut, data: DataSettings
) -> tuple[Mapping[str, Sequence[Clip]], Mapping[str, Sequence[Clip]]]:
    """Return each client's clips to train on, and its own to be scored on, if they have owners."""
    match data.partition:
        case "users":
            own = by_speaker(held.test).clients if held.test else {}
            return by_speaker(held.train).clients, own
        case "ratio":
            return by_ratio(held.train, data.ratio or (), generator=_generator(data)).clients, {}
        case _:
            count = data.client_count or 1
            return equal_shards(held.train, count, generator=_generator(data)).clients, {}


def _generator(data: DataSettings) -> torch.Generator:
    return torch.Generator().manual_seed(data.seed)


def _notes(speech: SpeechSet, model: TransformerTtsSettings) -> list[str]:
    if not speech.test or not model.speaker_size:
        return []
    return [
        f"{len(speech.test)} test clips of the data set are not scored: nobody's vector fits those "
        "who speak in them"
    ]


def _record(
    data: DataSettings,
    names: Mapping[str, str],
    dealt: Mapping[str, Sequence[Clip]],
    own: Mapping[str, Sequence[Clip]],
) -> PartitionRecord:
    sizes = {name: (len(dealt[owner]), len(own.get(owner, ()))) for name, owner in names.items()}
    owners = dict(names) if data.partition == "users" else dict.fromkeys(names, "")
    record = PartitionRecord(
        dataset=data.dataset,
        partition=data.partition,
        seed=data.seed,
        unit="clips",
        clients=(),
    )
    return text_record(record, sizes, owners)
