"""Learn the public start with other families of the same size, and measure what each comes to.

Every family learns from the same text by the recipe of ``sotto-simulate start``, in the same order
and with the same seed, and has within 1 % as many parameters as the GRU of width 400 that ships.
The text is Reddit and the support channel, by default once: a fifteenth of what the start read.

    gru          The family that ships: embedding, GRU and tied output, all 400 wide.
    lstm         An LSTM in the GRU's place, 380 wide.
    cifg         An LSTM whose input gate is one minus its forget gate, 400 wide.
    gru-wide     A GRU 630 wide between an embedding and an output of 300, with a projection back.
    cifg-wide    The same with such an LSTM.

Figures (``--json`` prints them as one object), each by FAMILY:

    FAMILY.parameters          Elements of the model.
    FAMILY.seconds             Processor time of the training.
    FAMILY.sms_perplexity      Perplexity on the held-out text messages, over every token.
    FAMILY.sms_top1, FAMILY.sms_top3
                               Share of typed words that stand first, and among the first three.
    FAMILY.reddit_perplexity, FAMILY.reddit_top1, FAMILY.reddit_top3
                               The same of the held-out comments.

References:
    Hard et al., "Federated Learning for Mobile Keyboard Prediction", 2018, arXiv:1811.03604:
        coupled gates, and an embedding that is narrower than the state.
    Press and Wolf, "Using the Output Embedding to Improve Language Models", EACL 2017,
        arXiv:1608.05859: the projection in front of a tied output.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.parts.figures import benchmark_parser, show_figures
from models.layers.dropout import Dropout
from models.layers.output import OutputLayer
from models.layers.recurrence import Gru
from models.networks.gru_lm import EMBEDDING_RANGE, GruLm
from models.tasks.next_word import NextWord
from models.text.vocabulary import Vocabulary, shipped_vocabulary
from simulation.starting.steps_bar import StepsBar
from simulation.starting.texts import Corpus, NamedText, held_out, read_corpus
from simulation.starting.training import DROPOUT, Recipe, learn_network, step_count

LEARNT = ("reddit", "irc")
MEASURED = ("sms", "reddit")
SEED = 1
QUICK_PIECES = 300


class Lstm(nn.LSTM):
    """The framework's layer, with its state as one tensor, ``(1, batch, 2 * hidden)``."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)

    def forward(  # type: ignore[override]  # the framework's takes a pair as state
        self, values: Tensor, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return hidden states, ``(batch, time, hidden)``, and the last state."""
        pair = None
        if state is not None:
            before, cell = state.chunk(2, 2)
            pair = before.contiguous(), cell.contiguous()
        hidden, last = super().forward(values, pair)
        return hidden.float(), torch.cat(last, dim=2).float()


class Cifg(nn.Module):
    """An LSTM with coupled gates: c' = f c + (1 - f) g and h' = o tanh(c')."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.read = nn.Linear(input_size, 3 * hidden_size)
        self.carry = nn.Linear(hidden_size, 3 * hidden_size)

    def forward(self, values: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return hidden states, ``(batch, time, hidden)``, and the last state."""
        inputs = self.read(values).float()
        if state is None:
            state = inputs.new_zeros(1, len(inputs), 2 * self.hidden_size)
        hidden, cell = state[0].chunk(2, 1)
        states = []
        for given in inputs.unbind(1):
            forget, output, new = (given + self.carry(hidden)).float().chunk(3, 1)
            cell = torch.lerp(torch.tanh(new), cell, torch.sigmoid(forget))
            hidden = torch.sigmoid(output) * torch.tanh(cell)
            states.append(hidden)
        return torch.stack(states, dim=1), torch.cat([hidden, cell], dim=1)[None]


class Candidate(GruLm):
    """The keyboard's model with another recurrent layer, and a projection where widths differ."""

    def __init__(
        self,
        layer: Callable[[int, int], nn.Module],
        vocabulary_size: int,
        embedding: int,
        hidden: int,
    ) -> None:
        nn.Module.__init__(self)
        self.embedding = nn.Embedding(vocabulary_size, embedding)
        self.layer = layer(embedding, hidden)
        self.back = nn.Linear(hidden, embedding) if hidden != embedding else nn.Identity()
        self.output = OutputLayer(vocabulary_size, embedding, tied=True)
        self.dropout = Dropout(DROPOUT)
        self._bound = 1 / math.sqrt(hidden)

    def features(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return what the output matrix reads and the state; see ``LanguageModel``."""
        hidden, state = self.layer(self.dropout(self.embedding(tokens)), state)
        return self.dropout(self.back(hidden)).float(), state

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw as the keyboard's GRU is drawn."""
        self.embedding.weight.uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)
        for part in (self.layer, self.back):
            for parameter in part.parameters():
                parameter.uniform_(-self._bound, self._bound, generator=generator)
        self.output.bias.zero_()


FAMILIES: Mapping[str, tuple[Callable[[int, int], nn.Module], int, int]] = {
    "gru": (Gru, 400, 400),
    "lstm": (Lstm, 380, 380),
    "cifg": (Cifg, 400, 400),
    "gru-wide": (Gru, 300, 630),
    "cifg-wide": (Cifg, 300, 630),
}
"""Each family's recurrent layer, width of the embedding, and width of the state."""


def learn_family(
    name: str, corpus: Corpus, vocabulary: Vocabulary, epochs: int, work: Path
) -> tuple[Candidate, float]:
    """Learn a start of a family, or go on with one; return it and its processor seconds.

    The seconds are those of this run of the command, which may have gone on with another's.
    """
    layer, embedding, hidden = FAMILIES[name]
    network = Candidate(layer, len(vocabulary), embedding, hidden)
    recipe = Recipe(
        language="en",
        words_sha256=vocabulary.sha256.hex(),
        vocabulary_size=len(vocabulary),
        width=hidden,
        epochs=epochs,
        seed=SEED,
        texts=corpus.facts,
        text_sha256=corpus.sha256,
    )
    steps = step_count(recipe, corpus)
    checkpoint = work / f"{name}-{steps}-{corpus.sha256[:12]}.pt"
    started = time.process_time()
    with StepsBar(steps) as bar:
        learn_network(network, recipe, corpus, checkpoint, bar.stepped)
    return network, time.process_time() - started


def measure(network: GruLm, name: str, streams: Sequence[Tensor]) -> dict[str, float]:
    """Return a start's figures on what a text holds out, a stream for each user."""
    figures = NextWord().evaluate(network, streams).figures(of_words=True)
    return {
        f"{name}_perplexity": figures["perplexity"],
        f"{name}_top1": figures["top1_recall"],
        f"{name}_top3": figures["top3_recall"],
    }


def main() -> None:
    """Learn each family's start and show what it comes to."""
    parser = benchmark_parser(__doc__, quick="300 pieces of text: that it runs")
    data = os.environ.get("SOTTO_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), required=data is None)
    parser.add_argument("--epochs", type=int, default=1, help="passes over the text (default: 1)")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="may be repeated")
    parser.add_argument("--work", type=Path, default=Path("runs/start-families"))
    show_figures(_all(arguments := parser.parse_args()), "Families", as_json=arguments.json)


def _all(arguments: argparse.Namespace) -> dict[str, float]:
    vocabulary = shipped_vocabulary()
    # Before anything is learnt, and once for all families.
    measured = {name: held_out(NamedText(name, arguments.data), vocabulary) for name in MEASURED}
    corpus = read_corpus([NamedText(name, arguments.data) for name in LEARNT], vocabulary)
    if arguments.quick:
        corpus = corpus._replace(pieces=corpus.pieces[:QUICK_PIECES])
    arguments.work.mkdir(parents=True, exist_ok=True)
    figures: dict[str, float] = {}
    for name in arguments.family or FAMILIES:
        network, seconds = learn_family(name, corpus, vocabulary, arguments.epochs, arguments.work)
        found = {
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "seconds": seconds,
        }
        for text, streams in measured.items():
            found |= measure(network, text, streams)
        figures |= {f"{name}.{figure}": value for figure, value in found.items()}
    return figures


if __name__ == "__main__":
    main()
