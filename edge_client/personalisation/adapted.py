"""Train everyone's model on by oneself, and keep the outcome only if it does better.

The device trains on the older four fifths of its training text or clips, epoch after epoch, and
scores each epoch's model on the newest fifth, which it does not train on. The first epoch that does
not do better ends it. The best model is the device's own; where none does better than everyone's,
that stays the device's model, also when a newer one comes. What a round sends is trained as ever.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from edge_client.descent.descent import Descent
from edge_client.descent.optimisers import Optimiser
from edge_client.folder.layout import DeviceFolder
from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from edge_client.personalisation.own_model import (
    WHOLE_MODELS,
    lay_own_model,
    own_tensors,
    own_tensors_of,
)
from edge_client.personalisation.plain import PlainHalf
from edge_client.personalisation.state import PersonalState
from models.networks.flat_parameters import load_parameters, read_parameters
from models.settings.personalisation import AdaptedSettings, PersonalisationSettings
from models.tasks.metrics import Counts
from models.tasks.scoring import WordScores, chunked_logits
from models.tasks.speech_examples import SpeechExamples
from models.vector.schema import Schema, TensorSpec

_COMPARED = "adapted.compared"
_OLDER_TENTHS = 8  # Of the training text; what is newest decides.
_SIDE_BY_SIDE = 64
_LEAST_TARGETS = 64
"""Fewest tokens of newest text, or of older, by which a device can tell that its own is better.

By fewer, phones kept models of their own that saved up to 2.6 points of keys less.
"""
_LEAST_CLIPS = 2


class Comparison(NamedTuple):
    """What the device's newest text or clips say of the two models.

    Attributes:
        epochs: Epochs that made the device's own model; 0 if everyone's stayed.
        shared_loss: Loss of everyone's on the newest, the task's for a target: nats of a token, mel
            L1 of a frame.
        own_loss: The least loss of the device's own.
        target_count: Targets of the newest; 0 if there was too little to compare on.
    """

    epochs: int = 0
    shared_loss: float = 0.0
    own_loss: float = 0.0
    target_count: int = 0

    @property
    def keeps_own(self) -> bool:
        """Return whether the device has a model of its own."""
        return self.epochs > 0

    def in_words(self) -> str:
        """Return one line for the device's owner."""
        if not self.target_count:
            return (
                "not adapted yet, for want of data or before the federation's first_round; "
                "everyone's model stays this device's"
            )
        losses = f"a loss of {self.own_loss:.3f} against {self.shared_loss:.3f}"
        over = f"over {self.target_count:,} targets"
        if self.keeps_own:
            return f"adapted: better on this device's newest data than everyone's, {losses} {over}"
        return (
            f"not adapted: on this device's newest data everyone's model is no worse, {losses} "
            f"{over}; everyone's model stays this device's"
        )


class AdaptedHalf:
    """Plain training for the round, and beside it the device's own model."""

    def __init__(self, settings: AdaptedSettings) -> None:
        self._settings = settings
        self._plain = PlainHalf()

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return the own model under another name, and what it was compared by."""
        size = (len(Comparison._fields),)
        return (
            *own_tensors(schema),
            TensorSpec(name=_COMPARED, shape=size, layer=_COMPARED),
        )

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return everyone's model, compared with nothing."""
        return _kept(schema, model, Comparison())

    def train(self, client: ClientRound) -> Learnt:
        """Train what is sent and leave it in the network; adapt what was received."""
        network, schema = client.descent.network, client.schema
        learnt = self._plain.train(client)
        if client.round_number < self._settings.first_round:
            return Learnt(learnt.mean_loss, _kept(schema, client.received, Comparison()))
        trained = read_parameters(network, schema)
        own = self.adapt(client)
        load_parameters(network, schema, trained)
        return Learnt(learnt.mean_loss, own)

    def adapt(self, client: ClientRound) -> Mapping[str, Tensor]:
        """Return what the client keeps from now on; the network is left with any model."""
        descent, schema = client.descent, client.schema
        count = len(descent.examples)
        cut = count * _OLDER_TENTHS // 10
        is_speech = isinstance(descent.examples, SpeechExamples)
        if min(cut, count - cut) < (_LEAST_CLIPS if is_speech else _LEAST_TARGETS):
            return _kept(schema, client.received, Comparison())
        older, newest = descent.examples[:cut], descent.examples[cut:]
        load_parameters(descent.network, schema, client.received)
        shared_loss, target_count = _loss(descent, newest)
        best, compared = client.received, Comparison(0, shared_loss, float("inf"), target_count)
        steps = self._steps(descent, older)
        optimiser = Optimiser(descent.network, schema, steps.training)
        for epoch in range(1, self._settings.epochs + 1):
            steps.run(optimiser, epochs=1)
            loss, _ = _loss(descent, newest)
            # A model that left the finite numbers is not better.
            is_better = loss < min(compared.own_loss, shared_loss)
            compared = compared._replace(own_loss=min(compared.own_loss, loss))
            if not is_better:
                break
            best = read_parameters(descent.network, schema)
            compared = compared._replace(epochs=epoch)
        return _kept(schema, best, compared)

    def evaluate(self, client: ClientScoring) -> Counts:
        """Score the device's own model, everyone's newest where that stayed."""
        self._lay(client)
        return self._plain.evaluate(client)

    def word_scores(self, client: ClientScoring) -> WordScores:
        """Lay the model that predicts into the network."""
        self._lay(client)
        return chunked_logits

    def _lay(self, client: ClientScoring) -> None:
        if comparison_of(client.extras).keeps_own:
            lay_own_model(client)

    def _steps(self, descent: Descent, older: Any) -> Descent:  # Examples, as of the task.
        training = msgspec.structs.replace(
            descent.training, learning_rate=self._settings.learning_rate, decay=None
        )
        return Descent(
            descent.network,
            descent.task,
            older,
            training,
            generator=descent.generator,
            device=descent.device,
        )


def keeps_whole_model(settings: PersonalisationSettings, extras: Mapping[str, Tensor]) -> bool:
    """Return whether a client's model is one of its own, beside everyone's."""
    if isinstance(settings, AdaptedSettings):
        return comparison_of(extras).keeps_own
    return isinstance(settings, WHOLE_MODELS)


def comparison_of(extras: Mapping[str, Tensor]) -> Comparison:
    """Return by what a device's own model was chosen, from what the device keeps."""
    epochs, shared_loss, own_loss, target_count = extras[_COMPARED].tolist()
    return Comparison(int(epochs), shared_loss, own_loss, int(target_count))


def tell_owner(folder: DeviceFolder, state: PersonalState) -> None:
    """Note in the device's folder what came of adapting, where the method adapts."""
    if _COMPARED in state.extras:
        folder.note_adapted(comparison_of(state.extras).in_words())


def _kept(schema: Schema, model: Tensor, compared: Comparison) -> dict[str, Tensor]:
    finite = compared._replace(own_loss=min(compared.own_loss, torch.finfo(torch.float32).max))
    return own_tensors_of(schema, model) | {_COMPARED: torch.tensor(finite, dtype=torch.float32)}


def _loss(descent: Descent, newest: Any) -> tuple[float, int]:  # Examples, as of the task.
    counts = descent.task.evaluate(descent.network, [newest], batch_size=_SIDE_BY_SIDE)
    return counts.mean_log_loss, counts.token_count
