"""A federation in which everyone gets their own model, and what it must come to."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.networks.flat_parameters import parameters_sha256
from models.networks.grown_layers import grow
from models.networks.role_vectors import put_part
from models.plan.plan import download_schema, released_schema
from models.plan.stages import next_stage
from models.settings.compression import release_step
from models.vector.seeds import client_seed
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution
from server.config.federation import FederationConfig
from server.config.plans import make_plan
from server.personalisation.method import ServerHalf
from server.releases.starting_model import starting_method, starting_parameters

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

Train = Callable[[int, str, Tensor], tuple[Tensor, int] | None]
"""Return a client's update and example count from round, name and received parameters.

None of one that is away.
"""


class Simulated:
    """Hold a personalised run in this process, from the functions that the simulation calls.

    Attributes:
        digests: Of each round's shared parameters.
        plan: What clients were told in the last round.
        method: What the method's server half has learnt in it.
    """

    def __init__(self, config: FederationConfig, names: list[str], train: Train) -> None:
        """Start a run in which every client is drawn in every round, in order of name."""
        self.digests: list[bytes] = []
        self._config = config
        self._names = names
        self._train = train
        self.plan = make_plan(config, "00" * 16, cohort_size=len(names))
        self._parameters = starting_parameters(config, self.plan)
        self.method = starting_method(config, self.plan)

    @property
    def half(self) -> ServerHalf:
        """Return the method's server half after the last round."""
        return self.method.half

    @property
    def state_file(self) -> bytes:
        """Return what the last release holds of the method."""
        return bytes(self.method.encoded() or b"")

    def run(self, rounds: int) -> list[bytes]:
        """Run rounds and return the digests of all so far."""
        for _ in range(rounds):
            self._round(len(self.digests) + 1)
        return self.digests

    def received_by(self, name: str) -> Tensor:
        """Return what a client starts from, shared and generated tensors in schema order."""
        schema = download_schema(self.plan)
        received = torch.empty(schema.element_count)
        put_part(received, schema, released_schema(self.plan), self._parameters)
        if self.method.generated.tensors:
            put_part(received, schema, self.method.generated, self.method.parameters_for(name))
        return received

    def _grow(self, number: int) -> None:
        plan = next_stage(self.plan, number)
        if plan is not None:
            self._parameters = grow(self._parameters, self.plan, plan, released_schema)
            self.method.grow(plan)
            self.plan = plan

    def _round(self, number: int) -> None:
        config = self._config
        self._grow(number)
        contributions = []
        for slot, name in enumerate(self._names):
            trained = self._train(number, name, self.received_by(name))
            if trained is not None:
                contributions.append(Contribution(slot, *trained, name))
        seed = client_seed(config.seed, number, "coordinator", purpose="noise")
        self._parameters = close_round(
            self._parameters,
            contributions,
            Closing(
                schema=download_schema(self.plan),
                aggregation=config.aggregation,
                privacy=config.privacy,
                slot_count=len(self._names),
                generator=torch.Generator().manual_seed(seed),
                example_cap=config.training.example_cap,
                personalisation=self.method.half,
                round_number=number,
                release_step=release_step(config.compression),
            ),
        ).parameters
        self.digests.append(parameters_sha256(self._parameters))
