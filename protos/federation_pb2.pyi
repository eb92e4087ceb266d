from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelPart(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_PART_SHARED: _ClassVar[ModelPart]
    MODEL_PART_GENERATED: _ClassVar[ModelPart]
    MODEL_PART_HYPERNETWORK: _ClassVar[ModelPart]
MODEL_PART_SHARED: ModelPart
MODEL_PART_GENERATED: ModelPart
MODEL_PART_HYPERNETWORK: ModelPart

class SigningRequests(_message.Message):
    __slots__ = ("tls", "wrapping", "signing")
    TLS_FIELD_NUMBER: _ClassVar[int]
    WRAPPING_FIELD_NUMBER: _ClassVar[int]
    SIGNING_FIELD_NUMBER: _ClassVar[int]
    tls: bytes
    wrapping: bytes
    signing: bytes
    def __init__(self, tls: _Optional[bytes] = ..., wrapping: _Optional[bytes] = ..., signing: _Optional[bytes] = ...) -> None: ...

class Certificates(_message.Message):
    __slots__ = ("tls", "wrapping", "signing")
    TLS_FIELD_NUMBER: _ClassVar[int]
    WRAPPING_FIELD_NUMBER: _ClassVar[int]
    SIGNING_FIELD_NUMBER: _ClassVar[int]
    tls: bytes
    wrapping: bytes
    signing: bytes
    def __init__(self, tls: _Optional[bytes] = ..., wrapping: _Optional[bytes] = ..., signing: _Optional[bytes] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("protocol_version", "token", "signing_requests")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    token: bytes
    signing_requests: SigningRequests
    def __init__(self, protocol_version: _Optional[int] = ..., token: _Optional[bytes] = ..., signing_requests: _Optional[_Union[SigningRequests, _Mapping]] = ...) -> None: ...

class EnrolResponse(_message.Message):
    __slots__ = ("client_name", "device", "coordinator", "run")
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    device: Certificates
    coordinator: Certificates
    run: str
    def __init__(self, client_name: _Optional[str] = ..., device: _Optional[_Union[Certificates, _Mapping]] = ..., coordinator: _Optional[_Union[Certificates, _Mapping]] = ..., run: _Optional[str] = ...) -> None: ...

class RenewCertificatesRequest(_message.Message):
    __slots__ = ("signing_requests",)
    SIGNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    signing_requests: SigningRequests
    def __init__(self, signing_requests: _Optional[_Union[SigningRequests, _Mapping]] = ...) -> None: ...

class RenewCertificatesResponse(_message.Message):
    __slots__ = ("device", "coordinator")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    device: Certificates
    coordinator: Certificates
    def __init__(self, device: _Optional[_Union[Certificates, _Mapping]] = ..., coordinator: _Optional[_Union[Certificates, _Mapping]] = ...) -> None: ...

class CheckInRequest(_message.Message):
    __slots__ = ("protocol_version", "plan_version", "software_version", "model_families", "device_time_ms", "lacks_personal")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FAMILIES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LACKS_PERSONAL_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    plan_version: int
    software_version: str
    model_families: _containers.RepeatedScalarFieldContainer[str]
    device_time_ms: int
    lacks_personal: bool
    def __init__(self, protocol_version: _Optional[int] = ..., plan_version: _Optional[int] = ..., software_version: _Optional[str] = ..., model_families: _Optional[_Iterable[str]] = ..., device_time_ms: _Optional[int] = ..., lacks_personal: _Optional[bool] = ...) -> None: ...

class WorkOrder(_message.Message):
    __slots__ = ("lease", "retry_after", "lease_ended")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    LEASE_ENDED_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    retry_after: RetryAfter
    lease_ended: LeaseEnded
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., retry_after: _Optional[_Union[RetryAfter, _Mapping]] = ..., lease_ended: _Optional[_Union[LeaseEnded, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("nonce", "round_number", "slot", "remaining_ms", "plan", "base_sha256", "upload_bytes", "download_bytes", "attempt", "deadline_ms", "coordinator", "generated_bytes", "hypernetwork_bytes", "moved", "software_version", "plan_signature", "helper_certificate")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ROUND_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    BASE_SHA256_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    GENERATED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HYPERNETWORK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    HELPER_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    round_number: int
    slot: int
    remaining_ms: int
    plan: bytes
    base_sha256: bytes
    upload_bytes: int
    download_bytes: int
    attempt: int
    deadline_ms: int
    coordinator: Certificates
    generated_bytes: int
    hypernetwork_bytes: int
    moved: _containers.RepeatedCompositeFieldContainer[MovedModel]
    software_version: str
    plan_signature: bytes
    helper_certificate: bytes
    def __init__(self, nonce: _Optional[bytes] = ..., round_number: _Optional[int] = ..., slot: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., plan: _Optional[bytes] = ..., base_sha256: _Optional[bytes] = ..., upload_bytes: _Optional[int] = ..., download_bytes: _Optional[int] = ..., attempt: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., coordinator: _Optional[_Union[Certificates, _Mapping]] = ..., generated_bytes: _Optional[int] = ..., hypernetwork_bytes: _Optional[int] = ..., moved: _Optional[_Iterable[_Union[MovedModel, _Mapping]]] = ..., software_version: _Optional[str] = ..., plan_signature: _Optional[bytes] = ..., helper_certificate: _Optional[bytes] = ...) -> None: ...

class MovedModel(_message.Message):
    __slots__ = ("base_sha256", "download_bytes")
    BASE_SHA256_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    base_sha256: bytes
    download_bytes: int
    def __init__(self, base_sha256: _Optional[bytes] = ..., download_bytes: _Optional[int] = ...) -> None: ...

class RetryAfter(_message.Message):
    __slots__ = ("seconds", "reason")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    seconds: int
    reason: str
    def __init__(self, seconds: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaseEnded(_message.Message):
    __slots__ = ("nonce", "reason")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    reason: str
    def __init__(self, nonce: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class FetchModelRequest(_message.Message):
    __slots__ = ("lease_nonce", "offset", "part", "base_sha256")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    BASE_SHA256_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    offset: int
    part: ModelPart
    base_sha256: bytes
    def __init__(self, lease_nonce: _Optional[bytes] = ..., offset: _Optional[int] = ..., part: _Optional[_Union[ModelPart, str]] = ..., base_sha256: _Optional[bytes] = ...) -> None: ...

class ModelChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class FetchVocabularyRequest(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    def __init__(self, sha256: _Optional[bytes] = ...) -> None: ...

class VocabularyChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class OpenUploadRequest(_message.Message):
    __slots__ = ("lease_nonce", "message_id", "total_bytes")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    message_id: bytes
    total_bytes: int
    def __init__(self, lease_nonce: _Optional[bytes] = ..., message_id: _Optional[bytes] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class OpenUploadResponse(_message.Message):
    __slots__ = ("offset", "committed")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    offset: int
    committed: bool
    def __init__(self, offset: _Optional[int] = ..., committed: _Optional[bool] = ...) -> None: ...

class UploadChunk(_message.Message):
    __slots__ = ("lease_nonce", "offset", "data")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    offset: int
    data: bytes
    def __init__(self, lease_nonce: _Optional[bytes] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class CommitUploadRequest(_message.Message):
    __slots__ = ("lease_nonce", "message_id", "example_count")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    message_id: bytes
    example_count: int
    def __init__(self, lease_nonce: _Optional[bytes] = ..., message_id: _Optional[bytes] = ..., example_count: _Optional[int] = ...) -> None: ...

class CommitUploadResponse(_message.Message):
    __slots__ = ("round_number",)
    ROUND_NUMBER_FIELD_NUMBER: _ClassVar[int]
    round_number: int
    def __init__(self, round_number: _Optional[int] = ...) -> None: ...

class ReportEvaluationRequest(_message.Message):
    __slots__ = ("lease_nonce", "token_count", "log_loss_sum", "top1_hits", "top3_hits", "word_count", "unknown_count")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOG_LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    TOP1_HITS_FIELD_NUMBER: _ClassVar[int]
    TOP3_HITS_FIELD_NUMBER: _ClassVar[int]
    WORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_COUNT_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    token_count: int
    log_loss_sum: float
    top1_hits: int
    top3_hits: int
    word_count: int
    unknown_count: int
    def __init__(self, lease_nonce: _Optional[bytes] = ..., token_count: _Optional[int] = ..., log_loss_sum: _Optional[float] = ..., top1_hits: _Optional[int] = ..., top3_hits: _Optional[int] = ..., word_count: _Optional[int] = ..., unknown_count: _Optional[int] = ...) -> None: ...

class ReportEvaluationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SendEmbeddingRequest(_message.Message):
    __slots__ = ("lease_nonce", "sealed")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    sealed: bytes
    def __init__(self, lease_nonce: _Optional[bytes] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class SendEmbeddingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RefusePlanRequest(_message.Message):
    __slots__ = ("lease_nonce", "code", "reason")
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_nonce: bytes
    code: str
    reason: str
    def __init__(self, lease_nonce: _Optional[bytes] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RefusePlanResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("run", "round_number", "phase", "enrolled_clients", "connected_clients", "leased_clients", "committed_clients", "remaining_ms", "paused", "guarantee", "software_version", "personalisation", "growth", "shortage", "spent", "helper", "refusals", "device_versions", "epsilons", "received_bytes", "sent_bytes")
    class RefusalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DeviceVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class EpsilonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ENROLLED_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    LEASED_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PERSONALISATION_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FIELD_NUMBER: _ClassVar[int]
    SHORTAGE_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    HELPER_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    EPSILONS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    run: str
    round_number: int
    phase: str
    enrolled_clients: int
    connected_clients: int
    leased_clients: int
    committed_clients: int
    remaining_ms: int
    paused: bool
    guarantee: str
    software_version: str
    personalisation: str
    growth: str
    shortage: str
    spent: str
    helper: str
    refusals: _containers.ScalarMap[str, int]
    device_versions: _containers.ScalarMap[str, int]
    epsilons: _containers.ScalarMap[str, float]
    received_bytes: int
    sent_bytes: int
    def __init__(self, run: _Optional[str] = ..., round_number: _Optional[int] = ..., phase: _Optional[str] = ..., enrolled_clients: _Optional[int] = ..., connected_clients: _Optional[int] = ..., leased_clients: _Optional[int] = ..., committed_clients: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., paused: _Optional[bool] = ..., guarantee: _Optional[str] = ..., software_version: _Optional[str] = ..., personalisation: _Optional[str] = ..., growth: _Optional[str] = ..., shortage: _Optional[str] = ..., spent: _Optional[str] = ..., helper: _Optional[str] = ..., refusals: _Optional[_Mapping[str, int]] = ..., device_versions: _Optional[_Mapping[str, int]] = ..., epsilons: _Optional[_Mapping[str, float]] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ...) -> None: ...

class ListRoundsRequest(_message.Message):
    __slots__ = ("first_round",)
    FIRST_ROUND_FIELD_NUMBER: _ClassVar[int]
    first_round: int
    def __init__(self, first_round: _Optional[int] = ...) -> None: ...

class ListRoundsResponse(_message.Message):
    __slots__ = ("rounds",)
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    rounds: _containers.RepeatedCompositeFieldContainer[RoundSummary]
    def __init__(self, rounds: _Optional[_Iterable[_Union[RoundSummary, _Mapping]]] = ...) -> None: ...

class RoundSummary(_message.Message):
    __slots__ = ("round_number", "attempt", "contributions", "model_sha256", "duration_s", "metrics")
    ROUND_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    round_number: int
    attempt: int
    contributions: int
    model_sha256: str
    duration_s: float
    metrics: str
    def __init__(self, round_number: _Optional[int] = ..., attempt: _Optional[int] = ..., contributions: _Optional[int] = ..., model_sha256: _Optional[str] = ..., duration_s: _Optional[float] = ..., metrics: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("client_name",)
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    def __init__(self, client_name: _Optional[str] = ...) -> None: ...

class RevokeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("client_name",)
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    client_name: str
    def __init__(self, client_name: _Optional[str] = ...) -> None: ...

class ForgetResponse(_message.Message):
    __slots__ = ("deleted_updates",)
    DELETED_UPDATES_FIELD_NUMBER: _ClassVar[int]
    deleted_updates: int
    def __init__(self, deleted_updates: _Optional[int] = ...) -> None: ...
