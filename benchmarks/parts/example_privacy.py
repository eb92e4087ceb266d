"""Time a step of local training with and without privacy for each example, and Opacus beside it.

All sides train the tied GRU-300 with 10,000 words on 20 sentences of 35 tokens, every sentence in
every step, on one thread: the plain step and the private one through the device's own trainer.
Processor time is counted, so that what else runs on the machine is not; the threads that draw
noise count in full.
"""

import time

import torch

from benchmarks.comparators.opacus_hooks import train_with_hooks
from edge_client.descent.compute import prepare_compute
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.tasks.text_streams import sentence_edges, sentence_window
from models.text.vocabulary import EOS
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.settings import NoNoise

MODEL = GruLmSettings(vocabulary_size=10_000, hidden_size=300)
SENTENCES = 20
TOKENS = 35
LEARNING_RATE = 0.05
PRIVACY = ExamplePrivacySettings(
    clipping_norm=1.0, noise_multiplier=1.0, sampling_rate=1.0, delta=1e-5
)
LARGEST_LOSS_DIFFERENCE = 0.01


def measure_example_privacy(step_count: int, repeats: int) -> dict[str, float]:
    """Run the three sides in turns and return the figures.

    Args:
        step_count: Steps of the plain and the private side in one turn; Opacus takes two.
        repeats: Turns; the best counts.
    """
    prepare_compute("cpu", 1)
    text = _text()
    best: dict[str, float] = {}
    losses: dict[str, float] = {}
    for _ in range(repeats):
        for name, (seconds, losses[name]) in {
            "plain": _train(_plan(None, step_count), text, step_count),
            "dpsgd": _train(_plan(PRIVACY, step_count), text, step_count),
            "opacus_hooks": _train_with_opacus(text, 2),
        }.items():
            best[name] = min(best.get(name, seconds), seconds)
    if max(losses.values()) > min(losses.values()) * (1 + LARGEST_LOSS_DIFFERENCE):
        raise SystemExit(f"the sides must have losses within 1 % of each other, got {losses}")
    return {
        **{f"{name}_step_s": seconds for name, seconds in best.items()},
        "dpsgd_slowdown": best["dpsgd"] / best["plain"],
        "opacus_hooks_slowdown": best["opacus_hooks"] / best["plain"],
    }


def _text() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(2, MODEL.vocabulary_size, (SENTENCES * TOKENS,), generator=generator)
    text[TOKENS - 1 :: TOKENS] = EOS
    return text


def _plan(privacy: ExamplePrivacySettings | None, step_count: int) -> Plan:
    """Return a plan whose every epoch is one step over the whole text."""
    return Plan(
        run="00" * 16,
        model=MODEL,
        schema_sha256=schema_of(MODEL).sha256.hex(),
        vocabulary=VocabularySettings(name="drawn", size=MODEL.vocabulary_size, sha256="00" * 32),
        training=TrainingSettings(
            learning_rate=LEARNING_RATE,
            local_epochs=step_count,
            batch_size=SENTENCES,
            bptt_steps=TOKENS,
            example_privacy=privacy,
        ),
        privacy=NoNoise(),
        cohort_size=1,
        seed=1,
    )


def _train(plan: Plan, text: torch.Tensor, step_count: int) -> tuple[float, float]:
    parameters = initial_parameters(MODEL, seed=0)
    started = time.process_time()
    result = LocalTrainer(plan).train(parameters, text, round_number=1, client_name="device-0001")
    return (time.process_time() - started) / step_count, result.mean_loss


def _train_with_opacus(text: torch.Tensor, step_count: int) -> tuple[float, float]:
    network = build_network(MODEL)
    load_parameters(network, schema_of(MODEL), initial_parameters(MODEL, seed=0))
    window = sentence_window(text, sentence_edges(text, TOKENS))
    seconds, loss = train_with_hooks(
        dict(network.state_dict()),
        window.inputs,
        window.targets,
        step_count=step_count,
        learning_rate=LEARNING_RATE,
        clipping_norm=PRIVACY.clipping_norm,
        noise_multiplier=PRIVACY.noise_multiplier,
    )
    return seconds / step_count, loss
