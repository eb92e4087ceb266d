"""Open a run that is over: what was released, and what each client has beside it."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from edge_client.personalisation.adapted import keeps_whole_model
from edge_client.personalisation.grown_state import kept_layout, read_kept_state
from edge_client.personalisation.own_model import own_model
from edge_client.personalisation.registry import build_client_half
from edge_client.personalisation.state import PersonalState, StateLayout
from edge_client.training.client_network import ClientNetwork
from models.networks.flat_parameters import load_parameters
from models.networks.registry import Network
from models.networks.role_vectors import put_part
from models.personal.hypernetwork import Hypernetwork
from models.personal.hypernetwork_state import HypernetworkState, state_of_tensors
from models.plan.plan import Plan, download_schema
from models.settings.personalisation import FedTpSettings, PFedHnSettings
from models.vector.schema import RELEASED
from server.releases.method_state import MethodState, method_state_of
from simulation.config.run_files import read_run_file
from simulation.config.simulation import SimulationConfig, config_from
from simulation.figures.metrics import Figures
from simulation.runs.checkpoint import RUN_FILE, RunDescription, RunFolder


class NoFinishedRunError(ValueError):
    """Raised when a folder holds no run that is over; the text says what to do."""


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run at the model that its final figures are of.

    ``released`` is flat float32 in the layout of ``models.plan.plan.released_schema``; ``method``
    is the state of the method's server half.
    """

    folder: RunFolder
    config: SimulationConfig
    plan: Plan
    final: Figures
    released: Tensor
    method: MethodState

    @property
    def model_round(self) -> int:
        """Return the round of the model."""
        return int(self.final["model_round"] or 0)

    def at(self, round_number: int) -> "FinishedRun":
        """Return the run at the model of another release that its folder keeps.

        Raises:
            CheckpointError: If the release is missing or damaged.
        """
        return _opened(self.folder, self.config, {**self.final, "model_round": round_number})

    def received_by(self, client: str) -> Tensor:
        """Return what a client receives, flat float32 in the layout of ``download_schema``."""
        schema = download_schema(self.plan)
        received = torch.empty(schema.element_count)
        put_part(received, schema, schema.with_roles(*RELEASED), self.released)
        if self.method.generated.tensors:
            generated = self.method.parameters_for(client)
            put_part(received, schema, self.method.generated, generated)
        return received

    @property
    def layout(self) -> StateLayout:
        """Return what a client's state holds."""
        return kept_layout(self.plan, build_client_half(self.plan.personalisation))

    def kept_by(self, client: str) -> PersonalState | None:
        """Return the client's own state; None if it never trained, or has nothing of its own.

        A fitted novel client has one (``simulation.understanding.novel_states``).
        """
        path = self.folder.states.newest(client, self.model_round)
        layout = self.layout
        if path is None or layout.is_empty:
            return None
        return read_kept_state(path, self.plan, layout)

    def network_of(self, client: str) -> Network:
        """Return a client's network in evaluation mode, without a second head of the method."""
        holder = ClientNetwork(self.plan, torch.device("cpu"))
        kept = self.kept_by(client)
        holder.load(self.received_by(client), None if kept is None else kept.personal)
        if kept is not None and keeps_whole_model(self.plan.personalisation, kept.extras):
            load_parameters(holder.network, holder.schema, own_model(holder.schema, kept.extras))
        return holder.network.eval()

    def hypernetwork(self) -> tuple[Hypernetwork, HypernetworkState]:
        """Return the hypernetwork, and the state of the clients that took part.

        Raises:
            ValueError: If the method has none.
        """
        settings = self.plan.personalisation
        if not isinstance(settings, FedTpSettings | PFedHnSettings):
            raise ValueError(
                'only methods "fedtp" and "pfedhn" have a hypernetwork, '
                f'{self.folder.folder} is of method "{settings.method}"'
            )
        generated = self.method.generated
        state = state_of_tensors(self.method.half.state(), settings.hypernetwork, generated)
        made = Hypernetwork(settings.hypernetwork, generated)
        made.phi = state.phi
        return made, state


def open_run(folder: Path) -> FinishedRun:
    """Open the run in a folder.

    Raises:
        CheckpointError: If its model is damaged.
        MethodStateError: If its method's state is damaged.
        NoFinishedRunError: If there is no run, or it is not over.
    """
    if not (folder / RUN_FILE).exists():
        raise NoFinishedRunError(f"{folder} holds no run; give the folder of one")
    description = read_run_file(folder / RUN_FILE, RunDescription)
    run = RunFolder(folder, description)
    final = run.final_figures()
    if final is None:
        raise NoFinishedRunError(
            f"the run in {folder} is not over; give sotto-simulate run the same --out again"
        )
    return _opened(run, config_from(description.configuration, str(folder)), final)


def _opened(run: RunFolder, config: SimulationConfig, final: Figures) -> FinishedRun:
    stored = run.read(int(final["model_round"] or 0))
    method = method_state_of(config, stored.plan.growth_stage)
    method.restore(stored.personalisation)
    return FinishedRun(
        folder=run,
        config=config,
        plan=stored.plan,
        final=final,
        released=torch.tensor(stored.parameters),
        method=method,
    )
