import math
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from models.layers.dropout import use_generator
from models.layers.he_scaling import runtime_scales
from models.layers.positions import sinusoids
from models.networks.flat_parameters import initial_parameters
from models.networks.registry import build_network, voice_network
from models.networks.voice import Prediction, TooLongError, TransformerTts
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.vector.named_parts import Part, part_names
from tests.models.tiny_voice import ALIGNED, TINY, noise, voice


def texts(*lengths: int, seed: int = 0) -> Tensor:
    drawn = torch.randint(
        1, TINY.text.symbol_count, (len(lengths), max(lengths)), generator=_draws(seed)
    )
    return drawn * (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1))


def _draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def said(network: TransformerTts, text: Tensor, frames: Tensor) -> Prediction:
    with torch.no_grad():
        prediction: Prediction = network(text, frames, torch.ones(frames.shape[:2]).bool())
    return prediction


def test_the_voice_is_what_its_equations_say() -> None:
    network = voice()
    weights = network.state_dict()
    with torch.no_grad():
        network.encoder_position.scale.fill_(0.7)
        weights["speaker.vector"].copy_(torch.tensor([0.5, -1.0, 2.0]))

    def linear(name: str, values: Tensor) -> Tensor:
        return functional.linear(values, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name: str, values: Tensor) -> Tensor:
        own = weights[f"{name}.weight"]
        return functional.layer_norm(values, own.shape, own, weights[f"{name}.bias"])

    def convolve(name: str, values: Tensor) -> Tensor:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        padded = functional.pad(values, (0, 0, 2, 2))
        rows = [
            torch.einsum("oik,ki->o", weight, padded[place : place + 5]) + bias
            for place in range(len(values))
        ]
        return torch.stack(rows)

    def attend(name: str, parts: list[Tensor], hidden: Tensor) -> Tensor:
        heads = []
        for own in (slice(0, 4), slice(4, 8)):
            query, key, value = (part[:, own] for part in parts)
            scores = (query @ key.t() / math.sqrt(4)).masked_fill(hidden, -math.inf)
            heads.append(scores.softmax(1) @ value)
        return linear(f"{name}.to_out", torch.cat(heads, 1))

    def itself(block: str, values: Tensor, hidden: Tensor) -> Tensor:
        parts = linear(f"{block}.attention.to_qkv", norm(f"{block}.attention_norm", values))
        return values + attend(f"{block}.attention", list(parts.chunk(3, 1)), hidden)

    def across(block: str, values: Tensor, memory: Tensor) -> Tensor:
        name = f"{block}.cross_attention"
        looking = norm(f"{name}_norm", values)
        parts = [
            linear(f"{name}.to_q", looking),
            linear(f"{name}.to_k", memory),
            linear(f"{name}.to_v", memory),
        ]
        return values + attend(name, parts, torch.zeros(len(values), len(memory)).bool())

    def feed(block: str, values: Tensor) -> Tensor:
        inner = linear(
            f"{block}.feedforward.to_hidden", norm(f"{block}.feedforward_norm", values)
        ).relu()
        return values + linear(f"{block}.feedforward.to_out", inner)

    text, frames = texts(5), noise(1, 6, 5)
    memory = weights["text_prenet.embedding.weight"][text[0]]
    for place in range(3):
        name = f"text_prenet.convolutions.{place}"
        memory = norm(f"{name}.layer_norm", convolve(f"{name}.convolution", memory)).relu()
    memory = linear("text_prenet.projection", memory)
    memory = memory + weights["speaker.projection.weight"] @ weights["speaker.vector"]
    memory = memory + 0.7 * sinusoids(5, 8)
    for block in ("encoder.0", "encoder.1"):
        memory = feed(block, itself(block, memory, torch.zeros(5, 5).bool()))
    memory = norm("encoder_norm", memory)
    # Two frames a step: a step is fed the second frame of the step before.
    values = torch.stack([torch.zeros(5), frames[0, 1], frames[0, 3]])
    values = linear("mel_prenet.first", values).relu()
    values = linear("mel_prenet.projection", linear("mel_prenet.second", values).relu())
    values = values + sinusoids(3, 8)
    for block in ("decoder.0", "decoder.1"):
        values = itself(block, values, torch.ones(3, 3).triu(1).bool())
        values = feed(block, across(block, values, memory))
    values = norm("decoder_norm", values)
    before = linear("head.mel", values).view(6, 5)
    after = before
    for place in range(3):
        name = f"postnet.convolutions.{place}"
        after = convolve(f"{name}.convolution", after)
        if place < 2:
            after = norm(f"{name}.layer_norm", after).tanh()

    prediction = said(network, text, frames)

    assert_close(prediction.before[0], before)
    assert_close(prediction.after[0], before + after)
    assert_close(prediction.stop[0], linear("head.stop", values).squeeze(1))


@pytest.mark.parametrize("step", [1, 2, 4])
def test_no_step_sees_what_a_later_one_is_fed(step: int) -> None:
    network, text, frames = voice(), texts(6), noise(1, 10, 5)
    other = frames.clone()
    # Step t is fed frame 2t - 1, the last of step t - 1.
    other[:, 2 * step - 1 :] += 3

    before, after = said(network, text, frames), said(network, text, other)

    assert torch.equal(before.before[:, : 2 * step], after.before[:, : 2 * step])
    assert torch.equal(before.stop[:, :step], after.stop[:, :step])
    assert bool((before.before[:, 2 * step :] != after.before[:, 2 * step :]).all())
    assert bool((before.stop[:, step:] != after.stop[:, step:]).all())


@pytest.mark.parametrize("changed", range(6))
def test_every_step_sees_the_whole_text(changed: int) -> None:
    network, text, frames = voice(), texts(6), noise(1, 6, 5)
    other = text.clone()
    other[0, changed] = other[0, changed] % (TINY.text.symbol_count - 1) + 1

    before, after = said(network, text, frames), said(network, other, frames)

    assert bool((before.before != after.before).any(2).all())


@pytest.mark.parametrize(
    "settings", [TINY, msgspec.structs.replace(TINY, norm="batch"), ALIGNED], ids=str
)
def test_a_clip_is_the_same_whatever_it_is_batched_with(settings: TransformerTtsSettings) -> None:
    network = voice(settings)
    text, frames = texts(6, 3), noise(2, 8, 5)
    mask = torch.arange(8) < torch.tensor([[8], [4]])

    with torch.no_grad():
        both = network(text, frames, mask)
        alone = said(network, text[1:, :3], frames[1:, :4])
        # Whatever lies in the padding changes nothing, not even a rounding.
        frames[1, 4:] = 1e6
        again = network(text, frames, mask)

    assert_close(both.before[1, :4], alone.before[0])
    assert_close(both.after[1, :4], alone.after[0])
    assert_close(both.stop[1, :2], alone.stop[0])
    for one, two in zip(both.attentions, alone.attentions, strict=True):
        assert_close(one[1, :, :2, :3], two[0])
        assert not one[1, :, :, 3:].any()
    for real in ("before", "after"):
        assert torch.equal(getattr(again, real)[1, :4], getattr(both, real)[1, :4])
    assert torch.equal(again.stop[1, :2], both.stop[1, :2])


def test_with_an_aligner_attention_follows_the_clip_and_frames_are_fed_to_no_step() -> None:
    network, text, frames = voice(ALIGNED), texts(4), noise(1, 12, 5)
    prediction = said(network, text, frames)
    assert prediction.alignment is not None
    found = prediction.alignment.found

    with torch.no_grad():
        memory = network.encode(text)._replace(durations=found)
        values, attentions = network.decode(memory, torch.full((1, 6, 5), 1e6))
        before, _ = network.made(values)

    assert torch.equal(prediction.before, before)
    assert found.sum() == 12
    assert found.min() >= 1
    # Scores of this network are small beside the Gaussian's: each step looks where it is said.
    middle = (found.cumsum(1) - found / 2)[0]
    times = 2 * torch.arange(6) + 1.0
    nearest = (times[:, None] - middle).abs().argmin(1)
    looked = torch.cat(attentions).mean((0, 1)).argmax(1)
    assert (looked - nearest).abs().max() <= 1


def test_an_aligner_and_steps_fed_with_own_frames_are_refused_together() -> None:
    with pytest.raises(ValueError, match="own_frame_share must be 0 with an aligner"):
        msgspec.structs.replace(ALIGNED, own_frame_share=0.5)


def test_a_batch_norm_learns_nothing_from_padding() -> None:
    settings = msgspec.structs.replace(
        TINY, norm="batch", dropout=0.0, prenet_dropout=0.0, convolution_dropout=0.0
    )
    short, long = voice(settings).train(), voice(settings).train()
    text, frames = texts(6, 3), noise(2, 8, 5)
    mask = torch.arange(8) < torch.tensor([[8], [4]])

    with torch.no_grad():
        expected = short(text, frames, mask)
        padded = long(
            functional.pad(text, (0, 4)),
            functional.pad(frames, (0, 0, 0, 4)),
            functional.pad(mask, (0, 4)),
        )

    assert_close(padded.after[:, :8][mask], expected.after[mask])
    for name, statistic in short.named_buffers():
        assert_close(statistic, long.get_buffer(name))
    batch_norm = short.get_buffer("postnet.convolutions.0.batch_norm.batch_count")
    assert batch_norm.tolist() == [1]


def test_raw_weights_are_normal_and_scaled_by_their_fan_in() -> None:
    settings = TransformerTtsSettings(
        hidden_size=64, head_count=2, layer_count=1, feedforward_size=128
    )
    network = voice(settings)
    scales = runtime_scales(network)

    # Fan-in: 64 inputs, 128 inputs, 256 channels of 5 places.
    expected = {
        "encoder.0.attention.to_qkv.weight": math.sqrt(2 / 64),
        "decoder.0.cross_attention.to_out.weight": math.sqrt(2 / 64),
        "encoder.0.feedforward.to_out.weight": math.sqrt(2 / 128),
        "postnet.convolutions.1.convolution.weight": math.sqrt(2 / 1280),
    }
    weights = network.state_dict()
    for name, scale in expected.items():
        assert scales[name] == pytest.approx(scale)
        # 4,096 draws at least: the deviation is within 4 % of 1 but for one in 3,000 cases.
        assert float((weights[name] / scale).std()) == pytest.approx(1, abs=0.04)
    matrices = {
        name for name, value in weights.items() if value.ndim > 1 and "embedding" not in name
    }
    assert set(scales) == matrices
    for name, value in weights.items():
        if name.endswith("bias"):
            assert not value.any()


def test_blocks_of_the_papers_size_have_the_papers_parameters() -> None:
    counts = {
        name: sum(
            spec.element_count
            for spec in schema_of(TransformerTtsSettings()).tensors
            if spec.name.startswith(f"{name}.0.")
        )
        for name in ("encoder", "decoder")
    }

    # Ours have no biases on queries, keys and values: 3 of 384 less an attention.
    assert counts == {"encoder": 1_774_464 - 1152, "decoder": 2_366_592 - 2304}


def test_the_vector_of_who_speaks_changes_the_voice_and_starts_as_nobodys() -> None:
    network, text, frames = voice(), texts(6), noise(1, 6, 5)
    speaker = network.speaker
    assert speaker is not None
    assert not speaker.vector.any()
    before = said(network, text, frames)

    with torch.no_grad():
        speaker.vector.fill_(1)

    assert bool((said(network, text, frames).before != before.before).any(2).all())
    assert network.get_parameter("speaker.vector").shape == (3,)
    assert voice(msgspec.structs.replace(TINY, speaker_size=0)).speaker is None


def test_its_projections_are_those_of_every_attention_and_its_head_is_mel_and_stop() -> None:
    schema = schema_of(TINY)

    projections = part_names(schema, Part.PROJECTION, method="fedtp")

    across = [f"cross_attention.to_{part}" for part in "qkv"]
    assert projections == (
        *(f"encoder.{block}.attention.to_qkv.weight" for block in range(2)),
        *(
            f"decoder.{block}.{name}.weight"
            for block in range(2)
            for name in ("attention.to_qkv", *across)
        ),
    )
    assert part_names(schema, Part.HEAD, method="fedper") == (
        *("head.mel.weight", "head.mel.bias", "head.stop.weight", "head.stop.bias"),
    )


def test_a_voice_can_be_fed_with_its_own_frames_in_training_alone() -> None:
    plain = msgspec.structs.replace(TINY, dropout=0.0, prenet_dropout=0.0, convolution_dropout=0.0)
    text, frames = texts(5, 5), noise(2, 6, 5)
    taught = said(voice(plain), text, frames)
    # Fed with what it makes of the right frames: as if those were its own ones.
    right = said(voice(plain), text, taught.before)

    for share, expected in ((0.0, taught), (1.0, right)):
        network = voice(msgspec.structs.replace(plain, own_frame_share=share))
        use_generator(network, _draws(3))
        assert_close(said(network, text, frames).before, taught.before)
        assert_close(said(network.train(), text, frames).before, expected.before)
    assert not torch.equal(taught.before, right.before)


def test_so_many_steps_are_fed_with_own_frames() -> None:
    half = msgspec.structs.replace(
        TINY, dropout=0.0, prenet_dropout=0.0, convolution_dropout=0.0, own_frame_share=0.5
    )
    network, text, frames = voice(half).train(), texts(5), noise(1, 40, 5)
    use_generator(network, _draws(3))
    fed: list[Tensor] = []
    assert network.mel_prenet is not None
    network.mel_prenet.register_forward_pre_hook(lambda _, given: fed.append(given[0]))

    said(network, text, frames)

    first, second = fed
    kept = (first == second).all(2)[0, 1:]
    # 19 steps have a step before: within three standard deviations of a half.
    assert 3 <= int(kept.sum()) <= 16


def test_dropout_draws_from_its_own_generator() -> None:
    network, text, frames = voice().train(), texts(6), noise(1, 6, 5)

    def draw() -> Tensor:
        use_generator(network, _draws(1))
        return said(network, text, frames).after

    assert torch.equal(draw(), draw())
    assert not torch.equal(draw(), said(network, text, frames).after)


def test_log_mels_come_back_from_the_networks_units() -> None:
    network = voice()
    mels = torch.tensor([-5.5, -3.5, 0.5])

    assert_close(network.normalised(mels), torch.tensor([0.0, 1.0, 3.0]))
    assert_close(network.log_mels(network.normalised(mels)), mels)


def test_what_is_too_long_is_refused() -> None:
    network = voice()

    with pytest.raises(TooLongError, match="at most 12 characters, got 13"):
        said(network, texts(13), noise(1, 4, 5))
    # Two seconds are 63 frames, 32 steps of two.
    with pytest.raises(TooLongError, match="at most 32 steps, got 33"):
        said(network, texts(6), noise(1, 66, 5))


def test_the_same_seed_gives_the_same_voice() -> None:
    first = initial_parameters(TINY, seed=3)

    assert torch.equal(initial_parameters(TINY, seed=3), first)
    assert voice_network(build_network(TINY)).settings == TINY


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 6, "head_count": 4}, "multiple of head_count 4, got 6"),
        ({"hidden_size": 9, "head_count": 3}, "must be even"),
        ({"layer_count": 0}, "layer_count must be >= 1, got 0"),
        ({"reduction_factor": 0}, "reduction_factor must be >= 1"),
        ({"speaker_size": -1}, "speaker_size must be >= 0"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"prenet_dropout": math.nan}, "prenet_dropout must be in"),
        ({"convolution_dropout": -0.1}, "convolution_dropout must be in"),
        ({"own_frame_share": 1.1}, r"own_frame_share must be in \[0, 1\], got 1.1"),
        ({"guide_strength": -1.0}, "guide_strength must be >= 0"),
        ({"mel_std": 0.0}, "mel_std must be > 0"),
        ({"mel_mean": math.inf}, "mel_mean must be finite"),
    ],
)
def test_settings_that_make_no_voice_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TransformerTtsSettings(**changes)
