"""Keep a whole model of the client's own beside the one that travels: pFedMe and Ditto.

References:
    [pFedMe] T. Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020,
        arXiv:2006.08848, algorithm 1.
    [Ditto] Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML
        2021, arXiv:2012.04221, algorithm 1.
"""

from collections.abc import Mapping

import msgspec
import torch
from torch import Tensor

from edge_client.descent.optimisers import Optimiser
from edge_client.personalisation.method import ClientRound, ClientScoring, Learnt
from edge_client.personalisation.plain import PlainHalf
from edge_client.personalisation.proximal import pull_towards
from models.networks.flat_parameters import load_parameters, read_parameters, trained_schema
from models.networks.role_vectors import part_of
from models.settings.personalisation import AdaptedSettings, DittoSettings, PFedMeSettings
from models.tasks.metrics import Counts
from models.tasks.scoring import WordScores, chunked_logits
from models.vector.schema import Schema, TensorSpec

_PREFIX = "own."

WHOLE_MODELS = (AdaptedSettings, DittoSettings, PFedMeSettings)
"""Methods that keep a whole model beside the one that travels."""


class PFedMeHalf:
    """Training of θ, drawn to the client's copy w of the global model; w is sent ([pFedMe]).

    θ starts from the received model and persists between batches. Buffers are θ's and w's alike.
    """

    def __init__(self, settings: PFedMeSettings) -> None:
        self._settings = settings
        self._plain = PlainHalf()

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return θ: every tensor of the model under another name."""
        return own_tensors(schema)

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return the model itself."""
        return own_tensors_of(schema, model)

    def train(self, client: ClientRound) -> Learnt:
        """Take K steps of θ on each batch, then one of w towards θ; leave w in the network."""
        settings, descent = self._settings, client.descent
        network, training = descent.network, descent.training
        moved = trained_schema(network, client.schema)
        copy = part_of(client.received, client.schema, moved)

        @torch.no_grad()
        def move_copy() -> None:
            own = read_parameters(network, moved)
            copy.add_(own - copy, alpha=training.learning_rate * settings.attraction)

        inner = msgspec.structs.replace(training, learning_rate=settings.inner_learning_rate)
        mean_loss = descent.run(
            Optimiser(network, client.schema, inner),
            steps_per_batch=settings.inner_steps,
            before_step=pull_towards(network, moved, copy, settings.attraction),
            after_batch=move_copy,
        )
        own = own_tensors_of(client.schema, read_parameters(network, client.schema))
        load_parameters(network, moved, copy)
        return Learnt(mean_loss, own)

    def evaluate(self, client: ClientScoring) -> Counts:
        """Score θ."""
        return _evaluate_own(client, self._plain)

    def word_scores(self, client: ClientScoring) -> WordScores:
        """Lay θ into the network, whose scores it then gives."""
        return _own_word_scores(client)


class DittoHalf:
    """The global model trained as ever, and one of one's own held near the received ([Ditto])."""

    def __init__(self, settings: DittoSettings) -> None:
        self._settings = settings
        self._plain = PlainHalf()

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return v: every tensor of the model under another name."""
        return own_tensors(schema)

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return the model itself: v starts from it, and until then it is what predicts."""
        return own_tensors_of(schema, model)

    def train(self, client: ClientRound) -> Learnt:
        """Train the global model, then v with a fresh optimiser; leave the first in the network."""
        descent, schema, network = client.descent, client.schema, client.descent.network
        mean_loss = descent.run(client.optimiser)
        trained = read_parameters(network, schema)
        load_parameters(network, schema, own_model(schema, client.extras))
        descent.run(
            Optimiser(network, schema, descent.training),
            before_step=pull_towards(
                network, schema, client.received, self._settings.proximal_strength
            ),
        )
        own = own_tensors_of(schema, read_parameters(network, schema))
        load_parameters(network, schema, trained)
        return Learnt(mean_loss, own)

    def evaluate(self, client: ClientScoring) -> Counts:
        """Score v."""
        return _evaluate_own(client, self._plain)

    def word_scores(self, client: ClientScoring) -> WordScores:
        """Lay v into the network, whose scores it then gives."""
        return _own_word_scores(client)


def own_model(schema: Schema, extras: Mapping[str, Tensor]) -> Tensor:
    """Return the client's own model from ``extras``, flat float32 in the order of ``schema``."""
    return torch.cat([extras[_PREFIX + spec.name].reshape(-1) for spec in schema.tensors])


def own_tensors(schema: Schema) -> tuple[TensorSpec, ...]:
    """Return every tensor of a model under another name."""
    return tuple(msgspec.structs.replace(spec, name=_PREFIX + spec.name) for spec in schema.tensors)


def own_tensors_of(schema: Schema, model: Tensor) -> dict[str, Tensor]:
    """Return a model, flat float32 in the order of ``schema``, as a client keeps it for its own."""
    return {
        _PREFIX + spec.name: model[schema.slices[spec.name]].view(spec.shape)
        for spec in schema.tensors
    }


def _evaluate_own(client: ClientScoring, plain: PlainHalf) -> Counts:
    lay_own_model(client)
    return plain.evaluate(client)


def _own_word_scores(client: ClientScoring) -> WordScores:
    lay_own_model(client)
    return chunked_logits


def lay_own_model(client: ClientScoring) -> None:
    """Lay the client's own model into the network that predicts."""
    load_parameters(client.network, client.schema, own_model(client.schema, client.extras))
