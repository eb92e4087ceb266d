"""Keep the secret that a run's correlated noise is drawn from, sealed in the store.

It is drawn once, before the first round of mode ``ftrl``, so a restart draws every node of a tree,
or every round of noise through buffers, as it was. Its sealing key is ``noise.secret`` in the
coordinator's folder: a copy of the store alone takes no noise out of a model. Under other settings
that decide the noise it does not open.

A store set back to an earlier round would draw the same noise again, on other sums. So backups
leave ``noise.secret`` out, and a new one is never drawn if the store holds a secret.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec
from sqlalchemy import select

from privacy.foundation.atomic_files import sync_folder, write_atomically
from privacy.foundation.secure_source import SecureSource
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.secure_gaussian import KEY_BYTES, NoiseKeys, SystemKeys
from privacy.noise.settings import noises_sums
from privacy.noise.tree import DerivedKeys
from privacy.sealing.secret import SEALING_KEY_BYTES, SealedSecretError, open_secret, seal_secret
from server.config.federation import FederationConfig
from server.records.folder import ServerFolder, without_noise_secret
from server.records.store import Store, StoreError
from server.records.tables import noise_keys

_TREE = "tree"


def noise_keys_of(
    folder: ServerFolder, store: Store, config: FederationConfig, run: str
) -> NoiseKeys:
    """Return the source of the keys of the coordinator's calibrated noise.

    Raises:
        StoreError: If the noise's secret does not open: its key is gone, or settings changed.
        OSError: If the key cannot be written.
    """
    if not isinstance(config.privacy, TreeNoise):
        return SystemKeys()
    use = _use(config, config.privacy, run)
    with store.read() as connection:
        row = connection.execute(
            select(noise_keys.c.sealed).where(noise_keys.c.name == _TREE)
        ).first()
    if row is not None:
        return DerivedKeys(_opened(folder, row.sealed, use))
    source = SecureSource()
    _draw_once(folder.noise_secret, source)
    secret = source.bytes(KEY_BYTES)
    sealed = seal_secret(secret, folder.noise_secret.read_bytes(), use)
    with store.write() as connection:
        connection.execute(noise_keys.insert().values(name=_TREE, sealed=sealed))
    return DerivedKeys(secret)


def _draw_once(path: Path, source: SecureSource) -> None:
    """Put a new key at ``path``, durably, unless there is one, or somebody is sooner."""
    if path.exists():
        return
    drawn = path.with_name(f".{path.name}.{source.bytes(8).hex()}")
    write_atomically(drawn, source.bytes(SEALING_KEY_BYTES))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(drawn, path)
    finally:
        drawn.unlink()
    sync_folder(path.parent)


def _opened(folder: ServerFolder, sealed: bytes, use: bytes) -> bytes:
    try:
        return open_secret(sealed, folder.noise_secret.read_bytes(), use)
    except FileNotFoundError:
        raise StoreError(
            f"{folder.noise_secret} is missing, and with it the run's noise; "
            + without_noise_secret(folder)
        ) from None
    except SealedSecretError:
        raise StoreError(
            "the run's noise was drawn under other settings of privacy, aggregation, model or "
            f"cohort_size, or {folder.noise_secret.name} was replaced; undo that, or begin a new "
            "run"
        ) from None


def _use(config: FederationConfig, privacy: TreeNoise, run: str) -> bytes:
    """Return what the noise follows from, beside the secret; a budget may be raised."""
    fixed = msgspec.structs.replace(privacy, epsilon_budget=1.0, delta=0.5)
    if not noises_sums(privacy):
        # Unset means the same, and is how a tree of before was sealed.
        fixed = msgspec.structs.replace(fixed, noise_on=msgspec.UNSET)
    if fixed.buffers is None:
        # A file that says "tree" and one that says nothing draw the same nodes.
        fixed = msgspec.structs.replace(fixed, mechanism=msgspec.UNSET)
    decides = (
        run,
        fixed,
        config.aggregation,
        config.rounds.cohort_size,
        config.schema.sha256.hex(),
    )
    return hashlib.sha256(msgspec.json.encode(decides, order="deterministic")).digest()
