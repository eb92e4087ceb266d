"""Make a client's tensors from its embedding, and pull its training back through the making.

Each client's embedding z_i goes through an MLP, and each generated tensor has an output layer of
its own: to_qkv of every block under FedTP, every weight and bias under pFedHN. The client trains
these tensors and sends D_i = trained - given. [FedTP] Eq. 7 and 8 chain the local gradient into the
hypernetwork φ and into z_i by one vector-Jacobian product. A step *against* the gradient must move
the output *along* D_i, so the output's gradient is -D_i. The paper prints D_i itself, which
ascends; the authors' code has the sign that is used here.

Output layers. ``literal`` is the paper's: Linear(150, elements) for each tensor, started as the
framework starts any linear layer. ``mixture`` writes the tensor as base + Σ_k a_k(h) U_k with few
directions U_k: the literal layer with its matrix held at a low rank, at a tenth of its size. Its
base starts as the model itself would, so that the first round trains a sound model.

With ``spectral_norm`` linear layers use W / σ(W) in place of their matrix W
(`models.layers.spectral_norm`); φ holds W.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section III-C, Eq. 7-10.
    [pFedHN] Shamsian et al., ICML 2021, arXiv:2103.04628.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from models.layers.spectral_norm import NormedMatrix, normed
from models.networks.flat_parameters import check_flat
from models.settings.hypernetwork import (
    HIDDEN_LAYER_COUNT,
    HypernetworkSettings,
    hypernetwork_schema,
)
from models.vector.schema import Schema
from models.vector.seeds import client_seed

_Named = Mapping[str, Tensor]

_MIXING_GAIN = 4.0
"""How much larger than 1/√width the mixing weights start.

The framework's linear layers shrink what comes out of the MLP to a standard deviation of 0.065; at
4, the squares of 14 shares add up to about 1, as much again as the base takes of each step. With 1
instead, the projections stand nearly still for the first hundred rounds.
"""


@dataclass(frozen=True)
class PulledBack:
    """The gradients that one client's update gives.

    Attributes:
        phi: Gradient by the hypernetwork's own parameters, flat float32, ``(elements of φ,)``.
        embedding: Gradient by the client's embedding, float32, shape ``(embedding_size,)``.
    """

    phi: Tensor
    embedding: Tensor


class Hypernetwork:
    """h(φ; z): an MLP, and an output layer for each generated tensor.

    Every method raises ``ValueError`` if a tensor has another shape or dtype than its schema says.

    Attributes:
        settings: Widths and kind of output.
        generated: The generated tensors, in order.
        schema: Its own tensors, φ, in the order of ``phi``.
        phi: Their values, flat float32, shape ``(elements of φ,)``; step them in place.
    """

    def __init__(self, settings: HypernetworkSettings, generated: Schema) -> None:
        """Make a hypernetwork with every parameter zero; refuse one that generates nothing."""
        if not generated.tensors:
            raise ValueError("a hypernetwork must generate at least one tensor, got none")
        self.settings = settings
        self.generated = generated
        self.schema = hypernetwork_schema(settings, generated)
        self.phi = torch.zeros(self.schema.element_count)
        self._kept: tuple[Tensor, int, dict[str, NormedMatrix]] | None = None

    @property
    def used_phi(self) -> Tensor:
        """Return φ as its layers use it: itself, or with ``spectral_norm`` its matrices divided."""
        if not self.settings.spectral_norm:
            return self.phi
        return torch.cat([tensor.flatten() for tensor in self._used().values()])

    def initialise(self, generator: torch.Generator, initial: Tensor) -> None:
        """Draw every parameter; the bases of ``mixture`` start as ``initial``.

        ``initial`` is how one model for everyone would start, flat, ``(generated elements,)``.
        """
        check_flat(initial, self.generated)
        views = self._views(self.phi)
        for index in range(HIDDEN_LAYER_COUNT + 1):
            _draw_linear(views, f"body.{2 * index}", generator)
        for index, where in enumerate(self.generated.slices.values()):
            if self.settings.output == "literal":
                _draw_linear(views, f"outputs.{index}", generator)
            else:
                _draw_mixture(views, f"outputs.{index}", initial[where], generator)

    def grown(
        self, generated: Schema, initial: Tensor, generator: torch.Generator
    ) -> "Hypernetwork":
        """Return a hypernetwork with an output layer for each tensor of a model that has grown.

        Existing layers stay as they are. A new tensor that starts as zeros is made as zeros for
        every client, so that a layer that starts by adding nothing does so under ``literal`` too.
        ``generated`` includes the tensors generated so far; ``initial`` is as for ``initialise``,
        and only its new tensors are read.
        """
        grown = Hypernetwork(self.settings, generated)
        check_flat(initial, generated)
        old, views = self.generated.slices, grown._views(grown.phi)
        for index, (name, where) in enumerate(generated.slices.items()):
            if name in old:
                continue
            if self.settings.output == "mixture":
                _draw_mixture(views, f"outputs.{index}", initial[where], generator)
            elif bool(initial[where].any()):
                _draw_linear(views, f"outputs.{index}", generator)
        grown.phi = self.carried(self.phi, grown, grown.phi)
        return grown

    def carried(self, values: Tensor, grown: "Hypernetwork", into: Tensor) -> Tensor:
        """Write φ, or its momentum, in the order of this ``schema``, to its places in a grown φ.

        ``into`` is in the order of ``grown.schema``; it is changed and returned. Raises
        ``ValueError`` if ``grown`` lacks a tensor.
        """
        check_flat(values, self.schema)
        check_flat(into, grown.schema)
        places = {name: index for index, name in enumerate(grown.generated.slices)}
        missing = [name for name in self.generated.slices if name not in places]
        if missing:
            raise ValueError(f"a model that grows must keep its tensors, {missing} are gone")
        names = list(self.generated.slices)
        theirs = grown.schema.slices
        for name, where in self.schema.slices.items():
            kind, _, rest = name.partition(".")
            if kind == "outputs":
                index, _, entry = rest.partition(".")
                name = f"outputs.{places[names[int(index)]]}.{entry}"  # noqa: PLW2901  # as it is called there
            into[theirs[name]] = values[where]
        return into

    @torch.no_grad()
    def generate(self, embedding: Tensor) -> Tensor:
        """Return a client's tensors, flat float32, ``(generated elements,)``."""
        self._check_embedding(embedding)
        return self._forward(self._used(), embedding)

    @torch.no_grad()
    def pull_back(
        self, embedding: Tensor, generated_update: Tensor, *, into: Tensor | None = None
    ) -> PulledBack:
        """Return the gradients against which a step moves the output along the client's update.

        Args:
            embedding: z_i, from which the client's tensors were generated by this very φ.
            generated_update: D_i, trained minus given, flat float32, ``(generated elements,)``.
            into: Memory for φ's gradient, of the shape and dtype of ``phi``; None makes it.
        """
        phi = torch.empty_like(self.phi) if into is None else into
        check_flat(phi, self.schema)
        return PulledBack(phi, self._backward(embedding, generated_update, self._views(phi)))

    @torch.no_grad()
    def pull_back_to_embedding(self, embedding: Tensor, generated_update: Tensor) -> Tensor:
        """Return the embedding's part of ``pull_back`` alone, shape ``(embedding_size,)``."""
        return self._backward(embedding, generated_update, None)

    def _backward(self, embedding: Tensor, update: Tensor, gradients: _Named | None) -> Tensor:
        """Return the embedding's gradient, and write φ's to ``gradients`` unless it is None.

        Written out, since each large part of φ's gradient is one outer product that is written
        once.
        """
        self._check_embedding(embedding)
        check_flat(update, self.generated)
        phi = self._used()
        inputs = self._body(phi, embedding)
        above = torch.zeros_like(inputs[-1])
        pull = _linear_backward if self.settings.output == "literal" else _mixture_backward
        for index, where in enumerate(self.generated.slices.values()):
            above += pull(phi, f"outputs.{index}", inputs[-1], -update[where], gradients)
        for index in range(HIDDEN_LAYER_COUNT, 0, -1):
            above = _linear_backward(phi, f"body.{2 * index}", inputs[index], above, gradients)
            above *= inputs[index] > 0  # The ReLU in front.
        above = _linear_backward(phi, "body.0", inputs[0], above, gradients)
        if gradients is not None and self.settings.spectral_norm:
            for name, matrix in self._normed().items():
                matrix.pull_back(gradients[name])
        return above

    def _forward(self, phi: _Named, embedding: Tensor) -> Tensor:
        hidden = self._body(phi, embedding)[-1]
        make = _linear if self.settings.output == "literal" else _mixture
        count = len(self.generated.tensors)
        return torch.cat([make(phi, f"outputs.{index}", hidden) for index in range(count)])

    def _body(self, phi: _Named, embedding: Tensor) -> list[Tensor]:
        """Return the input of each linear layer of the MLP, and the output of the last."""
        inputs = [embedding]
        for index in range(HIDDEN_LAYER_COUNT):
            inputs.append(_linear(phi, f"body.{2 * index}", inputs[-1]).relu())
        return [*inputs, _linear(phi, f"body.{2 * HIDDEN_LAYER_COUNT}", inputs[-1])]

    def _used(self) -> dict[str, Tensor]:
        """Return the tensors of φ by name, as its layers use them."""
        views = self._views(self.phi)
        if self.settings.spectral_norm:
            views |= {name: found.matrix for name, found in self._normed().items()}
        return views

    def _normed(self) -> dict[str, NormedMatrix]:
        """Return every linear layer's divided matrix; recomputed after φ has changed."""
        kept = self._kept
        if kept is None or kept[0] is not self.phi or kept[1] != self.phi._version:
            views = self._views(self.phi)
            found = {name: normed(view) for name, view in views.items() if _is_linear(name)}
            self._kept = kept = (self.phi, self.phi._version, found)
        return kept[2]

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        where = self.schema.slices
        return {spec.name: flat[where[spec.name]].view(spec.shape) for spec in self.schema.tensors}

    def _check_embedding(self, embedding: Tensor) -> None:
        shape = (self.settings.embedding_size,)
        if embedding.shape != shape or embedding.dtype is not torch.float32:
            raise ValueError(
                f"embedding must be float32 of shape {shape}, "
                f"got {embedding.dtype} of shape {tuple(embedding.shape)}"
            )


def draw_embedding(size: int, *, run_seed: int, client_name: str) -> Tensor:
    """Return a client's first embedding, drawn from N(0, 1), shape ``(size,)``.

    It depends on the run and the client's name alone, not on earlier clients.
    """
    return draw_embeddings(size, 1, run_seed=run_seed, client_name=client_name)[0]


def draw_embeddings(size: int, count: int, *, run_seed: int, client_name: str) -> list[Tensor]:
    """Return embeddings for a client to choose from; the first is ``draw_embedding``'s."""
    # Drawn once a run: the round plays no part.
    seed = client_seed(run_seed, 1, client_name, purpose="embedding")
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for _ in range(count)]


def _is_linear(name: str) -> bool:
    """Return whether a tensor of φ is a linear layer's matrix."""
    return name.endswith(".weight")


def _linear(phi: _Named, name: str, values: Tensor) -> Tensor:
    return functional.linear(values, phi[f"{name}.weight"], phi[f"{name}.bias"])


def _mixture(phi: _Named, name: str, hidden: Tensor) -> Tensor:
    shares = _linear(phi, f"{name}.mixing", hidden)
    return torch.addmv(phi[f"{name}.base"], phi[f"{name}.basis"].t(), shares)


def _linear_backward(
    phi: _Named, name: str, values: Tensor, above: Tensor, gradients: _Named | None
) -> Tensor:
    """Return the gradient of the input, given that of the output."""
    if gradients is not None:
        torch.outer(above, values, out=gradients[f"{name}.weight"])
        gradients[f"{name}.bias"].copy_(above)
    return phi[f"{name}.weight"].t() @ above


def _mixture_backward(
    phi: _Named, name: str, hidden: Tensor, above: Tensor, gradients: _Named | None
) -> Tensor:
    """Return the gradient of the last hidden layer, given that of the tensor."""
    if gradients is not None:
        shares = _linear(phi, f"{name}.mixing", hidden)
        torch.outer(shares, above, out=gradients[f"{name}.basis"])
        gradients[f"{name}.base"].copy_(above)
    return _linear_backward(phi, f"{name}.mixing", hidden, phi[f"{name}.basis"] @ above, gradients)


def _draw_linear(views: _Named, name: str, generator: torch.Generator) -> None:
    """Draw weight and bias from U(-1/√in, 1/√in), as the framework does for a linear layer."""
    bound = 1 / math.sqrt(views[f"{name}.weight"].shape[1])
    for part in ("weight", "bias"):
        views[f"{name}.{part}"].uniform_(-bound, bound, generator=generator)


def _draw_mixture(views: _Named, name: str, initial: Tensor, generator: torch.Generator) -> None:
    """Start at ``initial``, with shares of directions that already differ between clients."""
    basis, weight = views[f"{name}.basis"], views[f"{name}.mixing.weight"]
    std = float(initial.square().mean().sqrt()) / math.sqrt(len(basis))
    views[f"{name}.base"].copy_(initial)
    basis.normal_(0, std, generator=generator)
    weight.normal_(0, _MIXING_GAIN / math.sqrt(weight.shape[1]), generator=generator)
    views[f"{name}.mixing.bias"].zero_()
