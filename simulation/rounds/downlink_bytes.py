"""Count the bytes that clients would fetch if releases may travel as differences.

A client that holds an earlier release fetches the difference, as ``server.downlink.sealed_model``
offers it; others fetch the whole model. Sizes are those of the payloads a coordinator would seal. A
resumed run does not know what clients hold: each of them fetches a whole model once.
"""

from collections import OrderedDict

from torch import Tensor

from models.compression.release_delta import encode_delta
from models.plan.plan import Plan, download_schema, released_schema
from models.vector.codec import FlatVector
from models.vector.schema import Role


class DownlinkBytes:
    """The bytes of parameters that each client receives, unsealed; ``whole`` for a full model."""

    def __init__(self, plan: Plan) -> None:
        received = download_schema(plan)
        self._schema = released_schema(plan)
        self._generated = received.with_roles(Role.GENERATED).payload_bytes
        compression = plan.compression
        sends_moves = compression is not None and compression.downlink == "delta"
        self._settings = compression if sends_moves else None
        self.whole = received.payload_bytes
        self._round_number = 0
        self._releases: OrderedDict[int, FlatVector] = OrderedDict()
        self._sizes: dict[int | None, int] = {}
        self._held: dict[str, int] = {}

    def start_round(self, round_number: int, parameters: Tensor) -> None:
        """Send these parameters, flat float32, shape ``(elements,)``, from now on.

        They are held, not copied. Another attempt repeats the round number.
        """
        if self._settings is None or round_number == self._round_number:
            return
        self._round_number = round_number
        self._releases[round_number] = parameters.numpy()
        while len(self._releases) > self._settings.downlink_releases + 1:
            self._releases.popitem(last=False)
        self._sizes.clear()
        self.whole = self._generated + self._size_from(None)

    def take(self, client_name: str) -> int:
        """Return what a client fetches; it holds this round's release from now on."""
        if self._settings is None:
            return self.whole
        held = self._held.get(client_name)
        self._held[client_name] = self._round_number
        if held == self._round_number or held not in self._releases:
            return self.whole
        return self._generated + self._size_from(held)

    def _size_from(self, held: int | None) -> int:
        if self._settings is None:
            return self.whole
        if held not in self._sizes:
            base = None if held is None else self._releases[held]
            flat, step = self._releases[self._round_number], self._settings.downlink_step
            self._sizes[held] = len(encode_delta(self._schema, base, flat, step))
        return self._sizes[held]
