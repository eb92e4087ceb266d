"""Put one client's model together from a release: the shared part, and what is made for it.

Only FedTP's and pFedHN's are made here, whole. Tensors that a method keeps on a device are added by
`export.making.person_of_release`, if the device's owner published them.
"""

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from export.faces.family import ExportError
from export.releases.release import Release
from models.networks.role_vectors import put_part
from models.personal.hypernetwork import Hypernetwork
from models.personal.hypernetwork_state import UnknownClientError, generated_for, state_of_tensors
from models.plan.plan import Plan, plan_schema, released_schema
from models.settings.hypernetwork import HypernetworkSettings
from models.settings.personalisation import (
    FedProxSettings,
    FedTpSettings,
    GlobalSettings,
    PFedHnSettings,
)
from models.vector.codec import FlatVector, named_tensors
from models.vector.schema import Role
from models.vector.tensor_file import decode_tensors


class ClientModels:
    """One client's tensors after the other, made from one release."""

    def __init__(self, release: Release, *, with_published: bool = False) -> None:
        """Read what the release's method has learnt.

        Args:
            with_published: Whether what a method keeps on a device comes from there; without, a
                method that keeps something is refused.

        Raises:
            ExportError: If the method makes nothing for a client or keeps a part of it on the
                device, or the release lacks what makes a client's tensors.
        """
        settings = _maker(release.plan, with_published=with_published)
        self._release = release
        self._settings = settings.hypernetwork
        self._generated = plan_schema(release.plan).with_roles(Role.GENERATED)
        if release.personalisation is None:
            raise ExportError(
                f"the release of round {release.record.round} must hold what makes a client's "
                f'tensors under method "{settings.method}", it does not; take another round'
            )
        try:
            arrays = decode_tensors(release.personalisation)[0]
            tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
            self._state = state_of_tensors(tensors, self._settings, self._generated)
        except ValueError as error:
            raise ExportError(f"the release of round {release.record.round}: {error}") from None

    @property
    def clients(self) -> tuple[str, ...]:
        """Return the clients that took part, in order of name."""
        return tuple(sorted(self._state.rows))

    @property
    def settings(self) -> HypernetworkSettings:
        """Return the settings of a hypernetwork that makes the same of ``phi``."""
        return msgspec.structs.replace(self._settings, spectral_norm=False)

    @property
    def phi(self) -> FlatVector:
        """Return the hypernetwork's own parameters, flat float32, shape ``(elements of φ,)``.

        They are those that its layers use, so that nobody who makes people of them need divide.
        """
        hypernetwork = Hypernetwork(self._settings, self._generated)
        hypernetwork.phi = self._state.phi
        return hypernetwork.used_phi.numpy()

    def embedding(self, client_name: str) -> FlatVector:
        """Return the embedding of a client that took part, shape ``(embedding_size,)``."""
        return self._state.row(client_name).embedding.numpy()

    def generated(self, client_name: str) -> dict[str, NDArray[np.float32]]:
        """Return one client's made tensors in schema order; ExportError if it is unknown."""
        return named_tensors(self._generated, self._made(client_name).numpy())

    def parameters(self, client_name: str) -> FlatVector:
        """Return one client's whole model, flat float32 in schema order, shape ``(elements,)``.

        Raise ExportError if nothing is known of the client.
        """
        plan = self._release.plan
        schema = plan_schema(plan)
        whole = torch.zeros(schema.element_count)
        put_part(whole, schema, released_schema(plan), torch.tensor(self._release.parameters))
        put_part(whole, schema, self._generated, self._made(client_name))
        return whole.numpy()

    def _made(self, client_name: str) -> torch.Tensor:
        try:
            return generated_for(client_name, self._state, self._settings, self._generated)
        except UnknownClientError as error:
            raise ExportError(
                f"{error}. If it took part, its row was lost: restore a backup, or let it train "
                "again"
            ) from None


def client_parameters(release: Release, client_name: str) -> FlatVector:
    """Return every parameter of one client's model; errors as of ``ClientModels``."""
    return ClientModels(release).parameters(client_name)


def _maker(plan: Plan, *, with_published: bool) -> FedTpSettings | PFedHnSettings:
    """Return the settings of a method whose client models can be put together here."""
    settings = plan.personalisation
    keeps_part = bool(plan_schema(plan).with_roles(Role.PERSONAL).tensors)
    match settings:
        case PFedHnSettings() | FedTpSettings(head="shared", neighbours=None) if (
            with_published or not keeps_part  # A voice keeps who speaks, under every method.
        ):
            return settings
        case FedTpSettings(head="personal", neighbours=None) if with_published:
            return settings
        case GlobalSettings() | FedProxSettings() if not keeps_part:
            raise ExportError(
                f'method "{settings.method}" has one model for everyone; export it without a client'
            )
        case _:
            raise ExportError(
                f'method "{settings.method}" with these settings keeps a part of each client\'s '
                "model on its device; where that is tensors of the model, the device's owner can "
                "hand them over with `sotto-client publish`"
            )
