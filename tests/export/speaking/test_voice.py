"""A voice that speaks without torch, against the network that speaks with it."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from export.faces.speech import VOCODER_FILE
from export.parity.checked_graph import build_graphs
from export.runtime.word_graph import GraphError
from export.speaking.stream import FIRST_S, retimed, retimed_count
from export.speaking.voice import PAUSE_S, Voice
from export.speaking.voice_graphs import VocoderRunner, VoiceGraphs
from models.listening.synthesis import synthesise
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, voice_network
from models.settings.model import schema_of
from models.settings.voice import TransformerTtsSettings
from models.sound.mel import log_mel
from models.text.speech_alphabet import encode_speech
from models.text.spoken_text import SpeechTextError
from models.vector.codec import named_tensors
from tests.export.voices import ONE_VOICE, VOCODER, voice_parameters
from tests.models.tiny_voice import MEL, TINY

NO_DROPOUT = replace(ONE_VOICE, prenet_dropout=0.0)
SPEAKER = "speaker.vector"


def vocoder_runner() -> VocoderRunner:
    tensors = named_tensors(schema_of(VOCODER), voice_parameters(VOCODER))
    return VocoderRunner(build_graphs(VOCODER, tensors)[VOCODER_FILE])


def voice_of(
    settings: TransformerTtsSettings = NO_DROPOUT,
    *,
    stop: float = -1.0,
    personal: tuple[str, ...] = (),
    vocoder: bool = False,
) -> Voice:
    tensors = named_tensors(schema_of(settings), voice_parameters(settings, stop=stop))
    held = {name: tensor for name, tensor in tensors.items() if name not in personal}
    runner = vocoder_runner() if vocoder else None
    graphs = VoiceGraphs(build_graphs(settings, held, personal=personal))
    return Voice(graphs, settings, vocoder=runner)


def torch_mels(settings: TransformerTtsSettings, text: str, steps: int) -> np.ndarray:
    network = voice_network(build_network(settings))
    parameters = torch.from_numpy(voice_parameters(settings, stop=-1.0))
    load_parameters(network, schema_of(settings), parameters)
    symbols = torch.tensor(encode_speech(text, settings.text))
    found: np.ndarray = synthesise(network, symbols, longest_steps=steps).mel.numpy()
    return found


def test_a_text_is_said_as_torch_says_it_sentence_by_sentence() -> None:
    # 0.5 s of 2 kHz sound are 1,000 samples, 16 frames of 64, 8 steps of two frames.
    first, second = voice_of().speak("Hi there. I am 10!", seed=1, longest_s=0.5)

    assert (first.text, second.text) == (" hi there.", " i am ten!.")
    for said in (first, second):
        expected = torch_mels(NO_DROPOUT, said.text, 8)
        assert_allclose(said.log_mels, expected, rtol=1e-4, atol=1e-4)
        assert not said.has_ended
    pause = round(PAUSE_S * MEL.sample_rate_hz)
    assert len(first.sound) == 15 * 64 + pause
    assert not first.sound[-pause:].any()
    assert len(second.sound) == 15 * 64


def test_a_voice_with_an_aligner_ends_where_its_characters_do() -> None:
    settings = replace(ONE_VOICE, aligner_size=4, clips=replace(ONE_VOICE.clips, longest_s=60.0))

    (said,) = voice_of(settings).speak("Hi there", seed=1, longest_s=60.0)

    expected = torch_mels(settings, said.text, settings.longest_steps)
    # Sixty seconds are 1,875 frames.
    assert 0 < len(expected) < 1000
    assert_allclose(said.log_mels, expected, rtol=1e-4, atol=1e-4)
    assert said.has_ended


def test_griffin_lim_makes_sound_that_has_the_spectrogram() -> None:
    (said,) = voice_of().speak("Hi there", seed=1)

    def distance(sound: NDArray[np.float32]) -> float:
        found = log_mel(torch.from_numpy(sound), MEL).t().numpy()
        return float(np.abs(np.exp(found) - np.exp(said.log_mels)).mean())

    noise = np.random.default_rng(0).standard_normal(said.sound.shape).astype(np.float32)
    assert distance(said.sound) < 0.5 * distance(noise)


def test_a_vocoder_makes_the_sound_where_there_is_one() -> None:
    (said,) = voice_of(vocoder=True).speak("Hi there", seed=1, longest_s=0.5)

    runner = vocoder_runner()
    assert_allclose(said.sound, runner.sound(said.log_mels[np.newaxis])[0], atol=1e-5)


@pytest.mark.parametrize("speed", [0.6, 1.0, 1.7])
def test_a_sentence_is_heard_before_it_is_done_and_sounds_as_if_it_were(speed: float) -> None:
    # 250 frames of 64 samples, two a step.
    settings = replace(NO_DROPOUT, clips=replace(NO_DROPOUT.clips, longest_s=8.0))
    voice = voice_of(settings, vocoder=True)
    runner = vocoder_runner()
    whole = torch_mels(settings, " hi there.", settings.longest_steps)
    count = retimed_count(len(whole), speed, is_end=True)

    pieces = list(voice.stream("Hi there", speed=speed, seed=1, longest_s=9.0))

    assert len(pieces) > 3
    assert len(pieces[0].sound) / 2000 == pytest.approx(FIRST_S, abs=0.15)
    assert [piece.said is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    said = pieces[-1].said
    assert said is not None
    assert_allclose(said.log_mels, retimed(whole, speed, count), rtol=1e-3, atol=1e-3)
    expected = runner.sound(said.log_mels[np.newaxis])[0]
    found = np.concatenate([piece.sound for piece in pieces])
    assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_voice_stops_by_itself_and_even_then_makes_a_sound() -> None:
    (said,) = voice_of(stop=1.0).speak("Hi", seed=1)

    assert said.has_ended
    assert said.log_mels.shape == (2, 5)
    assert said.sound.shape == (64,)
    one_frame = replace(NO_DROPOUT, reduction_factor=1)
    (said,) = voice_of(one_frame, stop=1.0, vocoder=True).speak("Hi", seed=1)
    assert said.log_mels.shape == (1, 5)
    assert said.sound.shape == (64,)


def test_the_first_sentence_is_there_before_the_second_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    encode = VoiceGraphs.read

    def counting(graphs: VoiceGraphs, characters: np.ndarray) -> object:
        read.append(characters.shape[1])
        return encode(graphs, characters)

    monkeypatch.setattr(VoiceGraphs, "read", counting)
    said = voice_of(stop=1.0).speak("One. Two. Three.")

    next(said)
    assert read == [5]
    next(said)
    assert read == [5, 5]


def test_dropout_follows_the_seed_and_nothing_else() -> None:
    voice = voice_of(ONE_VOICE)

    one, same, other = (
        next(voice.speak("Hi there", seed=seed, longest_s=0.5)).log_mels for seed in (1, 1, 2)
    )

    assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3


def test_speed_changes_the_time_and_not_the_channels() -> None:
    frames = np.arange(8, dtype=np.float32)[:, np.newaxis] * np.ones(3, dtype=np.float32)

    # Every second frame; every frame and the middle of two, the last one held.
    assert_array_equal(retimed(frames, 2.0, 4)[:, 0], [0, 2, 4, 6])
    assert_array_equal(retimed(frames[:3], 0.5, 6)[:, 2], [0, 0.5, 1, 1.5, 2, 2])
    assert_array_equal(retimed(frames, 1.0, 8), frames)
    assert [retimed_count(8, speed, is_end=True) for speed in (0.5, 1.0, 2.0, 4.0)] == [16, 8, 4, 2]
    # Of frames 0 to 7 with more to come, place 7 would be mixed with frame 8.
    assert [retimed_count(8, speed, is_end=False) for speed in (0.5, 1.0, 2.0)] == [13, 8, 4]
    slow, fast = (
        next(voice_of().speak("Hi there", speed=speed, longest_s=0.5)) for speed in (0.5, 2.0)
    )
    assert (len(slow.log_mels), len(fast.log_mels)) == (32, 8)


def test_nobody_speaks_with_a_vector_of_zeros_and_everyone_with_their_own() -> None:
    settings = replace(TINY, prenet_dropout=0.0)
    voice = voice_of(settings, personal=(SPEAKER,))
    own = named_tensors(schema_of(settings), voice_parameters(settings))[SPEAKER]

    nobody = next(voice.for_nobody().speak("Hi", longest_s=0.3))
    zero = next(voice.for_person({f"personal.{SPEAKER}": 0 * own}).speak("Hi", longest_s=0.3))
    ada = next(voice.for_person({f"personal.{SPEAKER}": own}).speak("Hi", longest_s=0.3))

    assert_array_equal(nobody.log_mels, zero.log_mels)
    assert np.abs(nobody.log_mels - ada.log_mels).max() > 1e-3
    with pytest.raises(GraphError, match="give a person's tensors"):
        next(voice.speak("Hi"))
    more = voice_of(settings, personal=(SPEAKER, "encoder.0.attention.to_qkv.weight"))
    with pytest.raises(GraphError, match="there is none of nobody"):
        more.for_nobody()


@pytest.mark.parametrize(
    ("ask", "error", "rule"),
    [
        (lambda voice: voice.speak(""), SpeechTextError, "got an empty one"),
        (lambda voice: voice.speak("a " * (1 << 19)), SpeechTextError, "at most 10000 characters"),
        (lambda voice: voice.speak("Hi", speed=0.2), ValueError, r"speed must be in \[0.25, 4\]"),
        (lambda voice: voice.speak("Hi", speed=float("nan")), ValueError, "got nan"),
        (lambda voice: voice.speak("Hi", longest_s=0.0), ValueError, "longest_s must be > 0"),
        (lambda voice: voice.speak("Hi", longest_s=float("inf")), ValueError, "and finite"),
    ],
    ids=["empty", "megabyte", "speed", "NaN", "no time", "all time"],
)
def test_what_is_wrong_is_said_before_anything_is_spoken(
    ask: Callable[[Voice], object], error: type[Exception], rule: str
) -> None:
    with pytest.raises(error, match=rule):
        ask(voice_of())


def test_a_voice_that_never_stops_is_cut_off_where_nobody_speaks_so_slowly() -> None:
    settings = replace(NO_DROPOUT, clips=replace(NO_DROPOUT.clips, longest_s=8.0))

    (said,) = voice_of(settings, vocoder=True).speak("Hi there")

    # 2 s and a quarter for each of the ten characters of " hi there." are 4.5 s of 2 kHz: 9,000
    # samples, 141 frames of 64, 71 steps of two.
    assert len(said.log_mels) == 142
    assert not said.has_ended


def test_a_voice_that_never_stops_is_cut_off_at_the_longest_clip() -> None:
    # 2 s of 2 kHz are 63 frames and the last step's second one.
    said = list(itertools.islice(voice_of().speak("Hi. Ho.", longest_s=1000.0), 2))

    assert [len(one.log_mels) for one in said] == [64, 64]
    assert not any(one.has_ended for one in said)
