"""Train the clients of a round with a bare PyTorch loop, on as many processes as the simulation.

Each process takes the next client that nobody has, copies the start into the network, runs the
epochs with ``torch.optim.SGD``, and adds what came out to its own sum: no clipping, no checks, no
files, no slots, and nothing is handed over but one sum a process and round. The network is the
simulation's own; images and order are the same.
"""

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from models.networks.registry import build_network, image_network
from models.settings.image import VitSettings


class BareClient(NamedTuple):
    """Hold one client.

    Attributes:
        pixels: Uint8, shape ``(images, height, width, channels)``.
        labels: Int64, shape ``(images,)``.
        seed: Seed of the images' order.
    """

    pixels: Tensor
    labels: Tensor
    seed: int


class BareRound(NamedTuple):
    """Say how a round's clients train.

    Attributes:
        model: The network's settings.
        learning_rate: SGD's.
        momentum: SGD's.
        epochs: Passes over a client's images.
        batch_size: Largest batch.
    """

    model: VitSettings
    learning_rate: float
    momentum: float
    epochs: int
    batch_size: int


class BareLoop:
    """Keep the processes between rounds, as the simulation does."""

    def __init__(self, clients: Sequence[BareClient], how: BareRound, process_count: int) -> None:
        """Start the processes, which have the clients' images from now on."""
        context = multiprocessing.get_context("spawn")
        self._next = context.Value("i", 0)
        self._count = len(clients)
        self._pipes: list[Connection] = []
        for _ in range(process_count):
            ours, theirs = context.Pipe()
            arguments = (theirs, self._next, list(clients), how)
            context.Process(target=_work, args=arguments, daemon=True).start()
            self._pipes.append(ours)

    def run(self, start: Sequence[Tensor]) -> tuple[float, float, list[Tensor]]:
        """Train one round.

        Args:
            start: The network's parameters, in its own order.

        Returns:
            Seconds, mean loss in nats, and the clients' mean parameters.
        """
        started = time.perf_counter()
        self._next.value = 0
        for pipe in self._pipes:
            pipe.send(list(start))
        answers = [pipe.recv() for pipe in self._pipes]
        mean = [
            torch.stack(parts).sum(0) / self._count
            for parts in zip(*(sums for sums, _, _ in answers), strict=True)
        ]
        seconds = time.perf_counter() - started
        loss_sum, image_count = (sum(answer[place] for answer in answers) for place in (1, 2))
        return seconds, loss_sum / image_count, mean

    def close(self) -> None:
        """Let the processes end."""
        for pipe in self._pipes:
            pipe.send(None)
            pipe.close()


def _work(
    pipe: Connection, taken: "Synchronized[int]", clients: Sequence[BareClient], how: BareRound
) -> None:
    torch.set_num_threads(1)
    network = image_network(build_network(how.model)).train()
    parameters = list(network.parameters())
    while (start := pipe.recv()) is not None:
        sums = [torch.zeros_like(part) for part in start]
        loss_sum, image_count = 0.0, 0
        while True:
            with taken.get_lock():
                number, taken.value = taken.value, taken.value + 1
            if number >= len(clients):
                break
            client = clients[number]
            with torch.no_grad():
                for parameter, first in zip(parameters, start, strict=True):
                    parameter.copy_(first)
            optimiser = torch.optim.SGD(
                parameters, lr=how.learning_rate, momentum=how.momentum, fused=True
            )
            generator = torch.Generator().manual_seed(client.seed)
            for _ in range(how.epochs):
                order = torch.randperm(len(client.labels), generator=generator)
                for places in order.tensor_split(-(-len(order) // how.batch_size)):
                    logits = network.head(network.features(client.pixels[places]))
                    loss = functional.cross_entropy(logits, client.labels[places])
                    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                    optimiser.step()
                    optimiser.zero_grad()
                    loss_sum += loss.item() * len(places)
                    image_count += len(places)
            for total, parameter in zip(sums, parameters, strict=True):
                total.add_(parameter.detach())
        pipe.send((sums, loss_sum, image_count))
