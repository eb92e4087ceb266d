"""The subcommands ``sotto-simulate start`` and ``sotto-simulate voice-start``."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from privacy.foundation.flags import Flag, Printed
from privacy.foundation.whole_number_flags import at_least_one

START_EXAMPLES = """\
examples:
  a start in German, from a folder of text files:
    sotto-simulate start --language de --text texts --out german --pack german.sotto
  the English start that ships with sotto, measured on messages it never saw:
    sotto-simulate start --text reddit=DATA:3 --text irc=DATA:2 --early wikitext2=DATA \\
      --epochs 6 --measure sms=DATA --out english --pack english-start.sotto
"""

VOICE_START_EXAMPLES = """\
examples:
  a start of twelve espeak-ng voices, half of whose sentences are Reddit comments:
    sotto-simulate voice-start --text reddit=DATA --out voices --pack voices.sotto
  with the speakers of AN4 beside them:
    sotto-simulate voice-start --recordings an4=DATA --out voices --pack voices.sotto
"""


class StartAsked(Printed, frozen=True, kw_only=True):
    """A start to learn.

    Attributes:
        text: Public text to learn from, a folder of text files or a data set by its name, and how
            often an epoch reads it; may be repeated. What the set holds out is not learnt from.
        early: As --text, of a text that the first half of the epochs reads alone: how the language
            is written elsewhere, before how people type; may be repeated.
        measure: Data set whose held-out text the start is measured on; may be repeated.
        language: Language of the text, as de or pt-BR; several have commas between.
        words: Word list, one a line with <unk> and <eos> first (default: the language's, as
            `sotto-server init --language` makes it; that of English ships with sotto).
        epochs: Passes over the text.
        width: Width of the model, a tied GRU.
        device: Processor to learn on.
        seed: Seed of the model, of the order of the text and of dropout.
        out: Folder to work in; the same command goes on there where it stopped.
        pack: File to write: the start in eight bits a weight.
    """

    text: Annotated[list[str], Flag("FOLDER|NAME=PATH[:TIMES]")]
    early: Annotated[list[str], Flag("FOLDER|NAME=PATH[:TIMES]")] = msgspec.field(
        default_factory=list
    )
    measure: Annotated[list[str], Flag("NAME=PATH")] = msgspec.field(default_factory=list)
    language: str = "en"
    words: Annotated[Path | None, Flag("FILE")] = None
    epochs: Annotated[int, Flag(parse=at_least_one)] = 4
    width: Annotated[int, Flag(parse=at_least_one)] = 400
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = 1
    out: Path
    pack: Annotated[Path | None, Flag("FILE")] = None


def start(asked: StartAsked) -> int:
    """Learn a starting model from public text, or go on with one that stopped."""
    from simulation.starting.command import Request, learn_start
    from simulation.starting.texts import parse_text

    request = Request(
        texts=(
            *map(parse_text, asked.text),
            *(parse_text(text)._replace(is_early=True) for text in asked.early),
        ),
        measured=tuple(map(parse_text, asked.measure)),
        language=asked.language,
        words=asked.words,
        epochs=asked.epochs,
        width=asked.width,
        device=asked.device,
        seed=asked.seed,
        out=asked.out,
        pack=asked.pack,
    )
    learnt = learn_start(request)
    print(msgspec.json.encode(learnt).decode() if asked.json else learnt.in_words(), flush=True)
    return 0


class VoiceStartAsked(Printed, frozen=True, kw_only=True):
    """A start of voices to learn.

    Attributes:
        preset: Preset whose runs are to start from it; its model, and how it is stepped, are used.
        sentences: Sentences that each of espeak-ng's voices says, plain ones of a hundred words.
        text: Public text whose sentences take the place of every second plain one, a folder of text
            files or a data set by its name; may be repeated.
        recordings: Public recordings whose speakers are voices too; may be repeated.
        epochs: Passes over all clips; step sizes fall until the last one.
        batch_size: Clips of a step.
        learning_rate: Step size of the first pass.
        device: Processor to learn on.
        seed: Seed of the model, of the order of the clips and of dropout.
        out: Folder to work in; the same command goes on there where it stopped.
        pack: File to write: the start in eight bits a weight.
    """

    preset: str = "speech-espeak"
    sentences: Annotated[int, Flag(parse=at_least_one)] = 240
    text: Annotated[list[str], Flag("FOLDER|NAME=PATH")] = msgspec.field(default_factory=list)
    recordings: Annotated[list[str], Flag("NAME=PATH")] = msgspec.field(default_factory=list)
    epochs: Annotated[int, Flag(parse=at_least_one)] = 40
    batch_size: Annotated[int, Flag(parse=at_least_one)] = 8
    learning_rate: float = 0.02
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = 1
    out: Path
    pack: Annotated[Path, Flag("FILE")]


def voice_start(asked: VoiceStartAsked) -> int:
    """Learn a starting model of several voices, or go on with one that stopped."""
    from simulation.starting.texts import parse_recordings, parse_text
    from simulation.starting.voice_command import VoiceRequest, learn_voice_start

    request = VoiceRequest(
        preset=asked.preset,
        sentences_per_voice=asked.sentences,
        texts=tuple(map(parse_text, asked.text)),
        recordings=tuple(map(parse_recordings, asked.recordings)),
        epochs=asked.epochs,
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
        device=asked.device,
        seed=asked.seed,
        out=asked.out,
        pack=asked.pack,
    )
    learnt = learn_voice_start(request)
    print(msgspec.json.encode(learnt).decode() if asked.json else learnt.in_words(), flush=True)
    return 0
