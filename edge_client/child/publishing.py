"""Write the device's own part of the model into a signed file that its owner may hand over.

Nothing else lets a personal part leave its device, and this sends nothing. The file
(`models.plan.published_part`) is owner-only. The job, with its passphrase, comes on standard input.
"""

import sys
from pathlib import Path

import msgspec
import torch

from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.jobs.publishing_job import Published, PublishingJob
from edge_client.personalisation.grown_state import kept_layout, read_kept_state
from edge_client.personalisation.registry import build_client_half
from edge_client.personalisation.state import PersonalStateError
from models.plan.plan import PlanError, decode_plan, plan_schema
from models.plan.published_part import PublishedRecord, encode_published
from models.vector.codec import named_tensors
from privacy.foundation.atomic_files import write_atomically
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity

_FAILURES = (
    CertificateError,
    DeviceFolderError,
    KeyFileError,
    OSError,
    PersonalStateError,
    PlanError,
    ValueError,
)


def publish(job: PublishingJob) -> Published:
    """Write the file.

    Raises:
        DeviceFolderError: If no round has been seen yet.
        PersonalStateError: If the method keeps no tensor of the model, or nothing is stored yet.
        OSError: If the disk refuses; an existing target is untouched.
    """
    folder = DeviceFolder(Path(job.device_folder))
    plan = decode_plan(folder.plan())
    layout = kept_layout(plan, build_client_half(plan.personalisation))
    if not layout.personal.tensors:
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
    tensors = named_tensors(layout.personal, state.personal.numpy())
    encoded = encode_published(record, tensors, identity)
    write_atomically(Path(job.target), encoded)
    return Published(tensors=tuple(tensors), size_bytes=len(encoded))


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
