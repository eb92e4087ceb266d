"""Examples of every kind come out of shared memory as they went in."""

import pytest
import torch
from torch import Tensor

from models.tasks.image_classification import LabelledImages
from models.tasks.sequence import SequencePairs
from models.tasks.speech_examples import SpeechClip, SpeechExamples
from simulation.population.examples import SharedExamples


def images(count: int, value: int, size: int = 2) -> LabelledImages:
    pixels = torch.full((count, size, size, 1), value, dtype=torch.uint8)
    return LabelledImages(pixels, torch.arange(count))


def test_streams_come_back_and_lie_in_shared_memory() -> None:
    streams = {"a": torch.arange(3), "b": torch.arange(5, 9)}

    packed = SharedExamples.pack(streams)

    assert list(packed) == ["a", "b"]
    assert len(packed) == 2
    for name, stream in streams.items():
        found = packed[name]
        assert isinstance(found, Tensor)
        assert torch.equal(found, stream)
        assert found.untyped_storage().is_shared()


def test_images_come_back_with_their_own_labels() -> None:
    packed = SharedExamples.pack({"a": images(2, 7), "none": images(0, 0), "b": images(3, 9)})

    first, none, second = (packed[name] for name in packed)

    assert isinstance(first, LabelledImages)
    assert isinstance(second, LabelledImages)
    assert bool((first.pixels == 7).all())
    assert bool((second.pixels == 9).all())
    assert second.labels.tolist() == [0, 1, 2]
    assert len(none) == 0
    assert second.pixels.untyped_storage().is_shared()


def test_pairs_come_back_as_sources_and_targets() -> None:
    one, other = (
        SequencePairs(torch.full((count, 4), count), torch.full((count, 3), 10 + count))
        for count in (2, 3)
    )

    packed = SharedExamples.pack({"one": one, "other": other})

    found = packed["other"]
    assert isinstance(found, SequencePairs)
    assert torch.equal(found.sources, other.sources)
    assert torch.equal(found.targets, other.targets)
    assert len(packed["one"]) == 2


def test_clips_of_any_length_come_back() -> None:
    one = SpeechExamples.of(
        SpeechClip(torch.full((frames, 2), float(frames)), torch.full((text,), text))
        for frames, text in ((3, 1), (5, 4))
    )
    other = SpeechExamples.of([SpeechClip(torch.full((2, 2), 9.0), torch.tensor([7, 8, 9]))])

    packed = SharedExamples.pack({"one": one, "other": other})

    for name, own in (("one", one), ("other", other)):
        found = packed[name]
        assert isinstance(found, SpeechExamples)
        assert torch.equal(found.frames, own.frames)
        assert torch.equal(found.symbols, own.symbols)
        assert torch.equal(found.lengths, own.lengths)


def test_nobody_and_mixed_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="somebody with examples, got nobody"):
        SharedExamples.pack({})
    with pytest.raises(ValueError, match="of one type and shape"):
        SharedExamples.pack({"a": images(1, 0), "b": images(1, 0, size=3)})
    with pytest.raises(ValueError, match="of one kind, got LabelledImages, Tensor"):
        SharedExamples.pack({"a": images(1, 0), "b": torch.arange(3)})
