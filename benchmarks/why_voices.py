"""Show why several voices that learn together are understood or not, one thing at a time.

One learner has the clips of the voices that `sotto-simulate voice-start` has; networks that differ
in how attention finds its place, in which frames a step is fed, or in what they read (letters or
espeak-ng's phonemes) learn from them for as many passes each; one learns for three times as many,
and one is the mean of a client for each voice. A recogniser that learnt from the same clips then
reads the held-out ones, said twice: with the true frames before each step and at the true pace
(*taught*), as in training, and as a voice speaks, from the text alone (*alone*).

    python -m benchmarks.why_voices --data DATA --work WORK --out docs/results

A command that was stopped goes on from WORK, by the pass. Figures (``--json`` prints them as one
object), for each recipe:

    RECIPE_taught   Character error rate when taught.
    RECIPE_alone    Character error rate alone.
    RECIPE_ended    Share of texts that the voice ended by itself.
    real            Character error rate on the clips themselves.

``--quick`` has 24 sentences a voice and 2 passes: mechanics. Needs the extra speech-demo; DATA
holds ``reddit_goemotions``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.voice_federation import averaged_voices
from benchmarks.parts.voice_phonemes import in_phonemes, letters_of
from benchmarks.tables.report import BY_HAND
from edge_client.descent.compute import prepare_compute
from models.listening.edit_distance import ReadingErrors, reading_errors
from models.listening.heard_letters import heard_letters
from models.listening.recogniser import RecogniserSettings, SpeechRecogniser
from models.listening.synthesis import synthesise
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, voice_network
from models.networks.voice import TransformerTts
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech_examples import SpeechClip, SpeechExamples
from simulation.config.simulation import config_from, read_tables
from simulation.listening.recogniser_file import load_recogniser, save_recogniser
from simulation.listening.recogniser_training import (
    LabelledMel,
    TrainingSettings,
    train_recogniser,
)
from simulation.starting.texts import parse_text
from simulation.starting.voice_clips import VoiceClips, read_voices
from simulation.starting.voice_training import VoiceRecipe, learn_voices, over_passes

NAME = "why-voices"
PRESET = "speech-espeak"
_JUDGED_OF_A_VOICE = 4
_FED = {"aligner_size": 0, "mel_prenet_size": 128, "prenet_dropout": 0.1, "guide_strength": 100.0}


class Recipe(NamedTuple):
    """What is trained.

    Attributes:
        name: In figures.
        says: In the table.
        changes: Settings that differ from the preset's.
        times: How many times as many passes as the others.
        phonemes: Whether it reads those, not letters.
        averaged: Whether each voice is a client of a federation.
    """

    name: str
    says: str
    changes: Mapping[str, float] = {}
    times: int = 1
    phonemes: bool = False
    averaged: bool = False


RECIPES = (
    Recipe(
        "published",
        "attention alone, as published",
        {**_FED, "prenet_dropout": 0.5, "guide_strength": 1.0},
    ),
    Recipe("diagonal", "attention drawn to the diagonal", _FED),
    Recipe("own", "the same, half of the steps fed own frames", {**_FED, "own_frame_share": 0.5}),
    Recipe("aligner", "an aligner, no step fed frames"),
    Recipe("phonemes", "the same, phonemes instead of letters", phonemes=True),
    Recipe("averaged", "an aligner, twelve clients instead of one learner", averaged=True),
    Recipe("longer", "an aligner, three times as many passes", times=3),
)


class Heard(NamedTuple):
    """What the recogniser made of one recipe's voices: three shares."""

    taught: float
    alone: float
    ended: float


def main() -> None:
    """Train every recipe, let the recogniser read them, print and write the figures."""
    parser = benchmark_parser(__doc__, quick="24 sentences a voice, 2 passes")
    parser.add_argument("--data", type=Path, required=True, help="folder with reddit_goemotions")
    parser.add_argument("--work", type=Path, required=True, help="folder to work and go on in")
    parser.add_argument("--out", type=Path, help=f"folder to write {NAME}.json and .md to")
    arguments = parser.parse_args()
    prepare_compute("cpu", threads=1)
    sentences, passes, epochs = (24, 2, 2) if arguments.quick else (240, 8, 30)
    clips = read_voices(
        _settings({}),
        sentences_per_voice=sentences,
        texts=[parse_text(f"reddit={arguments.data}")],
        recordings=(),
    )
    judge = _recogniser(arguments.work / "recogniser.safetensors", clips, epochs)
    heard = {
        recipe.name: _heard(recipe, clips, passes * recipe.times, judge, arguments.work)
        for recipe in RECIPES
    }
    figures = {
        f"{name}_{what}": value
        for name, found in heard.items()
        for what, value in found._asdict().items()
    }
    figures["real"] = _real(clips, judge)
    if arguments.out is not None:
        _write(arguments.out, figures, passes, len(clips.examples))
    show_figures(figures, "Voices", as_json=arguments.json)


def _settings(changes: Mapping[str, float]) -> TransformerTtsSettings:
    model = config_from(read_tables(PRESET), PRESET).model
    assert isinstance(model, TransformerTtsSettings)
    return msgspec.structs.replace(model, **changes)


def _voices(
    recipe: Recipe, clips: VoiceClips, model: TransformerTtsSettings, passes: int, work: Path
) -> Iterator[TransformerTts]:
    """Yield each voice's network, as it is after all passes."""
    if recipe.averaged:
        yield from averaged_voices(PRESET, clips, passes, work / recipe.name)
        return
    training = config_from(read_tables(PRESET), PRESET).training
    described = VoiceRecipe(
        model=model,
        training=over_passes(training, passes, batch_size=8, learning_rate=training.learning_rate),
        epochs=passes,
        seed=1,
        voices=clips.voices,
        clips_sha256=clips.sha256,
    )
    learnt = learn_voices(
        described,
        clips,
        work / f"{recipe.name}.pt",
        lambda number, loss: print(f"{recipe.name}: pass {number}, loss {loss:.3f}", flush=True),
    )
    network = voice_network(build_network(model))
    load_parameters(network, schema_of(model), learnt.parameters)
    assert network.speaker is not None
    for vector in learnt.vectors:
        network.speaker.vector.data.copy_(vector)
        yield network.eval()


def _recogniser(path: Path, clips: VoiceClips, epochs: int) -> SpeechRecogniser:
    corpus = f"{clips.sha256}, {epochs} epochs"
    if path.exists():
        return load_recogniser(path, corpus=corpus)
    network = train_recogniser(
        [
            LabelledMel(str(place), clip.frames.t().contiguous(), letters_of(clip))
            for place, clip in enumerate(map(clips.examples.clip, range(len(clips.examples))))
        ],
        network=RecogniserSettings(),
        training=TrainingSettings(epochs=epochs),
        epoch_finished=lambda epoch, loss: print(
            f"recogniser: epoch {epoch}, loss {loss:.3f}", flush=True
        ),
    )
    save_recogniser(path, network, corpus=corpus)
    return network


def _heard(
    recipe: Recipe, clips: VoiceClips, passes: int, judge: SpeechRecogniser, work: Path
) -> Heard:
    model = _settings(recipe.changes)
    read, model = in_phonemes(clips, model) if recipe.phonemes else (clips, model)
    taught, alone, ended = ReadingErrors(), ReadingErrors(), []
    networks = _voices(recipe, read, model, passes, work)
    for network, own, letters in zip(networks, read.held_out, clips.held_out, strict=True):
        for clip, written in zip(_judged(own), _judged(letters), strict=True):
            text = heard_letters(letters_of(written))
            taught += reading_errors(text, judge.read(_taught(network, clip)))
            spoken = synthesise(network, clip.symbols)
            alone += reading_errors(text, judge.read(spoken.mel.t().contiguous()))
            ended.append(spoken.has_ended)
    return Heard(taught.rate, alone.rate, sum(ended) / len(ended))


@torch.no_grad()
def _taught(network: TransformerTts, clip: SpeechClip) -> Tensor:
    """Return log-mels, ``(mel, frames)``, with the true frames before each step."""
    everywhere = torch.ones(1, len(clip.frames), dtype=torch.bool)
    right = network.normalised(clip.frames).unsqueeze(0)
    prediction = network(clip.symbols.unsqueeze(0), right, everywhere)
    return network.log_mels(prediction.after)[0].t().contiguous()


def _real(clips: VoiceClips, judge: SpeechRecogniser) -> float:
    errors = ReadingErrors()
    for own in clips.held_out:
        for clip in _judged(own):
            heard = judge.read(clip.frames.t().contiguous())
            errors += reading_errors(heard_letters(letters_of(clip)), heard)
    return errors.rate


def _judged(own: SpeechExamples) -> Iterator[SpeechClip]:
    """Yield some of a voice's held-out clips: plain sentences and natural ones."""
    return map(own.clip, range(0, len(own), -(-len(own) // _JUDGED_OF_A_VOICE)))


def _write(out: Path, figures: Mapping[str, float], passes: int, clip_count: int) -> None:
    command = "python -m benchmarks.why_voices --data DATA --work WORK --out docs/results"
    document = {"command": command, "passes": passes, "clips": clip_count, "figures": figures}
    (out / f"{NAME}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    rows = [
        f"| {recipe.says} | {figures[f'{recipe.name}_taught']:.3f} | "
        f"{figures[f'{recipe.name}_alone']:.3f} | {figures[f'{recipe.name}_ended']:.0%} |"
        for recipe in RECIPES
    ]
    page = out / f"{NAME}.md"
    by_hand = page.read_text(encoding="utf-8").partition(BY_HAND)[2] if page.exists() else ""
    lines = [
        "# Why several voices are understood, or not",
        "",
        f"Made by `{command}`: twelve espeak-ng voices, {clip_count:,} clips, one learner and "
        f"{passes} passes where nothing else is said, one seed. Character error rate of a "
        "recogniser on "
        f"held-out clips ({figures['real']:.3f} on the clips themselves), taught with the true "
        "frames and pace as in training, and alone, as a voice speaks.",
        "",
        "| recipe | taught | alone | ended by itself |",
        "| --- | ---: | ---: | ---: |",
        *rows,
    ]
    page.write_text("\n".join(lines) + "\n" + BY_HAND + by_hand, encoding="utf-8")


if __name__ == "__main__":
    main()
