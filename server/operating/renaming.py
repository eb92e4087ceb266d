"""Give a federation's machines other names, and the coordinator the keys that certify them."""

from collections.abc import Sequence

from privacy.foundation.atomic_files import write_atomically
from server.config.federation import FederationConfig
from server.config.public_hosts import with_public_hosts
from server.devices import own_keys
from server.records.folder import ServerFolder


def rotate_keys(folder: ServerFolder, config: FederationConfig, hostnames: Sequence[str]) -> None:
    """Replace a stopped coordinator's keys; host names, if any, replace those of the settings.

    The new certificate has the settings' names of before, too: devices know them.

    Raises:
        ConfigError: If the settings cannot be given the host names; nothing has changed then.
        ValueError: The same, if one is no name or address, or is given twice.
        CertificateError: As `server.devices.own_keys.rotate_keys`, with its other errors.
    """
    settings = folder.config.read_text()
    named = with_public_hosts(settings, hostnames, str(folder.config))
    own_keys.rotate_keys(folder, config, hostnames)
    if named != settings:
        # Last: invites must name no host that the certificate lacks.
        write_atomically(folder.config, named.encode())
