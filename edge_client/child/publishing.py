"""Write the device's own part of the model into a signed file that its owner may hand over.

Nothing else lets a personal part leave its device, and this sends nothing. The file
(`models.plan.published_part`) is owner-only. The job, with its passphrase, comes on standard input.
"""

import sys
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from edge_client.child.own_plugins import load_own_plugins
from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.jobs.publishing_job import Published, PublishingJob
from edge_client.owner.floor import FloorError
from edge_client.personalisation.adapted import comparison_of, keeps_whole_model
from edge_client.personalisation.grown_state import kept_layout, read_kept_state
from edge_client.personalisation.own_model import WHOLE_MODELS, own_model
from edge_client.personalisation.registry import build_client_half
from edge_client.personalisation.state import PersonalState, PersonalStateError, StateLayout
from models.plan.plan import Plan, PlanError, decode_plan, plan_schema
from models.plan.published_part import PublishedRecord, encode_published
from models.vector.codec import named_tensors
from privacy.foundation.atomic_files import write_atomically
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity

_FAILURES = (
    CertificateError,
    DeviceFolderError,
    FloorError,
    KeyFileError,
    OSError,
    PersonalStateError,
    PlanError,
    ValueError,
)


def publish(job: PublishingJob) -> Published:
    """Write the file.

    Raises:
        FloorError: If the floor, which names plugins, cannot be read.
        DeviceFolderError: If no round has been seen yet.
        PersonalStateError: If the method keeps no tensor of the model, nothing is stored yet, or
            everyone's model stayed the device's.
        OSError: If the disk refuses; an existing target is untouched.
    """
    folder = DeviceFolder(Path(job.device_folder))
    encoded = folder.plan()
    load_own_plugins(encoded, folder)
    plan = decode_plan(encoded)
    layout = kept_layout(plan, build_client_half(plan.personalisation))
    if not (layout.personal.tensors or isinstance(plan.personalisation, WHOLE_MODELS)):
        raise PersonalStateError(
            f'method "{plan.personalisation.method}" keeps no tensor of the shared model on the '
            "device: there is nothing to publish"
        )
    state = read_kept_state(folder.personal.current, plan, layout)
    if state is None:
        raise PersonalStateError(
            "no personal part is kept yet; take part in a round first, or check in and fit one "
            "where the federation has [fitting]"
        )
    identity = Identity.load(folder.identity, job.passphrase)
    record = PublishedRecord(
        run=plan.run,
        client=identity.name,
        method=plan.personalisation.method,
        schema_sha256=plan_schema(plan).sha256.hex(),
    )
    tensors = _own_tensors(plan, layout, state)
    encoded = encode_published(record, tensors, identity)
    write_atomically(Path(job.target), encoded)
    return Published(tensors=tuple(tensors), size_bytes=len(encoded))


def _own_tensors(
    plan: Plan, layout: StateLayout, state: PersonalState
) -> dict[str, NDArray[np.float32]]:
    """Return the device's whole own model by name, or its personal tensors if it has no other.

    Raises:
        PersonalStateError: If everyone's model stayed the device's, in every tensor.
    """
    if keeps_whole_model(plan.personalisation, state.extras):
        schema = plan_schema(plan)
        return named_tensors(schema, own_model(schema, state.extras).numpy())
    if not layout.personal.tensors:
        raise PersonalStateError(
            f"{comparison_of(state.extras).in_words()}: there is nothing to publish, everyone's "
            "bundle serves as it is"
        )
    return named_tensors(layout.personal, state.personal.numpy())


def main() -> int:
    """Do the job on standard input; return 0, or 1 after one line on stderr."""
    torch.set_num_threads(1)
    try:
        done = publish(msgspec.json.decode(sys.stdin.buffer.read(), type=PublishingJob))
    except _FAILURES as error:
        print(error, file=sys.stderr)  # noqa: T201  # The command that started this shows it.
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
