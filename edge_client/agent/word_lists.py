"""Find the word list that a plan names by its digest: shipped, on the device, or fetched."""

import hashlib
from pathlib import Path

from edge_client.agent.acceptance import PlanRefusedError
from edge_client.agent.version_gap import older_side
from edge_client.folder.layout import DeviceFolder
from edge_client.wire.transport import Transport
from models.plan.plan import Plan, VocabularySettings, decode_plan
from models.plan.signed_plan import SignedPlan
from models.text.vocabulary import (
    SHIPPED_NAME,
    Vocabulary,
    VocabularyError,
    load_vocabulary,
    shipped_vocabulary,
)
from privacy.foundation.atomic_files import write_atomically


async def ensure_word_list(
    wanted: VocabularySettings, folder: Path, transport: Transport, *, coordinator: str
) -> None:
    """Fetch a list that is neither shipped nor stored; ``coordinator`` is its software's version.

    Raises:
        PlanRefusedError: If the shipped list of that name differs, or the fetched one's digest.
        RefusedError: If the coordinator does not serve the list.
        UnreachableError: If it cannot be reached.
    """
    if wanted.name == SHIPPED_NAME:
        _check_shipped(wanted, coordinator)
        return
    path = _path(wanted, folder)
    if path.exists():
        return
    encoded = await transport.fetch_vocabulary(bytes.fromhex(wanted.sha256))
    if hashlib.sha256(encoded).hexdigest() != wanted.sha256:
        raise PlanRefusedError("vocabulary_mismatch", "the word list served is not the plan's")
    folder.mkdir(mode=0o700, exist_ok=True)
    write_atomically(path, encoded)


def word_list(wanted: VocabularySettings, folder: Path) -> Vocabulary:
    """Return a list that `ensure_word_list` has made sure of.

    Raises:
        VocabularyError: If the file is missing, was changed, or has another size.
    """
    if wanted.name == SHIPPED_NAME:
        return shipped_vocabulary(wanted.size)
    words = load_vocabulary(_path(wanted, folder))
    if words.sha256.hex() != wanted.sha256 or len(words) != wanted.size:
        raise VocabularyError(f"{_path(wanted, folder)} is not the plan's word list; delete it")
    return words


def last_plan(folder: DeviceFolder) -> Plan | None:
    """Return the plan of the last round that the device saw, None before the first.

    Raises:
        DeviceFolderError: If the plan kept is too large.
        PlanError: If it is damaged.
        SignedPlanError: If its proof is damaged.
    """
    kept = folder.signed_plan()
    return None if kept is None else decode_plan(SignedPlan.decode(kept).plan)


def last_word_list(plan: Plan | None, folder: Path) -> tuple[str, Vocabulary]:
    """Return the name and words of the last plan's list; the shipped one if no plan has one.

    Raises:
        VocabularyError: As `word_list`.
    """
    wanted = None if plan is None else plan.vocabulary
    if wanted is None:
        return SHIPPED_NAME, shipped_vocabulary()
    return wanted.name, word_list(wanted, folder)


def _check_shipped(wanted: VocabularySettings, coordinator: str) -> None:
    try:
        shipped = shipped_vocabulary(wanted.size)
    except VocabularyError as error:
        raise PlanRefusedError("vocabulary_mismatch", str(error)) from None
    if shipped.sha256.hex() != wanted.sha256:
        raise PlanRefusedError(
            "vocabulary_mismatch",
            f"this device's {SHIPPED_NAME} is not the coordinator's; {older_side(coordinator)}",
        )


def _path(wanted: VocabularySettings, folder: Path) -> Path:
    # From bytes, so that what the coordinator wrote can only ever be the name of a digest.
    return folder / f"{bytes.fromhex(wanted.sha256).hex()}.txt"
