"""A federation of a start's voices: each is a client that keeps its own vector."""

from collections.abc import Iterator
from pathlib import Path

import torch

from models.networks.voice import TransformerTts
from models.tasks.speech_examples import SpeechExamples
from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.figures.metrics import Figures
from simulation.population.population import Population, client_name
from simulation.runs.runner import RunOptions, run_simulation
from simulation.starting.voice_clips import VoiceClips
from simulation.understanding.finished_run import open_run


class _Told:
    def round_finished(self, figures: Figures) -> None:
        print(f"averaged: round {figures['round']}, loss {figures['train_loss']:.3f}", flush=True)


def averaged_voices(
    preset: str, clips: VoiceClips, rounds: int, folder: Path
) -> Iterator[TransformerTts]:
    """Train each voice's client, a pass over its clips a round; yield the network of each voice.

    It begins with nothing learnt, and goes on from the folder.
    """
    voices = {client_name(place + 1): place for place in range(len(clips.voices))}
    population = Population(
        clients={name: _of_voice(clips, place) for name, place in voices.items()},
        held_out={"valid": {name: clips.held_out[place] for name, place in voices.items()}},
    )
    settings = (
        'start_from="none"',
        'personalisation={method="global"}',
        f"training.decay={{last_round={rounds}, final_share=0.05}}",
        "training.batch_size=8",
        f"data.client_count={len(voices)}",
        f"rounds.cap={rounds}",
        f"evaluation.every_rounds={rounds}",
    )
    tables = with_settings(read_tables(preset), [parse_override(one) for one in settings])
    run_simulation(
        config_from(tables, preset), tables, population, folder, RunOptions(reporter=_Told())
    )
    run = open_run(folder)
    for name in voices:
        network = run.network_of(name)
        assert isinstance(network, TransformerTts)
        yield network


def _of_voice(clips: VoiceClips, place: int) -> SpeechExamples:
    own = torch.nonzero(clips.speakers == place).flatten().tolist()
    return SpeechExamples.of(map(clips.examples.clip, own))
