"""Keep the server half of the personalisation method in step with the releases.

Its state is written with the release of the round it learnt from, under the same signature.
"""

import threading
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from models.networks.grown_layers import fresh_model
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, plan_schema
from models.settings.model import schema_of
from models.vector.schema import SENT, Role, Schema
from models.vector.seeds import growth_seed
from models.vector.tensor_file import TensorFileError, decode_tensors, encode_tensors
from server.config.federation import FederationConfig
from server.personalisation.hypernetwork import HypernetworkHalf
from server.personalisation.method import ServerHalf
from server.personalisation.registry import build_server_half


class MethodStateError(ValueError):
    """Raised when a state cannot be taken up; the text says what to do."""


class MethodState:
    """The server half of one federation; its ``generated`` tensors are in schema order."""

    def __init__(self, half: ServerHalf, generated: Schema) -> None:
        self.generated = generated
        self._half = half
        self._turn = threading.Lock()

    @property
    def half(self) -> ServerHalf:
        """Return the half, for the one close that runs."""
        return self._half

    def snapshot(self) -> Mapping[str, Tensor]:
        """Return a state for ``roll_back``."""
        with self._turn:
            return self._half.state()

    def roll_back(self, snapshot: Mapping[str, Tensor]) -> None:
        """Go back to a state from before a close that came to nothing."""
        with self._turn:
            self._half.load(snapshot)

    def parameters_for(self, client: str) -> Tensor:
        """Return a device's generated tensors, flat float32, shape ``(generated elements,)``.

        Raises:
            RuntimeError: If the method generates nothing.
        """
        with self._turn:
            made = self._half.parameters_for(client)
        if made is None:
            raise RuntimeError("only a method that generates tensors is asked for some")
        return made

    @property
    def hypernetwork(self) -> HypernetworkHalf | None:
        """Return the half if it makes tensors from embeddings, else None."""
        return self._half if isinstance(self._half, HypernetworkHalf) else None

    def phi(self) -> Tensor:
        """Return a copy of the hypernetwork's φ, flat float32; RuntimeError without one."""
        with self._turn:
            return self._fitting_half().phi.clone()

    @property
    def phi_schema(self) -> Schema:
        """Return the tensors of ``phi``; RuntimeError without a hypernetwork."""
        return self._fitting_half().phi_schema

    def knows(self, client: str) -> bool:
        """Return whether a client has an embedding that is not just its first draw."""
        half = self.hypernetwork
        return half is None or half.knows(client)

    def adopt(self, client: str, embedding: Tensor) -> None:
        """Take the embedding that a client has fitted by itself.

        Raises:
            ValueError: If the client has one, or it does not fit.
            RuntimeError: If the method has no hypernetwork.
        """
        with self._turn:
            self._fitting_half().adopt(client, embedding)

    def _fitting_half(self) -> HypernetworkHalf:
        half = self.hypernetwork
        if half is None:
            raise RuntimeError("only a method with a hypernetwork knows embeddings")
        return half

    def begin_at(self, other: "MethodState") -> None:
        """Take another state's: of another stage of the model's growth, or of a start."""
        with self._turn:
            self._half, self.generated = other._half, other.generated

    def grow(self, plan: Plan) -> None:
        """Go on with a plan whose model has the layers of one more stage.

        Raises:
            ValueError: If a tensor is gone.
        """
        generated = plan_schema(plan).with_roles(Role.GENERATED)
        with self._turn:
            if generated.tensors:
                initial = part_of(fresh_model(plan), schema_of(plan.model), generated)
                self._half.grow(generated, initial, growth_seed(plan.seed, plan.growth_stage or 1))
            self.generated = generated

    def forget(self, client: str) -> None:
        """Drop what was learnt of a client, if anything was."""
        with self._turn:
            self._half.forget(client)

    def encoded(self) -> bytearray | None:
        """Return the state as the file of a release; None if there is none to keep."""
        with self._turn:
            state = {name: tensor.numpy() for name, tensor in self._half.state().items()}
            return encode_tensors(state) if state else None

    def restore(self, file: bytes | bytearray | None) -> None:
        """Take up the state of a release; None is that of a method without one.

        Raises:
            MethodStateError: If the file is not one of this method and model.
        """
        try:
            arrays = {} if file is None else decode_tensors(file)[0]
            # Copied: the file is read-only, and the half learns in place.
            state = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
            with self._turn:
                self._half.load(state)
        except (TensorFileError, ValueError) as error:
            raise MethodStateError(
                f"the release's personalisation state cannot be taken up: {error}; "
                "restore a backup, or the settings that it was made with"
            ) from None


def method_state_of(
    config: FederationConfig, growth_stage: int | None = None, *, initial: Tensor | None = None
) -> MethodState:
    """Return the state that a federation, or a stage of its model's growth, starts from.

    ``initial`` holds the generated tensors as a start has them; absent, they are drawn.

    Raises:
        ValueError: If nothing makes the tensors that the method generates.
    """
    stage = 1 if growth_stage is None else growth_stage
    travelling = config.schema_at(stage).with_roles(*SENT)
    half = build_server_half(
        config.personalisation,
        travelling,
        model=config.model_at(stage),
        run_seed=config.seed,
        initial=initial,
    )
    return MethodState(half, travelling.with_roles(Role.GENERATED))
