"""Let an exported voice say texts of 1 to 40 words, and count what does not end by itself.

Figures (``--json`` prints them as one object):

    texts, utterances    200 texts, five of each length, and the sentences that they are said in.
    not_ended            Utterances that were cut off: 0.
    fewest_ms, most_ms   Milliseconds of sound for a character, of the fastest and the slowest
                         utterance of five characters or more: a voice that loops or skips is far
                         outside what speech takes, some 40 to 120.
    rtf                  Seconds from a text to its samples, for a second of sound.

The texts are runs of words of the part of Python's manual that no demonstration trains on, which no
voice here has met either. ``--quick`` says one text of each length.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.parts.figures import benchmark_parser, show_figures
from edge_client.datasets.registry import load_dataset
from export.bundles.keyboard_bundle import load_speech_bundle
from export.speaking.voice import open_voice

MOST_WORDS = 40
_OF_EACH = 5
_SEED = 20_261_128
_LEAST_CHARACTERS = 5


def main() -> None:
    """Say everything and print the figures."""
    parser = benchmark_parser(__doc__, quick="say one text of each length")
    parser.add_argument("bundle", type=Path, help="voice that `sotto-export speech` made")
    arguments = parser.parse_args()
    figures = utterance_figures(arguments.bundle, of_each=1 if arguments.quick else _OF_EACH)
    show_figures(figures, "texts of 1 to 40 words", as_json=arguments.json)


def utterance_figures(bundle: Path, *, of_each: int) -> dict[str, float]:
    """Say texts of every length and return the figures."""
    voice = open_voice(load_speech_bundle(bundle)).for_nobody()
    texts = list(_texts(of_each))
    started = time.perf_counter()
    said = [one for text in texts for one in voice.speak(text, seed=_SEED)]
    took_s = time.perf_counter() - started
    seconds = [len(one.sound) / voice.sample_rate_hz for one in said]
    paces = [
        1e3 * length / len(one.text)
        for one, length in zip(said, seconds, strict=True)
        if len(one.text) >= _LEAST_CHARACTERS
    ]
    return {
        "texts": len(texts),
        "utterances": len(said),
        "not_ended": sum(not one.has_ended for one in said),
        "fewest_ms": min(paces),
        "most_ms": max(paces),
        "rtf": took_s / sum(seconds),
    }


def _texts(of_each: int) -> Iterator[str]:
    """Yield runs of words, in order of length, none of them twice."""
    manual = load_dataset("manual").test
    words = [word for topic in sorted(manual) for sentence in manual[topic] for word in sentence]
    spoken = (word for word in words if word.isascii() and word.isalpha())
    for length in range(1, MOST_WORDS + 1):
        for _ in range(of_each):
            yield " ".join(next(spoken) for _ in range(length))


if __name__ == "__main__":
    main()
