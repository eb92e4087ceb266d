"""Settings of the second party of masked sums."""

import msgspec

from privacy.foundation.host_port import checked_host_port


class HelperSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The helper that a coordinator asks; its certificates lie in ``helper.json`` of the folder.

    Attributes:
        address: ``host:port`` at which it waits for the coordinator.
    """

    address: str

    def __post_init__(self) -> None:
        checked_host_port("address", self.address)
