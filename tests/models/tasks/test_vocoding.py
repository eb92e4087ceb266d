import math

import pytest
import torch
from torch import Tensor

from models.networks.registry import Network, WrongFamilyError, build_network
from models.plan.plan import TrainingSettings
from models.settings.audio import MelSettings
from models.settings.model import GruLmSettings
from models.settings.vocoder import VocoderSettings
from models.sound.mel import log_mel
from models.sound.spectral_distance import spectral_distance
from models.tasks.unusable_examples import UnusableExamplesError
from models.tasks.vocoding import Vocoding, cut_segments

RATE = MelSettings().sample_rate_hz
TASK = Vocoding()
TRAINING = TrainingSettings(optimiser="adam", learning_rate=0.003, batch_size=4)


def vocoder(segment_size: int = 2048, width: int = 16) -> Network:
    settings = VocoderSettings(
        width=width, hidden_size=2 * width, block_count=2, segment_size=segment_size
    )
    network = build_network(settings)
    network.initialise(torch.Generator().manual_seed(6))
    return network


def noise(segments: int, size: int = 2048) -> Tensor:
    return 0.1 * torch.randn(segments, size, generator=torch.Generator().manual_seed(7))


def vowel(seconds: float) -> Tensor:
    """Return a voice-like sound: harmonics of 140 Hz that swell and fade."""
    times = torch.arange(int(seconds * RATE)) / RATE
    parts = [torch.sin(2 * math.pi * 140 * n * times + n * n) / n for n in range(1, 25)]
    swell: Tensor = torch.sin(2 * math.pi * 2 * times) ** 2
    return 0.2 * swell * torch.stack(parts).sum(0)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (3, [[0, 1, 2, 0]]),
        (4, [[0, 1, 2, 3]]),
        (9, [[0, 1, 2, 3], [4, 5, 6, 7], [5, 6, 7, 8]]),
    ],
)
def test_segments_hold_every_sample_and_silence_only_after_short_sounds(
    length: int, expected: list[list[int]]
) -> None:
    assert cut_segments(torch.arange(length), 4).tolist() == expected


@pytest.mark.slow
def test_a_tiny_vocoder_learns_half_a_second_by_heart() -> None:
    network, segments = vocoder(width=32), cut_segments(vowel(0.5), 2048)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.015)

    for _ in range(70):
        loss, count, _ = TASK.loss(network, segments, None)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()

    assert count == 6
    # From 2.8.
    assert float(loss.detach()) < 0.75


def test_the_loss_is_the_distance_from_what_the_network_makes_of_the_mels() -> None:
    network, segments = vocoder(), noise(3)

    loss, count, state = TASK.loss(network, segments, None)

    with torch.no_grad():
        made = network(log_mel(segments, MelSettings()))
    parts = spectral_distance(made, segments, MelSettings())
    assert float(loss.detach()) == pytest.approx(float(torch.stack(parts).sum(0).mean()))
    assert (count, state) == (3, None)


def test_every_segment_is_read_once_in_an_order_that_the_generator_draws() -> None:
    examples = noise(9)

    def order(seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return list(TASK.batches(examples, TRAINING, vocoder(), generator))

    one = order(1)
    assert [len(batch) for batch in one] == [3, 3, 3]
    assert sorted(torch.cat(one).tolist()) == sorted(examples.tolist())
    assert torch.equal(torch.cat(one), torch.cat(order(1)))
    assert not torch.equal(torch.cat(one), torch.cat(order(2)))


def test_every_segment_is_scored_once_whatever_the_batch_size() -> None:
    network, users = vocoder(), [noise(5), vowel(0.5)[: 2 * 2048].view(2, 2048)]

    counts = [TASK.evaluate(network, users, batch_size=size) for size in (1, 64)]

    assert [one.token_count for one in counts] == [7, 7]
    assert counts[0].log_loss_sum == pytest.approx(counts[1].log_loss_sum, rel=1e-5)
    alone = [TASK.evaluate(network, [user], batch_size=64).log_loss_sum for user in users]
    assert counts[1].log_loss_sum == pytest.approx(sum(alone))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (noise(0), "at least 1 segment"),
        (torch.zeros(2, 2048), "must have sound, got silence alone"),
        (torch.full((1, 2048), math.nan), "must be finite"),
        (noise(2, size=4096), r"shape \(segments, 2048\)"),
        (noise(2).double(), "must be float32"),
        (noise(1)[0], r"shape \(segments, 2048\)"),
    ],
)
def test_what_is_no_sound_of_the_networks_is_refused(examples: Tensor, message: str) -> None:
    with pytest.raises(UnusableExamplesError, match=message):
        TASK.check(examples, vocoder())


def test_a_pause_between_sounds_can_be_learnt_from() -> None:
    examples = torch.cat([noise(1), torch.zeros(1, 2048)])

    TASK.check(examples, vocoder())
    loss, _, _ = TASK.loss(vocoder(), examples, None)

    assert loss.isfinite()


def test_another_family_is_refused() -> None:
    words = build_network(GruLmSettings(vocabulary_size=5, hidden_size=2))
    with pytest.raises(WrongFamilyError, match=r"set model\.family to vocoder"):
        TASK.check(noise(1), words)
