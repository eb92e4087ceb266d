"""A federation in which everyone gets their own model, and what it must come to."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.model_settings import schema_of
from models.parameters import initial_parameters, parameters_sha256
from models.role_vectors import part_of, put_part
from models.schema import RECEIVED, RELEASED, SENT, Role
from models.seeds import client_seed
from models.tensor_file import encode_tensors
from server.closing import Contribution, close_round
from server.config import FederationConfig
from server.personalisation.registry import build_server_half

TRANSFORMER = """
family = "transformer_lm"
model_size = 8
head_count = 2
layer_count = 1
feedforward_size = 8
context_size = 8
tied = false
"""
FEDTP = """
[personalisation]
method = "fedtp"
head = "{head}"
hypernetwork = {{ embedding_size = 4, hidden_size = 6, learning_rate = 0.5 }}
"""

Train = Callable[[int, str, Tensor], tuple[Tensor, int]]
"""Return a client's update and example count from round, name and received parameters."""


class Simulated:
    """Hold a personalised run in this process, from the functions that the simulation calls.

    Attributes:
        digests: Of each round's shared parameters.
        half: The method's server half after the last round.
    """

    def __init__(self, config: FederationConfig, names: list[str], train: Train) -> None:
        """Start a run in which every client takes part in every round, in order of name."""
        self.digests: list[bytes] = []
        self._config = config
        self._names = names
        self._train = train
        self._received = config.schema.with_roles(*RECEIVED)
        self._released = config.schema.with_roles(*RELEASED)
        whole = initial_parameters(config.model, config.seed)
        self._parameters = part_of(whole, schema_of(config.model), self._released)
        self.half = build_server_half(
            config.personalisation,
            config.schema.with_roles(*SENT),
            model=config.model,
            run_seed=config.seed,
        )

    @property
    def state_file(self) -> bytes:
        """Return what the last release holds of the method."""
        return bytes(encode_tensors({n: t.numpy() for n, t in self.half.state().items()}))

    def run(self, rounds: int) -> list[bytes]:
        """Run rounds and return the digests of all so far."""
        for _ in range(rounds):
            self._round(len(self.digests) + 1)
        return self.digests

    def received_by(self, name: str) -> Tensor:
        """Return what a client starts from, shared and generated tensors in schema order."""
        received = torch.empty(self._received.element_count)
        put_part(received, self._received, self._released, self._parameters)
        generated = self.half.parameters_for(name)
        if generated is not None:
            schema = self._received.with_roles(Role.GENERATED)
            put_part(received, self._received, schema, generated)
        return received

    def _round(self, number: int) -> None:
        config = self._config
        contributions = []
        for slot, name in enumerate(self._names):
            update, count = self._train(number, name, self.received_by(name))
            contributions.append(Contribution(slot, update, count, name))
        seed = client_seed(config.seed, number, "coordinator", purpose="noise")
        self._parameters = close_round(
            self._parameters,
            contributions,
            schema=self._received,
            aggregation=config.aggregation,
            privacy=config.privacy,
            slot_count=len(self._names),
            generator=torch.Generator().manual_seed(seed),
            example_cap=config.training.example_cap,
            personalisation=self.half,
            round_number=number,
        ).parameters
        self.digests.append(parameters_sha256(self._parameters))
