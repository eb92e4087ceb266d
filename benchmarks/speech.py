"""Measure how fast a voice learns and speaks on one core.

Figures (``--json`` prints them as one object); all are processor time of one thread:

    versus_bare_loop        Frames a second of a device's round of preset ``speech-espeak`` over
                            those of a bare loop: the same network and loss, batches made
                            beforehand, torch's Adam, gradients clipped.
    step_ms                 A device's step: four clips of two to three seconds.
    rtf_small               Seconds to speak a second of sound with that voice, without Griffin-Lim;
                            ``griffin_lim_rtf`` is what 60 iterations of it add.
    rtf_paper_size          The same at the paper's size: hidden 384, 6 + 6 blocks, a frame a step.
    bytes_saved_fraction    What the paper's growth (6 layers in 6 stages over 120 rounds) saves of
                            a whole model's traffic; of the blocks alone in ``..._of_blocks``.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.parts.figures import benchmark_parser, show_figures
from edge_client.descent.compute import prepare_compute
from edge_client.training.local_round import LocalTrainer
from models.layers.dropout import use_generator
from models.listening.synthesis import synthesise
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network, voice_network
from models.networks.role_vectors import part_of
from models.networks.voice import TransformerTts
from models.plan.growth_traffic import (
    growing_and_fixed_bytes,
    traffic_share,
    traffic_share_of_model,
)
from models.plan.plan import Plan, download_schema
from models.settings.growth import GrowthSettings
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.sound.griffin_lim import sound_of_mel
from models.tasks.speech import Speech
from models.tasks.speech_examples import SpeechBatch, SpeechClip, SpeechExamples
from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig, config_from, read_tables

PRESET = "speech-espeak"
PAPER = GrowthSettings(target_layer_count=6, stage_count=6, round_count=120)
TEXT_LENGTH = 45
SPOKEN_S = 2.0


def clips(settings: TransformerTtsSettings, count: int) -> SpeechExamples:
    """Return noise of the lengths of the embedded voices' sentences."""
    draws = torch.Generator().manual_seed(0)
    step = settings.reduction_factor
    return SpeechExamples.of(
        SpeechClip(
            settings.mel_mean + torch.randn(frames * step, settings.mel.mel_count, generator=draws),
            torch.randint(1, settings.text.symbol_count, (TEXT_LENGTH,), generator=draws),
        )
        for frames in torch.randint(160 // step, 280 // step, (count,), generator=draws).tolist()
    )


def timed(work: Callable[[], object]) -> float:
    """Return the processor time of some work in seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def voice(settings: TransformerTtsSettings) -> TransformerTts:
    """Return a fresh voice."""
    network = voice_network(build_network(settings))
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network


def training(
    config: SimulationConfig, settings: TransformerTtsSettings, *, clip_count: int, repeats: int
) -> dict[str, float]:
    """Let a device and a bare loop train in turn on the same clips, and compare the best times."""
    examples = clips(settings, clip_count)
    plan = make_plan(config, "0" * 32, cohort_size=1, vocabulary=None)
    trainer = LocalTrainer(plan)
    received = part_of(
        initial_parameters(settings, seed=1), schema_of(settings), download_schema(plan)
    )
    bare = BareLoop(settings, plan, examples)
    device_s, bare_s = [], []
    for number in range(1, repeats + 1):
        device_s.append(
            timed(
                lambda number=number: trainer.train(  # type: ignore[misc]  # bound now
                    received, examples, round_number=number, client_name="device-0001"
                )
            )
        )
        bare_s.append(timed(bare.round))
    epochs = plan.training.local_epochs
    frames = epochs * len(examples.frames)
    return {
        "versus_bare_loop": min(bare_s) / min(device_s),
        "frames_per_s": frames / min(device_s),
        "bare_frames_per_s": frames / min(bare_s),
        "step_ms": 1e3 * min(device_s) / (epochs * len(bare.batches)),
    }


class BareLoop:
    """Train as a first script would, with everything at hand before the clock starts."""

    def __init__(
        self, settings: TransformerTtsSettings, plan: Plan, examples: SpeechExamples
    ) -> None:
        """Make the network, torch's Adam and the batches."""
        self.task = Speech()
        self.epochs = plan.training.local_epochs
        self.network = voice(settings).train()
        use_generator(self.network, torch.Generator().manual_seed(1))
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=1e-3, fused=True)
        self.batches: list[SpeechBatch] = list(
            self.task.batches(
                examples, plan.training, self.network, torch.Generator().manual_seed(1)
            )
        )

    def round(self) -> None:
        """Take as many steps as a device does in a round."""
        for batch in self.epochs * self.batches:
            loss, _, _ = self.task.loss(self.network, batch, None)
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()


def speaking(settings: TransformerTtsSettings, *, repeats: int) -> dict[str, float]:
    """Return the seconds that a second of sound takes: the voice's, and Griffin-Lim's."""
    network = voice(settings)
    with torch.no_grad():
        network.head.stop.weight.zero_()
        network.head.stop.bias.fill_(-1)
    draws, phases = torch.Generator().manual_seed(0), np.random.default_rng(0)
    symbols = torch.randint(1, settings.text.symbol_count, (TEXT_LENGTH,), generator=draws)
    frames_per_s = settings.mel.sample_rate_hz / settings.mel.hop_size
    steps = settings.steps_of(round(SPOKEN_S * frames_per_s))
    seconds = steps * settings.reduction_factor / frames_per_s

    def speak() -> torch.Tensor:
        return synthesise(network, symbols, generator=draws, longest_steps=steps).mel

    mel = speak().numpy()
    voice_s = min(timed(speak) for _ in range(repeats))
    sound_s = min(
        timed(lambda: sound_of_mel(mel, settings.mel, draws=phases)) for _ in range(repeats)
    )
    return {"rtf": voice_s / seconds, "griffin_lim_rtf": sound_s / seconds}


def saved(settings: TransformerTtsSettings, growth: GrowthSettings) -> dict[str, float]:
    """Return the share of traffic that growth saves."""
    growing, fixed = growing_and_fixed_bytes(settings, schema_of(settings))
    of_model = traffic_share_of_model(growth, growing_bytes=growing, fixed_bytes=fixed)
    return {
        "bytes_saved_fraction": float(1 - of_model),
        "bytes_saved_fraction_of_blocks": float(1 - traffic_share(growth)),
    }


def measure(*, quick: bool) -> dict[str, float]:
    """Measure everything."""
    config = config_from(read_tables(PRESET), PRESET)
    small = config.model
    if not isinstance(small, TransformerTtsSettings):
        raise TypeError(f"{PRESET} must train a voice, got {type(small).__name__}")
    prepare_compute("cpu", threads=1, model=small)
    repeats = 3 if quick else 5
    learnt = training(config, small, clip_count=24 if quick else 96, repeats=repeats)
    spoken = speaking(small, repeats=repeats)
    paper = TransformerTtsSettings()
    return {
        **learnt,
        "rtf_small": spoken["rtf"],
        "griffin_lim_rtf": spoken["griffin_lim_rtf"],
        "rtf_paper_size": speaking(paper, repeats=1 if quick else 3)["rtf"],
        **saved(paper, PAPER),
    }


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="fewer repeats (under a minute)")
    given = parser.parse_args()
    figures = measure(quick=given.quick)
    show_figures(figures, "Speech", as_json=given.json)


if __name__ == "__main__":
    main()
