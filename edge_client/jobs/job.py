"""The jobs that the resting agent hands to the process that trains, and their outcomes.

Jobs and results are JSON lines on the child's standard input and output. They hold paths, the plan
and the lease; never text and never parameters. A passphrase goes this way too: other users of the
machine can read a command line and often an environment, but not a pipe.
"""

import msgspec

from privacy.foundation.strict_json import decode_json


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round of training, or one evaluation, as the plan says.

    Attributes:
        device_folder: The device's folder, which holds its identity.
        plan: Plan as JSON bytes.
        round_number: Round, from 1.
        slot: The client's place in the cohort, from 0.
        lease_nonce: 16 bytes that bind the answer to the lease.
        base_sha256: Digest of the shared parameters that the round starts from.
        sealed_update: File to write the sealed update to.
        deadline_ms: End of the round, milliseconds since 1970 UTC.
        data: The device's own data: a folder of text, or a JSONL file.
        device: ``auto``, ``cpu`` or ``cuda``.
        passphrase: Opens the identity's key files; None if they are not encrypted.
        sealed_generated: The part generated for this device alone; None if the plan has none.
        sealed_hypernetwork: None unless an embedding is fitted.
        held_sha256: The release that the shared parameters lead from; None if they are whole.
        attempt: Attempt at the round, from 0; bound into a mask's seed.
        helper_certificate: The helper's wrapping certificate, DER, whose key the owner pinned; None
            where the plan masks nothing.
        leaves_data_out: Whether to answer without reading the data, where the plan hides them: the
            training process died of them once.
    """

    device_folder: str
    plan: bytes
    client_name: str
    round_number: int
    slot: int
    lease_nonce: bytes
    base_sha256: bytes
    sealed_model: str
    sealed_update: str
    deadline_ms: int
    data: str
    device: str
    passphrase: bytes | None = None
    sealed_generated: str | None = None
    sealed_hypernetwork: str | None = None
    held_sha256: bytes | None = None
    attempt: int = 0
    helper_certificate: bytes | None = None
    leaves_data_out: bool = False


class Trained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The news that the sealed update lies at the job's path, named by 16 random bytes.

    ``example_count`` is target tokens, at most the plan's cap; 0 under a guarantee.
    """

    example_count: int
    message_id: bytes


class Fitted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The news that a model was fitted; 16 random bytes name its waiting personal part.

    If ``is_sealed``, they also name a sealed embedding at the job's path, which is to be sent.
    """

    message_id: bytes
    is_sealed: bool


class Evaluated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model's right answers on the device's held-out text, counted in target tokens.

    ``log_loss_sum`` is in nats; hits are among the first 1 or 3 suggestions. A task of words has
    ``word_count`` typed words, of which the list lacks ``unknown_count``; others have None and 0.
    """

    token_count: int
    log_loss_sum: float
    top1_hits: int
    top3_hits: int
    word_count: int | None = None
    unknown_count: int = 0


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A job's failure: a stable snake_case code, and a line for the owner's log.

    The line holds none of the device's data, and does not leave it all the same.
    """

    code: str
    reason: str


TRAINING_DIED = "training_died"
"""The code of a job whose process ended before it answered."""

Outcome = Trained | Fitted | Evaluated | Failed

encode = msgspec.json.encode


def decode_job(line: bytes) -> Job:
    """Return the job on one line of the child's input.

    Raises:
        msgspec.DecodeError: If the line is no job.
    """
    return decode_json(line, Job)


def decode_outcome(line: bytes) -> Outcome:
    """Return the outcome on one line of the child's output.

    Raises:
        msgspec.DecodeError: If the line is no outcome.
    """
    # A union is no type to mypy.
    outcome: Outcome = decode_json(line, Outcome)  # type: ignore[arg-type]
    return outcome
