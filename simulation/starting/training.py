"""Steps downhill on public text, kept on disk so that they can stop at any moment and go on.

The recipe is fixed but for width, epochs and seed: AdamW with decoupled weight decay, a step size
that rises and then falls along a cosine, dropout, a loss over a draw of the word list, and products
in bfloat16 where the processor gains from it. On one thread of one kind of processor, the same text
and seed give the same bits, in one go or with interruptions; not so on a graphics processor.

References:
    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, arXiv:1711.05101.
    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017,
        arXiv:1608.03983: the cosine, once and without a restart.
"""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from edge_client.descent.compute import gains_from_bfloat16, prepare_compute
from models.compression.packed_model import PublicText
from models.layers.dropout import use_generator
from models.networks.flat_parameters import read_parameters
from models.networks.registry import WordNetwork, build_network, word_network
from models.plan.plan import TrainingSettings
from models.settings.model import GruLmSettings, schema_of
from models.tasks.next_word import LEAST_TOKENS, NextWord
from models.tasks.text_streams import PADDING, Window
from models.vector.seeds import client_seed
from simulation.starting.checkpoints import keep, kept
from simulation.starting.sampled_loss import sampled_cross_entropy
from simulation.starting.texts import Corpus

TRAINING = TrainingSettings(
    optimiser="adam",
    learning_rate=3e-3,
    weight_decay=0.1,
    gradient_clipping_norm=1.0,
    batch_size=64,
    bptt_steps=32,
    precision="bfloat16",
)
"""What a release says of how it was learnt."""

CHECKPOINT_STEPS = 100
"""Steps between two checkpoints: half a minute of one core at the shipped start's size."""

DROPOUT = 0.3
"""Probability of dropping an element of the embedding and of the features."""

_DRAW = 1024
_BETAS = (0.9, 0.99)
_RISING_STEPS = 200
_LEAST_RATE = 1e-5
_NAME = "start"

OnStep = Callable[[int, float], None]
"""Told of every step, from 1, and of its loss in nats a token."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts that fix a start to the bit, so that none is gone on with as another.

    Attributes:
        words_sha256: Hex digest of the word list.
        text_sha256: Hex digest of all rows to learn from.
    """

    language: str
    words_sha256: str
    vocabulary_size: int
    width: int
    epochs: int
    seed: int
    texts: tuple[PublicText, ...]
    text_sha256: str

    @property
    def model(self) -> GruLmSettings:
        """Return the settings that a federation names to start from it."""
        return GruLmSettings(vocabulary_size=self.vocabulary_size, hidden_size=self.width)


def step_count(recipe: Recipe, corpus: Corpus) -> int:
    """Return the steps of the whole training; an epoch's last window may be a short one."""
    return sum(_steps_by_epoch(recipe, corpus))


def learn(
    recipe: Recipe, corpus: Corpus, checkpoint: Path, on_step: OnStep, *, device: str = "cpu"
) -> Tensor:
    """Return the parameters after the last step, flat float32, from a checkpoint on if it is there.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        ComputeError: If there is no such device.
        StoppedStartError: If the checkpoint cannot be read, or is of another kind of device.
        ValueError: If there is too little text.
        OSError: If the disk is full.
    """
    settings = msgspec.structs.replace(recipe.model, dropout=DROPOUT)
    network = word_network(build_network(settings))
    learn_network(network, recipe, corpus, checkpoint, on_step, device=device)
    return read_parameters(network.cpu(), schema_of(recipe.model))


def learn_network(
    network: WordNetwork,
    recipe: Recipe,
    corpus: Corpus,
    checkpoint: Path,
    on_step: OnStep,
    *,
    device: str = "cpu",
) -> None:
    """Draw a network's parameters and take every step; see ``learn``."""
    least = corpus.token_count(recipe.epochs - 1, recipe.epochs)
    if least < LEAST_TOKENS:
        raise ValueError(f"text must have at least {LEAST_TOKENS} tokens, got {least}")
    training = _Training(network, recipe, corpus, device)
    if checkpoint.exists():
        training.restore(checkpoint)
    training.finish(checkpoint, on_step)


class _Training:
    """A network on its way."""

    def __init__(self, network: WordNetwork, recipe: Recipe, corpus: Corpus, device: str) -> None:
        self._recipe = recipe
        self._corpus = corpus
        self._steps = _steps_by_epoch(recipe, corpus)
        self._total = sum(self._steps)
        self._device = prepare_compute(device, threads=1, model=recipe.model)
        # A graphics processor waits for the recurrence, whatever the products' type.
        self._in_bfloat16 = self._device.type == "cpu" and gains_from_bfloat16(self._device)
        self.network = network
        self.network.initialise(torch.Generator().manual_seed(recipe.seed))
        self.network.to(self._device)
        self._dropout = self._generator(1, "dropout", self._device)
        use_generator(self.network, self._dropout)
        self._optimiser = torch.optim.AdamW(
            self.network.parameters(),
            lr=TRAINING.learning_rate,
            betas=_BETAS,
            weight_decay=TRAINING.weight_decay,
            fused=True,
        )
        self._done = 0
        self._carried: Tensor | None = None

    def finish(self, checkpoint: Path, on_step: OnStep) -> None:
        for window in self._windows():
            self.network.train()
            with torch.autocast("cpu", torch.bfloat16, enabled=self._in_bfloat16):
                loss = self._loss(window)
            self._step(loss)
            if self._done % CHECKPOINT_STEPS == 0 or self._done == self._total:
                self._keep(checkpoint)
            on_step(self._done, float(loss.detach()))

    def _windows(self) -> Iterator[Window]:
        """Yield the windows that are left; of epochs that are done no text is shuffled."""
        epochs, passed = self._recipe.epochs, self._done
        for epoch, steps in enumerate(self._steps):
            if passed >= steps:
                passed -= steps
                continue
            generator = self._generator(epoch + 1, "data")
            text = self._corpus.shuffled(epoch, epochs, generator)
            windows = NextWord().batches(text, TRAINING, self.network, generator)
            yield from islice(windows, passed, None)
            passed = 0

    def restore(self, checkpoint: Path) -> None:
        with kept(checkpoint) as parts:
            self.network.load_state_dict(parts["network"])
            self._optimiser.load_state_dict(parts["optimiser"])
            self._dropout.set_state(parts["dropout"])
            self._done, self._carried = int(parts["done"]), parts["carried"]
            if self._carried is not None:
                self._carried = self._carried.to(self._device)

    def _loss(self, window: Window) -> Tensor:
        state = None if window.starts_text else self._carried
        features, state = self.network.features(window.inputs.to(self._device), state)
        self._carried = None if state is None else state.detach()
        targets = window.targets.flatten()
        places = torch.nonzero(targets != PADDING).squeeze(1)
        return sampled_cross_entropy(
            features.flatten(0, 1)[places.to(self._device)],
            self.network.output_weight,
            self.network.output_bias,
            targets[places],
            draw=_DRAW,
            generator=self._generator(self._done + 1, "draw"),
        )

    def _step(self, loss: Tensor) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = _rate(self._done, self._total)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        torch.nn.utils.clip_grad_norm_(
            self.network.parameters(), TRAINING.gradient_clipping_norm or math.inf
        )
        self._optimiser.step()
        self._done += 1

    def _keep(self, checkpoint: Path) -> None:
        parts = {
            "network": self.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "dropout": self._dropout.get_state(),
            "done": self._done,
            "carried": self._carried,
        }
        keep(checkpoint, parts)

    def _generator(
        self, number: int, purpose: str, device: torch.device | None = None
    ) -> torch.Generator:
        seed = client_seed(self._recipe.seed, number, _NAME, purpose=purpose)
        return torch.Generator(device or "cpu").manual_seed(seed)


def _steps_by_epoch(recipe: Recipe, corpus: Corpus) -> list[int]:
    """Return the windows of every pass, as ``training_windows`` cuts them."""
    return [
        _epoch_steps(corpus.token_count(epoch, recipe.epochs)) for epoch in range(recipe.epochs)
    ]


def _epoch_steps(tokens: int) -> int:
    longest_piece = -(-tokens // min(TRAINING.batch_size, tokens // 2))
    return -(-longest_piece // TRAINING.bptt_steps)


def _rate(done: int, total: int) -> float:
    """Return the step size after some steps: up in a line, down along half a cosine."""
    rising = min(1.0, (done + 1) / min(_RISING_STEPS, total))
    falling = (1 + math.cos(math.pi * min(1.0, done / total))) / 2
    return TRAINING.learning_rate * rising * falling + _LEAST_RATE
