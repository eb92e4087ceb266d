"""The simulation of a deployed federation: the same settings, the devices' own texts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from edge_client.child.own_text import training_examples
from edge_client.descent.compute import prepare_compute
from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import Plan
from server.config.federation import FederationConfig
from server.config.plans import make_plan
from simulation.config.data import DataSettings
from simulation.config.simulation import SimulationConfig
from simulation.population.examples import Examples
from simulation.rounds.federation import Federation
from simulation.workers.jobs import Trained
from simulation.workers.pool import Generate, WorkerPool


def _nobody(_client_name: str) -> None:
    """Generate nothing."""


class OneProcess(WorkerPool):
    """Train clients in this process, one by one: starting others would cost more than these do."""

    def __init__(self, plan: Plan, examples: Mapping[str, Examples]) -> None:
        """Hold the clients' examples; no process is started."""
        self._trainer = LocalTrainer(plan, seeded=True)
        self._streams = examples
        self._states = self._optimisers = None

    def use(self, plan: Plan) -> None:
        """Stay with the one plan that there is."""

    def train(
        self,
        parameters: Tensor,
        cohort: Sequence[tuple[int, str]],
        *,
        round_number: int,
        counts_in: int | None = None,
        clipping_norm: float | None = None,
        generate: Generate = _nobody,
        keeps: bool = True,
    ) -> Iterator[Trained]:
        """Train the clients in the order given."""
        for slot, name in cohort:
            result = self._trainer.train(
                parameters,
                self._streams[name],
                round_number=round_number,
                client_name=name,
                clipping_norm=clipping_norm,
            )
            yield Trained(
                slot,
                name,
                result.update,
                result.example_count,
                result.mean_loss,
                result.update_norm,
                result.update.nbytes,
            )


def simulated(config: FederationConfig, texts: list[Path], *, rounds: int) -> list[bytes]:
    """Return the digest of each round's model as ``simulation.rounds.federation`` makes it.

    Args:
        config: The deployed federation's settings.
        texts: What each device trains on, in the order in which they enrolled.
        rounds: How many rounds to run.
    """
    return [parameters_sha256(parameters) for parameters in simulated_models(config, texts, rounds)]


def simulated_models(config: FederationConfig, texts: list[Path], rounds: int) -> list[Tensor]:
    """Return each round's model, flat float32, shape ``(elements,)``; see ``simulated``."""
    prepare_compute("cpu", threads=1)
    words = config.word_list.load()
    plan = make_plan(config, run="0" * 32, vocabulary=words)
    streams = {
        f"device-{number:04d}": training_examples(text, words)
        for number, text in enumerate(texts, start=1)
    }
    federation = Federation(as_simulation(config), plan, list(streams), OneProcess(plan, streams))
    models = []
    for _ in range(rounds):
        federation.run_round()
        models.append(federation.parameters.clone())
    return models


def as_simulation(config: FederationConfig) -> SimulationConfig:
    """Return a federation's settings as a simulation's."""
    settings = {name: getattr(config, name) for name in config.__struct_fields__}
    # Whose text it is stands here for form's sake: the clients are given.
    return SimulationConfig(**settings, data=DataSettings(dataset="manual", partition="users"))
