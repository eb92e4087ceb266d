"""The jobs that the resting agent hands to the process that trains, and their outcomes.

Jobs and results are JSON lines on the child's standard input and output. They hold paths, the
plan and the lease; never text and never parameters. A passphrase goes this way too: other users of
the machine can read a command line and often an environment, but not a pipe.
"""

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round of training, or one evaluation, as the plan says.

    Attributes:
        device_folder: The device's folder, which holds its identity.
        plan: Plan as JSON bytes.
        client_name: Name given at enrolment.
        round_number: Round, from 1.
        slot: The client's place in the cohort, from 0.
        lease_nonce: 16 bytes that bind the answer to the lease.
        base_sha256: Digest of the shared parameters that the round starts from.
        sealed_model: File with the sealed shared parameters.
        sealed_update: File to write the sealed update to.
        deadline_ms: End of the round, milliseconds since 1970 UTC.
        data: The device's own data: a folder of text, or a JSONL file.
        device: ``auto``, ``cpu`` or ``cuda``.
        passphrase: Opens the identity's key files; None where they are not encrypted.
        sealed_generated: File with the sealed part that was generated for this device alone; None
            where the plan's personalisation generates nothing.
        sealed_hypernetwork: File with the sealed hypernetwork; None unless an embedding is fitted.
        held_sha256: The release that the sealed shared parameters lead from; None where they are
            whole.
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


class Trained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The news that the sealed update lies at the job's path.

    Attributes:
        example_count: Target tokens trained on, at most the plan's cap; 0 under a guarantee.
        message_id: 16 random bytes that name the sealed update.
    """

    example_count: int
    message_id: bytes


class Fitted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The news that a model was fitted, and that what of it is personal waits.

    Attributes:
        message_id: 16 random bytes that name what waits and, if there is one, the sealed embedding.
        is_sealed: Whether a sealed embedding lies at the job's path; else nothing is to be sent.
    """

    message_id: bytes
    is_sealed: bool


class Evaluated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model's right answers on the device's held-out text.

    Attributes:
        token_count: Target tokens scored.
        log_loss_sum: Sum of negative log-likelihoods, in nats.
        top1_hits: Targets that were the first suggestion.
        top3_hits: Targets that were among the first three suggestions.
    """

    token_count: int
    log_loss_sum: float
    top1_hits: int
    top3_hits: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The reason why the job could not be done, without any of the device's data.

    Attributes:
        code: Stable snake_case code.
        reason: One line for the device's owner and the operator.
    """

    code: str
    reason: str


Outcome = Trained | Fitted | Evaluated | Failed

encode = msgspec.json.encode


def decode_job(line: bytes) -> Job:
    """Return the job on one line of the child's input.

    Raises:
        msgspec.DecodeError: If the line is no job.
    """
    return msgspec.json.decode(line, type=Job)


def decode_outcome(line: bytes) -> Outcome:
    """Return the outcome on one line of the child's output.

    Raises:
        msgspec.DecodeError: If the line is no outcome.
    """
    outcome: Outcome = msgspec.json.decode(line, type=Outcome)
    return outcome
