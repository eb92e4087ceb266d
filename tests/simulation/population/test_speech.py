"""Speakers become clients of a voice, each with a vector of its own."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from edge_client.datasets.sound_file import SoundFile
from edge_client.datasets.speech_set import Clip, SpeechSet
from edge_client.datasets.text_set import DatasetError
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech_examples import SpeechExamples
from server.config.federation import ConfigError
from simulation.config.data import DataSettings
from simulation.config.overrides import parse_override
from simulation.config.simulation import (
    SimulationConfig,
    config_from,
    preset_text,
    read_tables,
    with_settings,
)
from simulation.figures.metrics import read_metrics
from simulation.population.dealing import build_population
from simulation.population.population import Population, PopulationError
from simulation.population.speech import population_of_clips
from simulation.runs.runner import RunOptions, run_simulation
from tests.edge_client.datasets.test_speech_examples import VOICE, record

TABLES: dict[str, Any] = {
    "seed": 1,
    "task": "speech",
    "model": msgspec.to_builtins(VOICE),
    "training": {"optimiser": "adam", "learning_rate": 0.01, "batch_size": 4},
    "privacy": {"mode": "none"},
    "aggregation": {"rule": "mean"},
    "rounds": {"cap": 2, "cohort_size": 2, "quorum": 1, "deadline_s": 60.0},
    "evaluation": {"kind": "public", "public_text": "valid", "keep_best": False},
}


def configured(model: dict[str, Any] | None = None, **data: object) -> SimulationConfig:
    return config_from(tables(model, **data), "test")


def tables(model: dict[str, Any] | None = None, **data: object) -> dict[str, Any]:
    named = {"dataset": "recordings", "partition": "users", **data}
    return {**TABLES, "model": {**TABLES["model"], **(model or {})}, "data": named}


@pytest.fixture
def voices(tmp_path: Path) -> Path:
    for speaker, count in (("ann", 10), ("bob", 20), ("cy", 5)):
        (tmp_path / "voices" / speaker).mkdir(parents=True)
        for number in range(count):
            record(
                tmp_path / "voices" / speaker,
                f"{number:02}",
                f"{speaker} {chr(ord('a') + number)}",
                seconds=0.3,
                pitch_hz=200.0 + 100 * len(speaker),
            )
    return tmp_path / "voices"


def said(examples: object) -> set[str]:
    assert isinstance(examples, SpeechExamples)
    texts = (examples.clip(place).symbols.tolist() for place in range(len(examples)))
    return {"".join(VOICE.text.alphabet[number - 1] for number in text) for text in texts}


def counts(population: Population) -> list[tuple[int, int]]:
    own = population.own_test
    return [
        (len(train), len(own[name]) if name in own else 0)
        for name, train in population.clients.items()
    ]


def test_every_speaker_is_a_client_and_holds_out_a_tenth_of_its_own(voices: Path) -> None:
    population = build_population(configured(), voices)

    # A tenth of 35 clips is 4 of them: 1, 2 and the fourth to the largest remainder.
    held = sum(own for _, own in counts(population))
    assert held == 4
    assert [train + own for train, own in counts(population)] == [10, 20, 5]
    for name, speaker in zip(population.clients, ("ann", "bob", "cy"), strict=True):
        spoken = said(population.clients[name])
        assert all(text.startswith(f" {speaker} ") for text in spoken)
        if name in population.own_test:
            assert not spoken & said(population.own_test[name])
    assert population.held_out == {"valid": {}, "test": {}}
    record = population.partition
    assert record is not None
    assert [client.owner for client in record.clients] == ["ann", "bob", "cy"]


def test_the_speakers_with_most_clips_are_kept_and_so_many_of_each(voices: Path) -> None:
    population = build_population(configured(client_count=2, clips_per_speaker=10), voices)

    assert [train + own for train, own in counts(population)] == [10, 10]
    spoken = said(population.clients["device-0001"]) | said(population.clients["device-0002"])
    assert {text[:4] for text in spoken} == {" ann", " bob"}


@pytest.mark.parametrize(
    ("deal", "sizes"),
    [({"partition": "iid", "client_count": 4}, [8, 8, 8, 7]), ({"ratio": [1, 2]}, [10, 21])],
)
def test_dealt_clips_are_scored_with_everyones_voice(
    voices: Path, deal: dict[str, Any], sizes: list[int]
) -> None:
    if "ratio" in deal:
        deal = {**deal, "partition": "ratio"}

    population = build_population(configured({"speaker_size": 0}, **deal), voices)

    assert sorted(train for train, _ in counts(population)) == sorted(sizes)
    assert not population.own_test
    valid, test = population.held_out["valid"], population.held_out["test"]
    assert (len(valid), len(test)) == (2, 2)
    assert not valid.keys() & test.keys()


def test_a_dealt_voice_is_followed_while_it_learns(voices: Path, tmp_path: Path) -> None:
    given = tables({"speaker_size": 0}, partition="ratio", ratio=[1, 2])
    config = config_from(given, "test")

    final = run_simulation(
        config, given, build_population(config, voices), tmp_path / "run", RunOptions()
    )

    rows = read_metrics(tmp_path / "run")
    assert all("valid_mel_l1" in row for row in rows)
    assert final["valid_mel_l1"] == rows[-1]["valid_mel_l1"]
    assert final["test_mel_l1"] != final["valid_mel_l1"]


PAPER_SIZES = {
    "": [2520] * 5,
    "-2": [2520] * 2,
    "-3": [2520] * 3,
    "-4": [2520] * 4,
    "-1-1-1": [4200] * 3,
    "-1-1-3": [2520, 2520, 7560],
    "-1-2-4": [1800, 3600, 7200],
    "-1-1-5": [1800, 1800, 9000],
    "-1-1-6": [1575, 1575, 9450],
    "-1-1-8": [1260, 1260, 10080],
}
"""Clips of each client in [FedDT-TTS] section 4: 2,520 whoever takes part, or 12,600 in a ratio."""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["fedt-ljspeech", "feddt-ljspeech"])
@pytest.mark.parametrize("split", PAPER_SIZES)
def test_a_whole_lj_speech_is_dealt_in_the_sizes_of_the_paper(family: str, split: str) -> None:
    tables = read_tables(family)
    if split:
        # What was a preset of its own says what to set instead.
        with pytest.raises(ConfigError, match=f"^preset {family}{split} is now") as told:
            read_tables(f"{family}{split}")
        base, *settings = shlex.split(str(told.value).partition(" is now ")[2])
        overrides = [parse_override(text) for text in settings if "=" in text]
        tables = with_settings(read_tables(base), overrides)
    config = config_from(tables, family)

    assert len(PAPER_SIZES[split]) == config.rounds.quorum
    population = population_of_clips(unread(13_100), config.data, lengths_as_examples)

    assert [len(own) for own in population.clients.values()] == PAPER_SIZES[split]
    assert {name: len(clips) for name, clips in population.held_out.items()} == {
        "valid": 250,
        "test": 250,
    }


def test_so_many_clips_are_scored_as_are_asked_for_and_no_more_than_there_are() -> None:
    def population(count: int) -> Population:
        data = DataSettings(
            dataset="ljspeech", partition="iid", client_count=1, held_out_clips=count
        )
        return population_of_clips(unread(325), data, lengths_as_examples)

    assert [len(population(1).held_out[split]) for split in ("valid", "test")] == [0, 1]
    assert [len(population(324).held_out[split]) for split in ("valid", "test")] == [162, 162]
    with pytest.raises(
        PopulationError, match=r"held_out_clips must be <= 324, .* got 500; a tenth would be 32"
    ):
        population(500)


def unread(count: int) -> SpeechSet:
    """Return one reader's clips, whose sound nobody can read."""
    clips = tuple(
        Clip(f"{number:05}", "lj", "a", SoundFile(Path("no-such.wav"))) for number in range(count)
    )
    return SpeechSet(clips, test=())


def lengths_as_examples(clips: Sequence[Clip]) -> torch.Tensor:
    """Return a token for each clip, as nobody trains on them."""
    return torch.arange(len(clips))


def test_settings_that_do_not_go_together_are_refused(voices: Path) -> None:
    with pytest.raises(PopulationError, match=r"speaker_size gives .* set it to 0, got 3"):
        build_population(configured(partition="iid", client_count=2), voices)
    with pytest.raises(PopulationError, match=r"speakers must be >= 4, .* got 3"):
        build_population(configured(client_count=4), voices)
    with pytest.raises(PopulationError, match=r'needs model\.family = "transformer_tts"'):
        wrong = {**tables(), "model": {"family": "char_lstm"}}
        build_population(config_from(wrong, "test"), voices)
    for data, says in (
        ({"ratio": [1, 2]}, "ratio belongs to partition"),
        ({"partition": "ratio"}, "ratio belongs to partition"),
        ({"partition": "ratio", "ratio": [0, 1]}, "whole numbers >= 1"),
        ({"partition": "ratio", "ratio": [1, 1], "client_count": 2}, "must be absent with ratio"),
        ({"clips_per_speaker": 1}, "clips_per_speaker must be >= 2, got 1"),
        ({"held_out_clips": 0}, "held_out_clips must be >= 1, got 0"),
        ({"partition": "dirichlet", "client_count": 2, "concentration": 1.0}, "must be one of"),
    ):
        with pytest.raises(ValueError, match=says):
            configured(**data)
    with pytest.raises(DatasetError, match="needs a path"):
        build_population(configured(), None)


def test_voices_learn_together_and_keep_who_they_are(voices: Path, tmp_path: Path) -> None:
    given = tables(client_count=2, clips_per_speaker=10)
    config = config_from(given, "test")
    population = build_population(config, voices)

    final = run_simulation(config, given, population, tmp_path / "run", RunOptions())

    rows = read_metrics(tmp_path / "run")
    assert float(rows[-1]["train_loss"] or 0) < float(rows[0]["train_loss"] or 0)
    for name in ("mel_l1", "stop_accuracy", "exact_stop"):
        assert {name, f"{name}_clients_mean", f"{name}_clients_worst_decile"} <= final.keys()
    assert "perplexity" not in " ".join(final)
    # Nine clips of each, whose frames are counted in both rounds.
    frames = sum(
        len(own.frames) for own in population.clients.values() if isinstance(own, SpeechExamples)
    )
    assert final["tokens"] == 2 * frames
    states = sorted((tmp_path / "run").glob("states/*/000002.bin"))
    assert len(states) == 2
    assert states[0].read_bytes() != states[1].read_bytes()


def test_the_embedded_voices_make_a_population() -> None:
    pytest.importorskip("espeakng_loader")
    given = read_tables("speech-espeak")
    given["data"] |= {"client_count": 2, "clips_per_speaker": 2}
    config = config_from(given, "speech-espeak")

    population = build_population(config, None)

    assert isinstance(config.model, TransformerTtsSettings)
    assert counts(population) == [(2, 0), (2, 0)]
    for own in population.clients.values():
        assert isinstance(own, SpeechExamples)
        # What espeak says is as loud and as wide as the settings take it to be.
        normal = (own.frames - config.model.mel_mean) / config.model.mel_std
        assert abs(float(normal.mean())) < 0.5
        assert 0.5 < float(normal.std()) < 2
        assert torch.equal(own.lengths[:, 0] % config.model.reduction_factor, torch.zeros(2).long())
    assert "speech-demo" in preset_text("speech-espeak")
