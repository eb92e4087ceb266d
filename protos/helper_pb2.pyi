from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UnmaskRequest(_message.Message):
    __slots__ = ("terms", "member")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    terms: UnmaskTerms
    member: MaskMember
    def __init__(self, terms: _Optional[_Union[UnmaskTerms, _Mapping]] = ..., member: _Optional[_Union[MaskMember, _Mapping]] = ...) -> None: ...

class UnmaskTerms(_message.Message):
    __slots__ = ("helper_version", "run", "round_number", "attempt", "group", "groups", "element_count", "bits", "base_sha256", "plan_sha256", "deadline_ms", "coordinator_time_ms", "last_sequence", "last_sha256", "least_contributors")
    HELPER_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    BASE_SHA256_FIELD_NUMBER: _ClassVar[int]
    PLAN_SHA256_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SHA256_FIELD_NUMBER: _ClassVar[int]
    LEAST_CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    helper_version: int
    run: bytes
    round_number: int
    attempt: int
    group: int
    groups: int
    element_count: int
    bits: int
    base_sha256: bytes
    plan_sha256: bytes
    deadline_ms: int
    coordinator_time_ms: int
    last_sequence: int
    last_sha256: bytes
    least_contributors: int
    def __init__(self, helper_version: _Optional[int] = ..., run: _Optional[bytes] = ..., round_number: _Optional[int] = ..., attempt: _Optional[int] = ..., group: _Optional[int] = ..., groups: _Optional[int] = ..., element_count: _Optional[int] = ..., bits: _Optional[int] = ..., base_sha256: _Optional[bytes] = ..., plan_sha256: _Optional[bytes] = ..., deadline_ms: _Optional[int] = ..., coordinator_time_ms: _Optional[int] = ..., last_sequence: _Optional[int] = ..., last_sha256: _Optional[bytes] = ..., least_contributors: _Optional[int] = ...) -> None: ...

class MaskMember(_message.Message):
    __slots__ = ("slot", "lease_nonce", "sealed_seed", "signing_certificate")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LEASE_NONCE_FIELD_NUMBER: _ClassVar[int]
    SEALED_SEED_FIELD_NUMBER: _ClassVar[int]
    SIGNING_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    slot: int
    lease_nonce: bytes
    sealed_seed: bytes
    signing_certificate: bytes
    def __init__(self, slot: _Optional[int] = ..., lease_nonce: _Optional[bytes] = ..., sealed_seed: _Optional[bytes] = ..., signing_certificate: _Optional[bytes] = ...) -> None: ...

class UnmaskResponse(_message.Message):
    __slots__ = ("taken", "answer", "packed")
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    taken: TermsTaken
    answer: HelperAnswer
    packed: bytes
    def __init__(self, taken: _Optional[_Union[TermsTaken, _Mapping]] = ..., answer: _Optional[_Union[HelperAnswer, _Mapping]] = ..., packed: _Optional[bytes] = ...) -> None: ...

class TermsTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAnswersRequest(_message.Message):
    __slots__ = ("run", "first_sequence")
    RUN_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    run: bytes
    first_sequence: int
    def __init__(self, run: _Optional[bytes] = ..., first_sequence: _Optional[int] = ...) -> None: ...

class HelperAnswer(_message.Message):
    __slots__ = ("statement", "signature", "certificate")
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    statement: bytes
    signature: bytes
    certificate: bytes
    def __init__(self, statement: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...
