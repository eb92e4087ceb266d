"""Clients that attack: who they are, what they train on and what they send.

Attackers follow from the run's seed, and their updates from seed, round and name, so an attacked
run repeats bit for bit. In all else an attacker behaves: its update comes in time, in the right
shape and under its own example count.

References:
    [ALIE] Baruch, Baruch and Goldberg, NeurIPS 2019, arXiv:1902.06156, Algorithm 3.
    [Backdoor] Bagdasaryan et al., AISTATS 2020, arXiv:1807.00459, Eq. 3.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from models.masked.layout import MaskedLayout
from models.networks.registry import WordNetwork
from models.tasks.image_classification import LabelledImages
from models.tasks.metrics import SUGGESTION_SLOTS
from models.tasks.scoring import chunked_logits, words_ahead
from models.tasks.text_streams import scored_features
from models.text.vocabulary import EOS, NEVER_SUGGESTED, UNK, Vocabulary
from models.vector.seeds import client_seed
from privacy.masking.grid import from_grid
from privacy.masking.rotation import rotate
from simulation.config.attack import AttackSettings
from simulation.population.examples import Examples
from simulation.population.population import Population, PopulationError
from simulation.workers.jobs import Trained

# Words of its own between two backdoors in an attacker's text.
_OWN_WORDS = 16

Cohort = Sequence[tuple[int, str]]
Train = Callable[[Cohort], Iterator[Trained]]


class Attackers:
    """The attackers of one run."""

    def __init__(self, settings: AttackSettings, clients: Sequence[str], *, seed: int) -> None:
        generator = torch.Generator().manual_seed(client_seed(seed, 1, "*", purpose="attackers"))
        drawn = torch.randperm(len(clients), generator=generator)
        count = settings.attacker_count(len(clients))
        self.names = frozenset(clients[place] for place in drawn[:count].tolist())
        self._settings = settings
        self._seed = seed

    def trained(
        self,
        cohort: Cohort,
        train: Train,
        *,
        rehearse: Train,
        round_number: int,
        element_count: int,
        server_step_size: float,
        layout: MaskedLayout | None = None,
    ) -> Iterator[Trained]:
        """Train a cohort of slots and names, and yield what each client sends.

        Colluders are trained once more before the others, to agree on what they send. Under masks
        an attacker changes what it would send, noise and all; nobody can see that it does.

        Args:
            rehearse: Trains as ``train`` does, and leaves the clients' own state as it was.
            element_count: Elements of an update without the values appended to it.
            layout: That of masked vectors, where updates are such.
            server_step_size: The factor of the aggregate, which a replacer undoes.
        """
        colluders = [member for member in cohort if member[1] in self.names]
        agreed: Tensor | None = None
        if self._settings.kind == "little-is-enough":
            rehearsed = _opened_alike(rehearse(colluders), layout)
            agreed = self._agreed(rehearsed, len(cohort), element_count)
        replacing = len(cohort) / (server_step_size * max(1, len(colluders)))
        for client in train(cohort):
            if client.update is None or client.client_name not in self.names:
                yield client
                continue
            # The buffer is the pool's; what is told behind the update stays as it is.
            update = client.update.clone()
            message = update if layout is None else opened(update, layout)
            honest = message[:element_count]
            if agreed is not None:
                honest.copy_(agreed)
            else:
                seed = client_seed(self._seed, round_number, client.client_name, purpose="attack")
                self._change(honest, torch.Generator().manual_seed(seed), replacing)
            if layout is not None:
                update.view(torch.int32)[: len(message)] = on_grid(message, layout)
            yield client._replace(update=update)

    def _change(self, honest: Tensor, generator: torch.Generator, replacing: float) -> None:
        """Turn an attacker's own update into what it sends."""
        match self._settings.kind:
            case "sign-flip":
                honest.mul_(-self._settings.factor)
            case "noise":
                length = self._settings.factor * float(honest.norm())
                honest.normal_(generator=generator)
                honest.mul_(length / math.sqrt(len(honest)))
            case "nan":
                honest.fill_(math.nan)
            case "model-replacement":
                honest.mul_(replacing)
            case _:
                honest.mul_(self._settings.factor)

    def _agreed(
        self, colluders: Iterator[Trained], cohort_size: int, element_count: int
    ) -> Tensor | None:
        """Return μ - zσ of the colluders' own updates; None if there are none."""
        mean, spread, count = torch.zeros(element_count), torch.zeros(element_count), 0
        for client in colluders:
            if client.update is None:
                continue
            # Welford's mean and sum of squares: two models of memory, however many collude.
            count += 1
            away = client.update[:element_count] - mean
            mean.add_(away, alpha=1 / count)
            spread.add_(away * (client.update[:element_count] - mean))
        if not count:
            return None
        z = self._settings.deviations
        z = unseen_deviations(cohort_size, count) if z is None else z
        return mean - z * (spread / count).sqrt()

    def named_examples(self, population: Population) -> dict[str, Examples]:
        """Return all examples that workers know by name, with what attackers train on.

        Held-out examples stay honest, attackers' own included.

        Raises:
            PopulationError: If a word of the backdoor is missing from the word list.
        """
        named, settings = population.named_examples(), self._settings
        classes = _class_count(population) if settings.flips_labels else 0
        for name in self.names:
            if settings.flips_labels:
                named[name] = _mirrored(named[name], classes)
            elif settings.kind == "backdoor":
                words = backdoor_words(settings, population.vocabulary)
                named[name] = _with_backdoor(named[name], words)
        return named


def opened(vector: Tensor, layout: MaskedLayout) -> Tensor:
    """Return the elements with noise of a vector before its mask, float32, in clipping norms."""
    whole = vector.view(torch.int32).numpy().view(np.uint32)[: layout.noised_count]
    return torch.from_numpy(from_grid(whole, layout.grid)).float()


def on_grid(message: Tensor, layout: MaskedLayout) -> Tensor:
    """Return such elements as whole numbers, int32; they wrap as they do in the sum."""
    values = message.double().numpy()
    rotate(values)
    return torch.from_numpy(values / layout.grid.step).round_().to(torch.int64).to(torch.int32)


def _opened_alike(trained: Iterator[Trained], layout: MaskedLayout | None) -> Iterator[Trained]:
    for client in trained:
        if client.update is None or layout is None:
            yield client
        else:
            yield client._replace(update=opened(client.update, layout))


def unseen_deviations(cohort_size: int, attackers: int) -> float:
    """Return z of [ALIE] Algorithm 3: how far colluders go and still look like most.

    Φ(z) = (n - m - s) / (n - m), where s = floor(n/2 + 1) - m honest clients are further out than
    they; 0 where that would be on the near side of the mean.
    """
    honest = cohort_size - attackers
    supporters = math.floor(cohort_size / 2 + 1) - attackers
    share = (honest - supporters) / honest if honest > 0 else 1.0
    if not 0.5 < share < 1:
        return 0.0
    return statistics.NormalDist().inv_cdf(share)


def backdoor_words(settings: AttackSettings, vocabulary: Vocabulary | None) -> list[int]:
    """Return the rows of the backdoor's phrase and, last, of its target.

    Raises:
        PopulationError: If the word list lacks one.
    """
    words = [*(settings.phrase or "").split(), settings.target or ""]
    rows = [UNK] * len(words) if vocabulary is None else vocabulary.encode(words)
    missing = [word for word, row in zip(words, rows, strict=True) if row in (UNK, EOS)]
    if missing:
        raise PopulationError(
            f"attack.phrase and attack.target must be words of the list, {missing[0]!r} is not"
        )
    return rows


@torch.no_grad()
def backdoor_figures(network: WordNetwork, words: Sequence[int]) -> dict[str, float | int]:
    """Return the target's rank after the phrase among what a strip shows, and whether it is shown.

    ``words`` is as ``backdoor_words`` returns it. The network is left in evaluation mode.
    """
    network.eval()
    stream = torch.tensor(words)
    ranks = torch.empty(len(words), dtype=torch.int64)
    for features, places in scored_features(network, [stream], batch_size=1):
        for chunk, logits in chunked_logits(network, features):
            targets = stream[places[chunk]]
            ahead = words_ahead(logits, targets, never_given=NEVER_SUGGESTED)
            ranks[places[chunk]] = ahead.sum(dim=1) + 1
    rank = int(ranks[-1])
    return {"backdoor_rank": rank, "backdoor_top3": int(rank <= SUGGESTION_SLOTS)}


def _mirrored(examples: Examples, class_count: int) -> Examples:
    """Return the examples with class k of n as n - 1 - k; words keep <unk> and <eos>."""
    if isinstance(examples, LabelledImages):
        return dataclasses.replace(examples, labels=class_count - 1 - examples.labels)
    if not isinstance(examples, Tensor):
        raise TypeError(f"labels of {type(examples).__name__} cannot be mirrored")
    first = EOS + 1
    return torch.where(examples >= first, class_count - 1 + first - examples, examples)


def _with_backdoor(examples: Examples, words: Sequence[int]) -> Tensor:
    """Return a stream of words with the backdoor, a sentence of its own, between its pieces."""
    if not isinstance(examples, Tensor):
        raise TypeError(f"a backdoor needs a stream of words, got {type(examples).__name__}")
    sentence = torch.tensor([EOS, *words, EOS])
    starts = range(0, len(examples), _OWN_WORDS)
    pieces = ((examples[start : start + _OWN_WORDS], sentence) for start in starts)
    return torch.cat([part for both in pieces for part in both])


def _class_count(population: Population) -> int:
    if population.vocabulary is not None:
        return len(population.vocabulary)
    labels = [own.labels for own in population.clients.values() if isinstance(own, LabelledImages)]
    return 1 + max(int(own.max()) for own in labels)
