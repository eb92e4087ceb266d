"""Make each client's tensors by a hypernetwork that learns from their updates: FedTP, pFedHN.

A round pulls updates back through the making one at a time, so memory does not grow with the
cohort: φ's gradient is a mean, weighted p_i by example counts or equally, and an embedding's
gradient is p_i times its client's own. At the close φ and the rows of those that took part step by
SGD with momentum and weight decay. All other rows, momentum included, stay as they were to the bit;
in the authors' code they drift.

A new client's embedding follows from the run's seed and its name, and becomes a row at the close of
its first round. So asking for tensors changes nothing, and the order of clients plays no part.
pFedHN clips one gradient over φ and all embeddings. Here φ and each row are clipped apart, so that
an embedding depends on its own client and φ alone, as a guarantee for everybody else needs.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, Algorithm 1.
    [pFedHN] Shamsian et al., ICML 2021, arXiv:2103.04628.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.networks.flat_parameters import check_flat
from models.personal.hypernetwork import Hypernetwork, draw_embedding
from models.personal.hypernetwork_state import HypernetworkState, Row, state_of_tensors
from models.settings.hypernetwork import HypernetworkSettings, embedding_schema
from models.vector.schema import Schema
from privacy.accounting.events import Adjacency
from privacy.clipping.clip import check_finite, clip
from privacy.clipping.sensitivity import UnprovedSensitivityError
from privacy.clipping.settings import ClippingSettings
from server.aggregation.registry import build_rule
from server.aggregation.rule import AggregationRule
from server.aggregation.screening import largest_element
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import MeanSettings
from server.personalisation.round_terms import AddNoise, RoundTerms

_LARGEST_FLOAT = 3.4e38


class HypernetworkHalf:
    """The hypernetwork of one run; the methods are those of ``ServerHalf``."""

    def __init__(
        self, settings: HypernetworkSettings, generated: Schema, *, run_seed: int, initial: Tensor
    ) -> None:
        """Start a hypernetwork that has learnt nothing, drawn from the run's seed.

        ``initial`` holds the generated tensors' start in one model for everyone, flat float32,
        shape ``(generated elements,)``.

        Raises:
            ValueError: If nothing is to be generated, or ``initial`` does not fit.
        """
        self._settings = settings
        self._run_seed = run_seed
        self._hypernetwork = Hypernetwork(settings, generated)
        self._hypernetwork.initialise(torch.Generator().manual_seed(run_seed), initial)
        self._velocity = torch.zeros_like(self._hypernetwork.phi)
        self._rows: dict[str, Row] = {}
        self._round: _Round | None = None

    def parameters_for(self, client_name: str) -> Tensor:
        """Return the client's tensors; those of a client without a row start at its own draw."""
        return self._hypernetwork.generate(self._row(client_name).embedding)

    @property
    def phi(self) -> Tensor:
        """Return φ as it is now, flat float32 in the order of ``phi_schema``; not to be changed."""
        return self._hypernetwork.phi

    @property
    def phi_schema(self) -> Schema:
        """Return the tensors of φ."""
        return self._hypernetwork.schema

    def knows(self, client_name: str) -> bool:
        """Return whether a client has a row: it took part, or has fitted its embedding."""
        return client_name in self._rows

    def adopt(self, client_name: str, embedding: Tensor) -> None:
        """Take the embedding that a client without a row has fitted by itself.

        Raises:
            ValueError: If the client has a row, or the embedding does not fit.
        """
        if self.knows(client_name):
            raise ValueError(f'client "{client_name}" must have no embedding yet, it has one')
        size = self._settings.embedding_size
        check_flat(embedding, embedding_schema(self._settings))
        self._rows[client_name] = Row(embedding.clone(), torch.zeros(size))

    def begin(self, terms: RoundTerms) -> None:
        """Start an attempt at a round; what an earlier attempt took is forgotten."""
        self._round = _Round(self._settings, self._hypernetwork.schema, terms)

    def sensitivity(self, slot_count: int, adjacency: Adjacency) -> float:
        """Return the bound on φ's averaged gradient: each client's is clipped to one norm."""
        norm = self._settings.client_gradient_norm
        if norm is None:
            raise UnprovedSensitivityError(
                "personalisation.hypernetwork.client_gradient_norm must be given under a "
                "guarantee: clipping updates does not bound what they teach the hypernetwork"
            )
        return aggregate_sensitivity(
            MeanSettings(weighting="equal"),
            self._hypernetwork.schema,
            ClippingSettings(clipping_norm=norm),
            slot_count=slot_count,
            adjacency=adjacency,
        )

    def take(self, client_name: str, generated_update: Tensor, example_count: int) -> None:
        """Pull one update back through the making and add it to the round."""
        taking = self._open_round()
        pulled = self._hypernetwork.pull_back(
            self._row(client_name).embedding, generated_update, into=taking.memory
        )
        check_finite(pulled.embedding)  # Here it is one update's fault, at the close the round's.
        taking.add(client_name, pulled.phi, pulled.embedding, example_count)

    def close(self, add_noise: AddNoise | None = None) -> None:
        """Step φ and the rows of those that took part; a failure leaves both as they were."""
        taken, self._round = self._open_round(), None
        gradient, row_gradients = taken.close()
        if add_noise is not None:
            gradient = add_noise(gradient)
        phi = self._hypernetwork.phi
        velocity = self._velocity_after(gradient.float(), phi, self._velocity)
        rows = {name: self._stepped(name, row) for name, row in row_gradients.items()}
        _check_step(phi, velocity, self._settings.learning_rate)
        phi.sub_(velocity, alpha=self._settings.learning_rate)
        self._velocity = velocity
        self._rows |= rows

    def state(self) -> Mapping[str, Tensor]:
        """Return φ, the table and both momenta, as ``models.personal.hypernetwork_state`` does."""
        state = HypernetworkState(self._hypernetwork.phi, self._velocity, self._rows)
        return state.to_tensors(self._settings, self._hypernetwork.generated)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take up a state; what was taken since the last close is forgotten."""
        loaded = state_of_tensors(state, self._settings, self._hypernetwork.generated)
        self._hypernetwork.phi = loaded.phi
        self._velocity, self._rows, self._round = loaded.velocity, loaded.rows, None

    def grow(self, generated: Schema, initial: Tensor, seed: int) -> None:
        """Make the tensors of a model with more layers; embeddings stay as they are."""
        generator = torch.Generator().manual_seed(seed)
        grown = self._hypernetwork.grown(generated, initial, generator)
        still = torch.zeros_like(grown.phi)
        self._velocity = self._hypernetwork.carried(self._velocity, grown, still)
        self._hypernetwork, self._round = grown, None

    def forget(self, client_name: str) -> None:
        """Drop a client's row, if it has one: what it starts from is its first draw again."""
        self._rows.pop(client_name, None)

    def _open_round(self) -> "_Round":
        if self._round is None:
            raise ValueError("a round must be begun before updates are taken or it is closed")
        return self._round

    def _row(self, client_name: str) -> Row:
        if client_name in self._rows:
            return self._rows[client_name]
        size = self._settings.embedding_size
        drawn = draw_embedding(size, run_seed=self._run_seed, client_name=client_name)
        return Row(drawn, torch.zeros(size))

    def _stepped(self, client_name: str, gradient: Tensor) -> Row:
        row = self._row(client_name)
        if self._settings.embeddings == "fixed":
            return row
        velocity = self._velocity_after(gradient, row.embedding, row.velocity)
        step = self._settings.embedding_step
        _check_step(row.embedding, velocity, step)
        return Row(row.embedding - step * velocity, velocity)

    def _velocity_after(self, gradient: Tensor, values: Tensor, velocity: Tensor) -> Tensor:
        """Return the momentum after a gradient, in whose memory it may be."""
        clipped, _ = clip(gradient, self._settings.gradient_clipping_norm)
        clipped.add_(values, alpha=self._settings.weight_decay)
        return clipped.add_(velocity, alpha=self._settings.momentum)


class _Round:
    def __init__(self, settings: HypernetworkSettings, phi: Schema, terms: RoundTerms) -> None:
        self._rule: AggregationRule = build_rule(
            MeanSettings(weighting=terms.weighting),
            phi,
            slot_count=terms.slot_count,
            clipping_norm=settings.client_gradient_norm,
            under_guarantee=terms.is_noised,
        )
        self._rows: dict[str, Tensor] = {}
        self.memory = torch.empty(phi.element_count)  # For one client's gradient after another.

    def add(self, client_name: str, phi: Tensor, row: Tensor, example_count: int) -> None:
        if client_name in self._rows:
            raise ValueError(f'client "{client_name}" must have one update a round, got two')
        self._rule.add(len(self._rows), phi, example_count)
        self._rows[client_name] = row

    def close(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return Σ p_i g_i over φ, flat, and p_i times each client's own; ends the gathering."""
        weights = self._rule.weights()
        shares = [] if weights is None else [share for (share,) in weights.shares]
        rows = zip(self._rows.items(), shares, strict=True)
        return self._rule.result(), {name: row * share for (name, row), share in rows}


def _check_step(values: Tensor, velocity: Tensor, learning_rate: float) -> None:
    """Refuse a step that would leave float32, before anything has moved."""
    reach = largest_element(values) + learning_rate * largest_element(velocity)
    if not reach <= _LARGEST_FLOAT:
        raise ValueError(
            "the hypernetwork's step must be finite; lower personalisation.hypernetwork."
            "learning_rate and embedding_learning_rate, or set its gradient_clipping_norm"
        )
