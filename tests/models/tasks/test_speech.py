import math
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.layers.dropout import use_generator
from models.networks.registry import WrongFamilyError, build_network
from models.plan.plan import TrainingSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.voice import TransformerTtsSettings
from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from models.tasks.speech import Speech
from models.tasks.speech_examples import SpeechBatch, SpeechClip, SpeechExamples
from models.tasks.speech_losses import (
    duration_loss,
    forward_sum_loss,
    guided_loss,
    mel_loss,
    stop_loss,
)
from models.tasks.unusable_examples import UnusableExamplesError
from tests.models.tiny_voice import ALIGNED, TINY, clips, noise, voice

TASK = Speech()
TRAINING = TrainingSettings(learning_rate=0.1, batch_size=3)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_pass(examples: SpeechExamples, seed: int = 0) -> list[SpeechBatch]:
    return list(TASK.batches(examples, TRAINING, voice(), draws(seed)))


def test_it_is_the_task_named_speech() -> None:
    assert isinstance(task_named("speech"), Speech)


def test_clips_come_back_as_they_were_put_in() -> None:
    first = SpeechClip(noise(4, 5), torch.tensor([1, 2, 3]))
    second = SpeechClip(noise(2, 5, seed=1), torch.tensor([4]))

    examples = SpeechExamples.of([first, second])

    assert len(examples) == 2
    assert TASK.example_count(examples) == 6
    for place, clip in enumerate((first, second)):
        assert torch.equal(examples.clip(place).frames, clip.frames)
        assert torch.equal(examples.clip(place).symbols, clip.symbols)
    batch = SpeechBatch.of(examples, [1, 0])
    assert batch.texts.tolist() == [[4, 0, 0], [1, 2, 3]]
    assert batch.frame_counts.tolist() == [2, 4]
    assert not batch.frames[0, 2:].any()


def test_a_pass_has_every_clip_once_in_batches_of_like_lengths() -> None:
    lengths = [(2 * number, number) for number in range(1, 12)]
    examples = clips(*lengths)

    batches = one_pass(examples)

    # Eleven clips in batches of at most three: three of three and one of two.
    assert sorted(len(batch) for batch in batches) == [2, 3, 3, 3]
    seen = sorted(count for batch in batches for count in batch.frame_counts.tolist())
    assert seen == [2 * number for number in range(1, 12)]
    for batch in batches:
        longest, shortest = int(batch.frame_counts.max()), int(batch.frame_counts.min())
        # Two neighbours on either side in sorted order, and a tenth more or less.
        assert longest - shortest <= 4 + 0.1 * longest


def test_the_order_follows_from_the_seed_alone() -> None:
    examples = clips(*((2 + 2 * (number % 5), 3) for number in range(9)))

    def order(seed: int) -> list[list[int]]:
        return [batch.texts.flatten().tolist() for batch in one_pass(examples, seed)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_the_loss_is_the_sum_of_its_four_parts() -> None:
    settings = msgspec.structs.replace(
        TINY, guide_strength=3.0, guided_layer_count=1, guided_head_count=1
    )
    network = voice(settings)
    batch = SpeechBatch.of(clips((6, 4), (4, 7)), [0, 1])

    loss, count, state = TASK.loss(network, batch, None)

    right, steps = (batch.frames + 5.5) / 2, torch.tensor([3, 2])
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    prediction = network(batch.texts, right, mask)
    guided = guided_loss(prediction.attentions[1:], steps, torch.tensor([4, 7]), head_count=1)
    expected = (
        mel_loss(prediction.before, right, mask)
        + mel_loss(prediction.after, right, mask)
        + stop_loss(prediction.stop, steps)
        + 3 * guided
    )
    assert_close(loss, expected)
    assert (count, state) == (10, None)


def test_with_an_aligner_the_loss_has_where_the_text_is_in_the_clip_in_place_of_the_guide() -> None:
    network = voice(msgspec.structs.replace(ALIGNED, guide_strength=3.0))
    batch = SpeechBatch.of(clips((6, 4), (8, 7)), [0, 1])

    loss, _, _ = TASK.loss(network, batch, None)

    right = (batch.frames + 5.5) / 2
    mask = torch.arange(8) < torch.tensor([[6], [8]])
    prediction = network(batch.texts, right, mask)
    assert prediction.alignment is not None
    weights, found, predicted = prediction.alignment
    expected = (
        mel_loss(prediction.before, right, mask)
        + mel_loss(prediction.after, right, mask)
        + stop_loss(prediction.stop, torch.tensor([3, 4]))
        + forward_sum_loss(weights, torch.tensor([6, 8]), torch.tensor([4, 7]))
        + 0.1 * duration_loss(predicted, found, torch.tensor([4, 7]))
    )
    assert_close(loss, expected)


@pytest.mark.parametrize("length", [(2, 1), (2, 12), (64, 1), (64, 12)])
def test_clips_far_too_short_or_long_for_their_text_leave_gradients_finite(
    length: tuple[int, int],
) -> None:
    network = voice(ALIGNED).train()
    use_generator(network, draws())

    loss, _, _ = TASK.loss(network, SpeechBatch.of(clips(length), [0]), None)
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch

    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


@pytest.mark.parametrize("settings", [TINY, ALIGNED], ids=["attention", "aligner"])
def test_gradients_do_not_come_from_padding(settings: TransformerTtsSettings) -> None:
    network = voice(settings)
    batch = SpeechBatch.of(clips((6, 4), (4, 7)), [0, 1])
    filled = SpeechBatch(batch.texts, batch.frames.clone(), batch.text_counts, batch.frame_counts)
    filled.frames[1, 4:] = 1e3

    def gradients(given: SpeechBatch) -> list[Tensor]:
        network.zero_grad()
        loss, _, _ = TASK.loss(network, given, None)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return [p.grad.clone() for p in network.parameters() if p.grad is not None]

    for one, two in zip(gradients(batch), gradients(filled), strict=True):
        assert torch.equal(one, two)


def test_counts_are_of_frames_steps_and_clips() -> None:
    network = voice()
    with torch.no_grad():
        # Every step says no.
        network.head.stop.weight.zero_()
        network.head.stop.bias.fill_(-1)
    examples = clips((2, 4), (6, 3), (4, 2))

    counts = TASK.evaluate(network, [examples])

    # Three last steps of one, three and two are missed: 3 of 6 steps, of two frames each.
    assert (counts.token_count, counts.top1_hits, counts.top3_hits) == (12, 6, 6)
    assert (counts.sequence_count, counts.exact_matches) == (3, 0)
    differences = 0.0
    with torch.no_grad():
        for place in range(3):
            clip = examples.clip(place)
            right = network.normalised(clip.frames).unsqueeze(0)
            whole = torch.ones(1, len(clip.frames)).bool()
            after = network(clip.symbols.unsqueeze(0), right, whole).after[0]
            differences += float((network.log_mels(after) - clip.frames).abs().mean(1).sum())
    assert counts.log_loss_sum == pytest.approx(differences, rel=1e-5)
    with torch.no_grad():
        network.head.stop.bias.fill_(1)
    # Every step says yes: the clip of one step is right, the others stop too early.
    counts = TASK.evaluate(network, [examples])
    assert (counts.top1_hits, counts.exact_matches) == (6, 1)


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_counts_do_not_depend_on_the_batch_size(norm: Any) -> None:
    network = voice(msgspec.structs.replace(TINY, norm=norm))
    people = [clips((2, 4), (6, 3), (4, 2), (8, 9), seed=seed) for seed in range(2)]

    counts = [TASK.evaluate(network, people, batch_size=size) for size in (1, 3, 64)]

    for other in counts[1:]:
        assert other.log_loss_sum == pytest.approx(counts[0].log_loss_sum, rel=1e-5)
        assert msgspec.structs.replace(other, log_loss_sum=0.0) == msgspec.structs.replace(
            counts[0], log_loss_sum=0.0
        )
    assert (
        sum((TASK.evaluate(network, [one]) for one in people), start=Counts()).sequence_count == 8
    )


def test_training_twice_gives_the_same_bits() -> None:
    def trained() -> Tensor:
        network = voice().train()
        use_generator(network, draws(3))
        for batch in one_pass(clips((6, 4), (4, 7), (8, 3), (4, 4))):
            loss, _, _ = TASK.loss(network, batch, None)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            with torch.no_grad():
                for parameter in network.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(parameter.grad, alpha=0.01)
                        parameter.grad = None
        return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])

    assert torch.equal(trained(), trained())


def broken(**changes: Tensor) -> SpeechExamples:
    whole = clips((4, 3), (2, 2))
    parts = {"frames": whole.frames, "symbols": whole.symbols, "lengths": whole.lengths}
    return SpeechExamples(**{**parts, **changes})


@pytest.mark.parametrize(
    ("examples", "says"),
    [
        (
            SpeechExamples(torch.empty(0, 5), torch.empty(0).long(), torch.empty(0, 2).long()),
            "at least 1 clip to train on, got 0",
        ),
        (broken(frames=torch.zeros(6, 4)), r"of shape \(frames, 5\), got .*\(6, 4\); make them"),
        (broken(frames=torch.zeros(6, 5).double()), "must be float32"),
        (broken(frames=torch.full((6, 5), math.nan)), "must be finite"),
        (broken(lengths=torch.tensor([[4, 3], [1, 2]])), r"add up to 6 .*got \[5, 5\]"),
        (broken(lengths=torch.tensor([[6, 3], [0, 2]])), "must have a frame and a character"),
        (broken(lengths=torch.tensor([[6, 5], [0, 0]])), "must have a frame and a character"),
        (broken(lengths=torch.tensor([[3, 3], [3, 2]])), "whole steps of 2"),
        (clips((66, 3)), r"at most 64 frames, got 66; .*model\.clips\.longest_s"),
        (clips((4, 13)), r"at most 12 characters, got 13; .*model\.longest_text"),
        (broken(symbols=torch.tensor([1, 2, 3, 0, 1])), r"int64 in \[1, 36\)"),
        (broken(symbols=torch.tensor([1, 2, 3, 36, 1])), r"int64 in \[1, 36\)"),
        (broken(symbols=torch.ones(5)), r"int64 in \[1, 36\)"),
    ],
)
def test_clips_that_the_voice_cannot_learn_from_are_refused(
    examples: SpeechExamples, says: str
) -> None:
    with pytest.raises(UnusableExamplesError, match=says):
        TASK.check(examples, voice())


def test_a_network_that_does_not_speak_is_refused() -> None:
    network = build_network(Seq2SeqSettings(symbol_count=5))

    with pytest.raises(WrongFamilyError, match=r"set model\.family to transformer_tts"):
        TASK.check(clips((4, 3)), network)
