"""Make each device's own parts of the current model, and change the state behind them.

A device that is forgotten, or has fitted its own embedding, changes the method's state in the
newest release, durably, before it is acknowledged. The caller closes no round meanwhile.
"""

from functools import partial
from pathlib import Path

from torch import Tensor

from models.networks.flat_parameters import parameters_sha256
from models.plan.plan import PlanKind
from models.vector.codec import encode
from privacy.identities.party import Identity
from server.config.federation import FederationConfig
from server.config.fitting import fit_kind
from server.downlink.attempt_in_hand import SealedHypernetwork
from server.downlink.generated_parts import GeneratedParts
from server.downlink.release_writer import Model
from server.downlink.sealed_once import Downlink
from server.records.threads import Threads
from server.releases.erasing import erase_client, replace_state
from server.releases.files import ReleaseFolder
from server.releases.method_state import MethodState, method_state_of


class PersonalShelf:
    """One federation's personalisation method, as devices fetch its parts."""

    def __init__(
        self,
        config: FederationConfig,
        run: str,
        *,
        method: MethodState,
        releases: ReleaseFolder,
        parts: Path,
        identity: Identity,
        threads: Threads,
    ) -> None:
        """Serve one federation; ``run`` is 32 hex digits, ``parts`` the folder for sealed parts."""
        self._config = config
        self._run = bytes.fromhex(run)
        self._method = method
        self._releases = releases
        self._parts = parts
        self._identity = identity
        self._threads = threads

    def take_identity(self, identity: Identity) -> None:
        """Sign with renewed keys from now on; between rounds only."""
        self._identity = identity

    @property
    def fit_kind(self) -> PlanKind:
        """The way in which a device that took part in no round gets a model of its own."""
        return fit_kind(self._config.personalisation)

    def has_embedding(self, client: str) -> bool:
        """Return whether a device needs to fit no embedding: it has one, or the method has none."""
        return self._method.knows(client)

    async def generated_parts(self, model: Model) -> GeneratedParts | None:
        """Return the parts for each of the next attempt's devices alone; None if there are none."""
        if not self._method.generated.tensors:
            return None
        return await self._threads.run(
            lambda: GeneratedParts(
                self._method,
                self._parts,
                run=self._run,
                round_number=model.round_number + 1,
                base_sha256=model.sha256,
                sender=self._identity,
                threads=self._threads,
            )
        )

    async def sealed_hypernetwork(self, model: Model) -> SealedHypernetwork:
        """Return what devices fit an embedding with.

        Raises:
            RuntimeError: If the method has no hypernetwork.
        """

        def seal() -> SealedHypernetwork:
            phi, schema = self._method.phi(), self._method.phi_schema
            downlink = Downlink.seal(
                encode(schema, phi.numpy()),
                run=self._run,
                round_number=model.round_number + 1,
                base_sha256=model.sha256,
                schema_sha256=schema.sha256,
                sender=self._identity,
            )
            return SealedHypernetwork(downlink, parameters_sha256(phi))

        return await self._threads.run(seal)

    async def adopt(self, model: Model, client: str, embedding: Tensor) -> None:
        """Take a device's own embedding into the state of the newest release, durably.

        Raises:
            ValueError: If the device has an embedding, or it does not fit.
            OSError: If the disk is full; nothing has changed.
        """

        def keep() -> None:
            stored = self._releases.read(model.round_number)
            # The model may have grown for the round that is open; its release has not.
            released = method_state_of(self._config, stored.plan.growth_stage)
            released.restore(stored.personalisation)
            released.adopt(client, embedding)
            before = self._method.snapshot()
            self._method.adopt(client, embedding)
            try:
                file = released.encoded() or bytearray()
                replace_state(self._releases, stored.record, file, self._identity)
            except OSError:
                self._method.roll_back(before)
                raise

        await self._threads.run(keep)

    async def forget(self, client: str) -> None:
        """Erase a device from the method's state, those in releases included.

        Raises:
            OSError: If the disk is full; ask again.
        """

        def erase() -> None:
            self._method.forget(client)
            fresh = partial(method_state_of, self._config)
            erase_client(self._releases, client, fresh, self._identity)

        await self._threads.run(erase)
