"""Train the clients of one round together: one call of the network for all of them at once.

A step of a small network is mostly the launch of its operations. Here every tensor of the model is
stacked, one row a client, and a step of all clients is one batched forward and backward pass.
Clients with the most steps stand first, so finished ones are cut off the end. Short batches are
padded with the client's own first image at weight 0, which moves nothing.

The arithmetic is that of ``edge_client.training.local_round``, dropout included, but sums are
rounded in another order.

References:
    [torch.func] https://docs.pytorch.org/docs/2.13/func.html: ``functional_call``, ``vmap``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence

from edge_client.descent.optimisers import OPTIMISERS
from edge_client.personalisation.state import PersonalState
from edge_client.training.client_network import ClientNetwork
from edge_client.training.departure import Departure
from edge_client.training.local_result import LocalResult
from models.layers.dropout import use_masks
from models.networks.flat_parameters import trained_schema
from models.networks.registry import ImageNetwork, build_network, image_network
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, TrainingSettings
from models.tasks.image_classification import ImageClassification, LabelledImages, batch_places
from models.tasks.unusable_examples import UnusableExamplesError
from models.vector.seeds import client_seed
from privacy.clipping.clip import UnusableUpdateError
from privacy.noise.secure_gaussian import SystemKeys
from simulation.population.examples import Examples
from simulation.workers.dropout_masks import DropoutMasks, dropouts_of
from simulation.workers.together import check_together

_CLIPPING_MARGIN = 1e-6  # As in torch.nn.utils.clip_grad_norm_.


class ClientWork(NamedTuple):
    """The input of one client's training.

    Attributes:
        parameters: The received parameters, flat float32 in the layout of
            ``models.plan.plan.download_schema``; not changed.
        personal: The client's tensors as its last round left them; None before its first.
        residual: The loss of compressing its last update; None for nothing.
    """

    client_name: str
    parameters: Tensor
    examples: LabelledImages
    personal: Tensor | None
    residual: Tensor | None = None


class BatchedTrainer:
    """A trainer of groups of clients on one device; a group leaves nothing behind for the next."""

    def __init__(self, plan: Plan, device: torch.device | str = "cpu") -> None:
        """Build the plan's network.

        Raises:
            TogetherError: If clients of this plan cannot be trained together.
        """
        check_together(plan)
        self._plan = plan
        self._device = torch.device(device)
        # On the processor: it is only asked for each client's model, row by row.
        self._client = ClientNetwork(plan, torch.device("cpu"))
        self._trained = trained_schema(self._client.network, self._client.schema)
        # Its own tensors are never read: each client's take their place.
        network = image_network(build_network(plan.model, self._device))
        self._loss = _ClientLoss(network)
        self._dropouts = dropouts_of(self._loss, *_one_image(network, self._device))
        self._departure = Departure(plan, self._client.sent, SystemKeys(), seeded=True)

    def checked(self, examples: Examples) -> LabelledImages:
        """Return a client's images if they can be trained on.

        Raises:
            UnusableExamplesError: If they cannot, or are no images.
        """
        if not isinstance(examples, LabelledImages):
            raise UnusableExamplesError(
                f"examples must be labelled images, got {type(examples).__name__}"
            )
        ImageClassification().check(examples, self._client.network)
        return examples

    def train(
        self, clients: Sequence[ClientWork], *, round_number: int, clipping_norm: float | None
    ) -> list[LocalResult | None]:
        """Train one round of each client, whose images are checked.

        Return the results of ``LocalTrainer.train`` in the order given; None for one that diverged.

        Raises:
            ValueError: If parameters do not fit the plan's model.
        """
        if not clients:
            return []
        steps = [self._steps(client, round_number) for client in clients]
        order = sorted(range(len(clients)), key=lambda row: -len(steps[row]))
        models = torch.stack([self._model(clients[row]) for row in order])
        batches = _Batches(
            [clients[row].examples for row in order], [steps[row] for row in order], self._device
        )
        masks = DropoutMasks(
            self._dropouts,
            [
                self._seed(clients[row].client_name, round_number, purpose="dropout")
                for row in order
            ],
            self._device,
        )
        training = self._plan.training.at_round(round_number)
        trained, losses = self._descend(models, batches, masks, training)
        results: list[LocalResult | None] = [None] * len(clients)
        for place, row in enumerate(order):
            results[row] = self._result(
                clients[row],
                models[place],
                trained[place],
                loss=losses[place],
                round_number=round_number,
                clipping_norm=clipping_norm,
            )
        return results

    def _steps(self, client: ClientWork, round_number: int) -> list[Tensor]:
        """Return the places of each step's images, over all epochs, as one client would draw."""
        training = self._plan.training
        seed = self._seed(client.client_name, round_number, purpose="data")
        generator = torch.Generator().manual_seed(seed)
        return [
            places
            for _ in range(training.local_epochs)
            for places in batch_places(len(client.examples), training.batch_size, generator)
        ]

    def _seed(self, client_name: str, round_number: int, *, purpose: str) -> int:
        return client_seed(self._plan.seed, round_number, client_name, purpose=purpose)

    def _model(self, client: ClientWork) -> Tensor:
        self._client.load(client.parameters, client.personal)
        return self._client.loaded(client.parameters)

    def _descend(
        self,
        models: Tensor,
        batches: "_Batches",
        masks: DropoutMasks,
        training: TrainingSettings,
    ) -> tuple[Tensor, list[float]]:
        """Take every step from ``models``, shape ``(clients, elements)`` on the CPU, not changed.

        Return the trained models in the same form, and each client's mean loss in nats.
        """
        schema = self._client.schema
        on_device = models.to(self._device)
        stacks = {
            spec.name: on_device[:, schema.slices[spec.name]].reshape(-1, *spec.shape).clone()
            for spec in schema.tensors
        }
        leaves = {spec.name: stacks[spec.name] for spec in self._trained.tensors}
        states: list[dict[str, Tensor]] = [{} for _ in leaves]
        loss_sums = torch.zeros(len(models), dtype=torch.float64, device=self._device)
        for number, sizes in enumerate(batches.active):
            active = len(sizes)
            # Those that are done keep what they have: the rows cut off still lie in the stacks.
            leaves = {
                name: leaf[:active].detach().requires_grad_() for name, leaf in leaves.items()
            }
            states = [
                {key: value[:active] if value.ndim else value for key, value in state.items()}
                for state in states
            ]
            rest = {name: stack[:active] for name, stack in stacks.items() if name not in leaves}
            losses = self._losses(
                {**rest, **leaves}, *batches.read(number), *masks.of_step(sizes, batches.width)
            )
            # Fused optimisers take a gradient to lie in memory as its parameter does.
            gradients = [
                part.contiguous()
                for part in torch.autograd.grad(losses.sum(), list(leaves.values()))
            ]
            with torch.no_grad():
                self._clip(gradients)
                OPTIMISERS[training.optimiser](list(leaves.values()), gradients, states, training)
            loss_sums[:active] += losses.detach() * batches.sizes[:active, number]
        trained = torch.cat([stack.flatten(1) for stack in stacks.values()], dim=1).cpu()
        return trained, (loss_sums / batches.sizes.sum(1)).tolist()

    def _losses(self, tensors: dict[str, Tensor], *step: Tensor) -> Tensor:
        """Return each client's loss of a step (``_ClientLoss.forward``), shape ``(clients,)``."""

        def loss(own: dict[str, Tensor], *batch: Tensor) -> Tensor:
            named = {f"network.{name}": tensor for name, tensor in own.items()}
            return functional_call(self._loss, named, batch)  # type: ignore[no-any-return]  # Any

        # Plain products: the processor's fused attention would be called client by client.
        with sdpa_kernel(SDPBackend.MATH):
            return vmap(loss)(tensors, *step)

    def _clip(self, gradients: Sequence[Tensor]) -> None:
        largest = self._plan.training.gradient_clipping_norm
        if largest is None:
            return
        norms = torch.stack([part.flatten(1).norm(dim=1) for part in gradients]).norm(dim=0)
        factors = (largest / (norms + _CLIPPING_MARGIN)).clamp(max=1)
        for part in gradients:
            part.mul_(factors.view(-1, *[1] * (part.ndim - 1)))

    def _result(
        self,
        client: ClientWork,
        before: Tensor,
        after: Tensor,
        *,
        loss: float,
        round_number: int,
        clipping_norm: float | None,
    ) -> LocalResult | None:
        schema, own = self._client.schema, self._client.personal
        personal = part_of(after, schema, own)
        if not bool(personal.isfinite().all()):
            return None
        try:
            outgoing = self._departure.outgoing(
                part_of(after - before, schema, self._client.sent),
                round_number=round_number,
                client_name=client.client_name,
                example_count=len(client.examples),
                clipping_norm=clipping_norm,
                residual=client.residual,
            )
        except UnusableUpdateError:
            return None
        lost = outgoing.residual
        keeps = bool(own.tensors) or lost is not None
        return LocalResult(
            update=outgoing.update,
            update_norm=outgoing.norm,
            example_count=len(client.examples),
            mean_loss=loss,
            optimiser_state=None,
            personal=PersonalState(personal, {}, lost) if keeps else None,
            payload=outgoing.payload,
        )


class _ClientLoss(nn.Module):
    """The loss of one client, so that ``functional_call`` can put other tensors in."""

    def __init__(self, network: ImageNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor, labels: Tensor, weights: Tensor, *masks: Tensor) -> Tensor:
        """Return the weighted sum of cross-entropies in nats, shape ``()``.

        ``pixels`` are uint8, ``weights`` 0 for padding, ``masks`` in the order of dropout calls.
        """
        use_masks(self.network, iter(masks))
        logits = self.network.head(self.network.features(pixels))
        losses = functional.cross_entropy(logits.float(), labels, reduction="none")
        return (losses * weights).sum()


class _Batches:
    """The examples that a group's steps read, on the device from the start: no step waits for them.

    ``active`` counts each step's clients, the first ones; ``width`` is the padded batch size;
    ``sizes`` has each client's images by step, 0 once it is done, shape ``(clients, steps)``.
    """

    def __init__(
        self,
        examples: Sequence[LabelledImages],
        steps: Sequence[Sequence[Tensor]],
        device: torch.device,
    ) -> None:
        """Lay the clients' images one after the other; clients with most steps come first."""
        self._pixels = torch.cat([own.pixels for own in examples]).to(device)
        self._labels = torch.cat([own.labels for own in examples]).to(device)
        most, none = len(steps[0]), torch.empty(0, dtype=torch.int64)
        rows = [[*own, *[none] * (most - len(own))] for own in steps]
        counts = torch.tensor([[len(places) for places in row] for row in rows])
        starts = torch.tensor([0, *(len(own) for own in examples)]).cumsum(0)[:-1]
        # Padding is place 0, the client's own first image.
        padded = pad_sequence([places for row in rows for places in row], batch_first=True)
        places = padded.view(len(rows), most, -1) + starts.view(-1, 1, 1)
        is_real = torch.arange(places.shape[2]) < counts.unsqueeze(2)
        self._places = places.to(device)
        self._weights = (is_real / counts.clamp(min=1).unsqueeze(2)).to(device)
        self.width = places.shape[2]
        self.sizes = counts.to(device)
        self.active = [
            [len(own[number]) for own in steps if len(own) > number] for number in range(most)
        ]

    def read(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return pixels, labels and weights of a step, each ``(active, batch, ...)``."""
        active = len(self.active[number])
        places = self._places[:active, number]
        return self._pixels[places], self._labels[places], self._weights[:active, number]


def _one_image(network: ImageNetwork, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    pixels = torch.zeros((1, *network.pixels.shape), dtype=torch.uint8, device=device)
    label = torch.zeros(1, dtype=torch.int64, device=device)
    return pixels, label, torch.ones(1, device=device)
