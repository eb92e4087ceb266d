"""Erase one client from the released personalisation states.

The client's row, an embedding learnt from its updates, goes from the state of every kept release,
whose description is signed anew. The models, their digests and their chain stay as they are.
"""

import os
from collections.abc import Callable

import msgspec

from models.plan.plan import decode_plan
from models.plan.release_record import (
    PERSONALISATION_FILE,
    PLAN_FILE,
    RECORD_FILE,
    SIGNATURE_FILE,
    SIGNER_FILE,
    ReleaseRecord,
    decode_release_record,
    digests_of,
)
from privacy.foundation.atomic_files import sync_folder
from privacy.identities.party import Identity
from server.releases.files import ReleaseFolder, signature_of
from server.releases.method_state import MethodState
from server.releases.whole_folders import write_flushed


def erase_client(
    folder: ReleaseFolder,
    client: str,
    fresh: Callable[[int | None], MethodState],
    signer: Identity,
) -> int:
    """Erase a client from every kept release and return how many had a state to erase it from.

    ``fresh`` makes an untaught server half of a stage of growth. The caller publishes no release
    meanwhile; repeating does no harm.

    Raises:
        ReleaseError: If a release's record cannot be read.
        MethodStateError: If a state is not one of this method and model.
        OSError: If the disk is full; run it again.
    """
    count = 0
    for path in folder.published():
        record = decode_release_record((path / RECORD_FILE).read_bytes())
        if PERSONALISATION_FILE not in record.files:
            continue
        state = fresh(decode_plan((path / PLAN_FILE).read_bytes()).growth_stage)
        state.restore((path / PERSONALISATION_FILE).read_bytes())
        state.forget(client)
        replace_state(folder, record, state.encoded() or bytearray(), signer)
        count += 1
    return count


def replace_state(
    folder: ReleaseFolder, record: ReleaseRecord, file: bytearray, signer: Identity
) -> None:
    """Replace the state of a published release, all at once and durably.

    Raises:
        OSError: If the disk is full; the release stays as it was.
    """
    files = record.files | digests_of({PERSONALISATION_FILE: file})
    encoded = msgspec.structs.replace(record, files=files).encode()
    changed = {PERSONALISATION_FILE: file, RECORD_FILE: encoded, **signature_of(encoded, signer)}
    source, building = folder.path(record.round), folder.begin_rewriting(record.round)
    for path in source.iterdir():
        if path.name not in {*changed, SIGNATURE_FILE, SIGNER_FILE}:
            os.link(path, building / path.name)
    write_flushed(building, changed)
    sync_folder(building)
    folder.end_rewriting(record.round)
