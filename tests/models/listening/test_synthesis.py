"""A voice that speaks by itself: as all steps at once would, until it has learnt to stop."""

import math

import msgspec
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from models.listening.synthesis import synthesise
from models.networks.voice import TooLongError, TransformerTts
from models.settings.voice import TransformerTtsSettings
from models.tasks.speech import Speech
from models.tasks.speech_examples import SpeechBatch, SpeechClip, SpeechExamples
from models.text.speech_alphabet import encode_speech
from tests.models.tiny_voice import ALIGNED, TINY, voice

TEXT = torch.tensor([1, 20, 5, 13, 8, 6])


def never_stopping(network: TransformerTts) -> TransformerTts:
    with torch.no_grad():
        network.head.stop.weight.zero_()
        network.head.stop.bias.fill_(-1)
    return network


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "settings", [TINY, msgspec.structs.replace(TINY, norm="batch"), ALIGNED], ids=str
)
def test_steps_with_kept_keys_are_those_of_all_steps_at_once(
    settings: TransformerTtsSettings,
) -> None:
    # In float64: a rounding in the first step would grow from step to step.
    network = never_stopping(voice(settings)).double()

    spoken = synthesise(network, TEXT, longest_steps=7)

    with torch.no_grad():
        memory = network.encode(TEXT.unsqueeze(0))
        before = torch.zeros(1, 0, 5, dtype=torch.float64)
        for step in range(7):
            # Fed with all that was made so far; what the step itself makes does not matter.
            fed = network.fed(functional.pad(before, (0, 0, 0, 2)))
            values, attentions = network.decode(memory, fed)
            frames, _ = network.made(values)
            before = torch.cat([before, frames[:, 2 * step :]], dim=1)
        after = network.log_mels(network.postnet(before, torch.ones(1, 14).bool()))
    assert_close(spoken.mel, after[0], rtol=0, atol=1e-9)
    assert_close(spoken.attention, torch.cat(attentions), rtol=0, atol=1e-9)
    assert spoken.attention.shape == (2, 2, 7, 6)
    assert_close(spoken.attention.sum(3), torch.ones(2, 2, 7).double())
    assert not spoken.has_ended


def test_a_voice_stops_where_its_logit_says_so() -> None:
    network = voice()
    with torch.no_grad():
        network.head.stop.weight.zero_()
        network.head.stop.bias.fill_(1)

    spoken = synthesise(network, TEXT)

    assert spoken.has_ended
    assert spoken.mel.shape == (2, 5)


def test_a_voice_that_does_not_stop_is_cut_off_at_the_longest_clip() -> None:
    spoken = synthesise(never_stopping(voice()), TEXT)

    assert not spoken.has_ended
    assert spoken.mel.shape == (64, 5)


def test_a_voice_with_an_aligner_ends_where_its_characters_do() -> None:
    network = never_stopping(voice(ALIGNED))
    assert network.durations is not None
    with torch.no_grad():
        network.durations.projection.weight.zero_()
        network.durations.projection.bias.fill_(math.log(4 / 6))

    spoken = synthesise(network, TEXT)

    # Six characters of 4 frames each, two frames a step.
    assert spoken.has_ended
    assert spoken.mel.shape == (24, 5)
    cut = synthesise(network, TEXT, longest_steps=11)
    assert not cut.has_ended
    assert cut.mel.shape == (22, 5)
    straight = spoken.attention.mean((0, 1)).argmax(1)
    assert bool((straight.diff() >= 0).all())
    assert {0, 5} <= set(straight.tolist())


def test_dropout_of_the_pre_net_is_drawn_from_the_generator_alone() -> None:
    network = never_stopping(voice())

    def mel(generator: torch.Generator | None) -> Tensor:
        return synthesise(network, TEXT, generator=generator, longest_steps=5).mel

    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(mel(draws(1)), mel(draws(1)))
    assert not torch.equal(mel(draws(1)), mel(draws(2)))
    assert torch.equal(mel(None), mel(None))
    assert torch.equal(torch.get_rng_state(), before)
    assert network.mel_prenet is not None
    assert not network.mel_prenet.training


def test_what_cannot_be_said_is_refused() -> None:
    network = voice()

    with pytest.raises(TooLongError, match="at most 12 characters, got 22"):
        synthesise(network, torch.ones(22, dtype=torch.int64))
    with pytest.raises(ValueError, match="a character and a step, got 0 characters"):
        synthesise(network, torch.empty(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="got 6 characters and 0 steps"):
        synthesise(network, TEXT, longest_steps=0)
    with pytest.raises(TooLongError, match="must be <= 32, got 33"):
        synthesise(network, TEXT, longest_steps=33)


# Two seconds of one core, which a busy machine may give only slowly.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("aligner_size", "steps", "rate"), [(0, 300, 0.006), (8, 200, 0.01)])
def test_a_tiny_voice_learns_two_sentences_by_heart_and_stops_after_each(
    aligner_size: int, steps: int, rate: float
) -> None:
    # Every letter has a sound of its own, four frames long: a voice must find its place to go on.
    settings = msgspec.structs.replace(
        TINY,
        hidden_size=32,
        feedforward_size=64,
        layer_count=1,
        embedding_size=16,
        text_channels=16,
        mel_prenet_size=16,
        postnet_channels=12,
        dropout=0.0,
        prenet_dropout=0.0,
        convolution_dropout=0.0,
        guided_layer_count=1,
        guide_strength=5.0,
        aligner_size=aligner_size,
    )
    sounds = settings.mel_mean + torch.randn(settings.text.symbol_count, 5, generator=draws(7))

    def clip(text: str) -> SpeechClip:
        symbols = torch.tensor(encode_speech(text, settings.text))
        return SpeechClip(sounds[symbols].repeat_interleave(4, dim=0), symbols)

    examples = SpeechExamples.of(clip(text) for text in (" see.", " no."))
    network, batch = voice(settings).train(), SpeechBatch.of(examples, [0, 1])
    optimiser = torch.optim.Adam(network.parameters(), fused=True)

    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, 2 * (1 - step / steps))
        loss, _, _ = Speech().loss(network, batch, None)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()

    for place in range(2):
        wanted = examples.clip(place)
        spoken = synthesise(network, wanted.symbols)
        assert spoken.has_ended
        assert spoken.mel.shape == wanted.frames.shape
        # Channels have a deviation of 1: their mean would be 0.8 off.
        assert float((spoken.mel - wanted.frames).abs().mean()) < 0.2
