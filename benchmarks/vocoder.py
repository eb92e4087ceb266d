"""Compare a federated vocoder with Griffin-Lim on clips that it was not trained on.

Both make sound of the real clips' own mel spectrograms. ``--run`` names a finished run of preset
``vocoder-espeak``; without it, one is trained here: the preset, or a fifth of it with ``--quick``.

Figures (``--json`` prints them as one object), for ``neural`` and ``griffin_lim`` (60 iterations);
lower is better in all of them:

    convergence, log_amplitude, mel    The parts of ``models.sound.spectral_distance``, mean over
    clips.
        The mel spectrogram ends at 8 kHz: above, Griffin-Lim has nothing, and the vocoder what it
        learnt; ``log_amplitude`` counts that, the others hardly do.
    distance                           Their sum: what the vocoder was trained on.
    rtf                                Processor seconds for a second of sound, one thread.

``versus_griffin_lim`` is ``neural_distance`` over ``griffin_lim_distance``; ``unseen_`` figures are
of four voices that no client has.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.parts.figures import benchmark_parser, show_figures
from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.registry import load_speech
from edge_client.datasets.speech.espeak import VOICES, espeak_recordings
from edge_client.datasets.speech_set import Clip, gather
from edge_client.descent.compute import prepare_compute
from models.settings.vocoder import VocoderSettings
from models.sound.mel import log_mel
from models.sound.spectral_distance import spectral_distance
from models.text.speech_alphabet import SpeechTextSettings
from simulation.config.simulation import config_from, read_tables
from simulation.listening.run_vocoder import open_vocoder
from simulation.listening.voices import GriffinLim
from simulation.population.dealing import build_population
from simulation.population.speech import held_out_clips
from simulation.runs.runner import RunOptions, run_simulation

PRESET = "vocoder-espeak"
QUICK = {"clips_per_speaker": 4}
QUICK_ROUNDS = 4
UNSEEN_CLIPS = 2


def trained(folder: Path, *, quick: bool) -> Path:
    """Train the preset in a folder."""
    tables = read_tables(PRESET)
    if quick:
        tables = {**tables, "data": tables["data"] | QUICK}
        tables["rounds"] = tables["rounds"] | {"cap": QUICK_ROUNDS}
    config = config_from(tables, PRESET)
    population = build_population(config, None)
    run_simulation(config, tables, population, folder, RunOptions())
    return folder


def clips(model: VocoderSettings) -> tuple[list[Tensor], list[Tensor]]:
    """Return what the preset's clients hold out, and clips of voices that none of them has."""
    config = config_from(read_tables(PRESET), PRESET)
    speech = load_speech(
        config.data.dataset, clip_settings=model.clips, text_settings=SpeechTextSettings()
    )
    held = held_out_clips(speech, config.data)
    known = {clip.speaker for clip in held.train}
    others = tuple(voice for voice in VOICES if voice not in known)
    unseen = gather(
        espeak_recordings(others, UNSEEN_CLIPS),
        clip_settings=model.clips,
        text_settings=SpeechTextSettings(),
    )
    return read(held.test, model), read(unseen.clips, model)


def read(found: Sequence[Clip], model: VocoderSettings) -> list[Tensor]:
    """Return sounds, each cut to whole hops."""
    hop, rate = model.mel.hop_size, model.mel.sample_rate_hz
    sounds = [read_clip(clip, model.clips, sample_rate_hz=rate) for clip in found]
    return [sound[: len(sound) // hop * hop] for sound in sounds]


def compare(
    name: str, make: Callable[[Tensor], Tensor], sounds: Sequence[Tensor], model: VocoderSettings
) -> dict[str, float]:
    """Return how far copies are from the sounds, and what they took."""
    distances, busy_s = [], 0.0
    for sound in sounds:
        mel = log_mel(sound, model.mel)
        start = time.process_time()
        made = make(mel)
        busy_s += time.process_time() - start
        distance = spectral_distance(made[None], sound[None], model.mel)
        distances.append(torch.cat([*distance, distance.total]))
    means = torch.stack(distances).mean(0).tolist()
    parts = zip(("convergence", "log_amplitude", "mel", "distance"), means, strict=True)
    seconds = sum(map(len, sounds)) / model.mel.sample_rate_hz
    return {
        **{f"{name}_{part}": value for part, value in parts},
        f"{name}_rtf": busy_s / seconds,
    }


def measure(run: Path) -> dict[str, float]:
    """Measure everything."""
    config = config_from(read_tables(PRESET), PRESET)
    model = config.model
    if not isinstance(model, VocoderSettings):
        raise TypeError(f"{PRESET} must train a vocoder, got {type(model).__name__}")
    prepare_compute("cpu", threads=1, model=model)
    makers: dict[str, Callable[[Tensor], Tensor]] = {
        "neural": open_vocoder(run, model.mel),
        "griffin_lim": GriffinLim(model.mel),
    }
    figures: dict[str, float] = {}
    for prefix, sounds in zip(("", "unseen_"), clips(model), strict=True):
        for name, make in makers.items():
            figures |= compare(f"{prefix}{name}", make, sounds, model)
        figures[f"{prefix}versus_griffin_lim"] = (
            figures[f"{prefix}neural_distance"] / figures[f"{prefix}griffin_lim_distance"]
        )
    return figures


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="train a fifth as long")
    parser.add_argument("--run", type=Path, help="folder of a finished run (default: train one)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(given.run or trained(Path(folder) / "run", quick=given.quick))
    show_figures(figures, "A vocoder", as_json=given.json)


if __name__ == "__main__":
    main()
