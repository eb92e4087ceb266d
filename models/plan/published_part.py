"""The file of a device's published personal tensors, signed by the device.

A personal part never leaves its device by itself: `edge_client.child.publishing` writes this file
when the owner asks for it, and the owner hands it over. The device's signing key signs it, so the
person who makes a keyboard from it knows its origin::

    magic "SOTTOPUB" | version, uint32 | sizes of body, signature and certificate, uint32 each |
    body (`models.vector.tensor_file`, its metadata says what it is) | signature | certificate,
    X.509 DER

No torch: the export reads this.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.vector.tensor_file import TensorFileError, decode_tensors, encode_tensors
from privacy.foundation.strict_json import decode_json
from privacy.identities.certificates import CertificateError, KeyUse, check_issuer, read_certificate
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose, SignatureError, verify

PUBLISHED_VERSION = 1
_MAGIC = b"SOTTOPUB"
_HEADER = struct.Struct("<8sIIII")
_METADATA = "published"
_LARGEST_SIGNATURE_BYTES = 1 << 10
_LARGEST_CERTIFICATE_BYTES = 1 << 14


class PublishedPartError(ValueError):
    """Raised when bytes are no published part, or an untrusted one; the text says why."""


class PublishedRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The origin of a published part.

    Attributes:
        run: Identifier of the run, 32 hex digits.
        client: The device's name at enrolment.
        method: Personalisation method.
        schema_sha256: Hex digest of the schema of all the model's tensors, roles included.
    """

    run: str
    client: str
    method: str
    schema_sha256: str


@dataclass(frozen=True)
class PublishedPart:
    """A published part whose signature is valid.

    Attributes:
        record: Its origin.
        tensors: The personal tensors by state-dict name, float32.
    """

    record: PublishedRecord
    tensors: dict[str, NDArray[np.float32]]


def encode_published(
    record: PublishedRecord, tensors: Mapping[str, NDArray[np.float32]], device: Identity
) -> bytes:
    """Return the file's bytes; tensors are finite float32 by state-dict name."""
    metadata = {_METADATA: msgspec.json.encode(record, order="deterministic").decode()}
    body = bytes(encode_tensors(tensors, metadata))
    signature = device.sign(body, purpose=Purpose.PUBLISHED_PART)
    certificate = device.certificates.signing
    sizes = (len(body), len(signature), len(certificate))
    return _HEADER.pack(_MAGIC, PUBLISHED_VERSION, *sizes) + body + signature + certificate


def decode_published(encoded: bytes, *, authority: bytes) -> PublishedPart:
    """Return what a device of this federation, whose CA certificate is given in DER, published.

    Raises:
        PublishedPartError: If the bytes are damaged or of another version, were not signed by the
            device that they name, or that is no device of this federation.
    """
    body, signature, certificate = _parts(encoded)
    signer = _checked_signer(body, signature, certificate, authority)
    try:
        tensors, metadata = decode_tensors(body)
        record = decode_json(metadata.get(_METADATA, ""), PublishedRecord)
    except (TensorFileError, msgspec.DecodeError) as error:
        raise PublishedPartError(f"the published part cannot be read: {error}") from None
    if record.client != signer:
        raise PublishedPartError(
            f"the published part of {record.client} must be signed by its device, got {signer}'s"
        )
    floats: dict[str, NDArray[np.float32]] = {}
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32:
            raise PublishedPartError(f"{name} must be float32, got {tensor.dtype}")
        floats[name] = tensor.astype(np.float32, copy=False)
    return PublishedPart(record, floats)


def _parts(encoded: bytes) -> tuple[bytes, bytes, bytes]:
    if len(encoded) < _HEADER.size or not encoded.startswith(_MAGIC):
        raise PublishedPartError(f"a published part must start with {_MAGIC!r}")
    _, version, *sizes = _HEADER.unpack_from(encoded)
    if version != PUBLISHED_VERSION:
        older = "this sotto" if version > PUBLISHED_VERSION else "the device"
        raise PublishedPartError(
            f"version of a published part must be {PUBLISHED_VERSION}, got {version}; "
            f"{older} is older"
        )
    if len(encoded) != _HEADER.size + sum(sizes):
        raise PublishedPartError(
            f"the published part must have {_HEADER.size + sum(sizes)} bytes, got {len(encoded)}"
        )
    if sizes[1] > _LARGEST_SIGNATURE_BYTES or sizes[2] > _LARGEST_CERTIFICATE_BYTES:
        raise PublishedPartError("signature and certificate of a published part are too large")
    first, second = _HEADER.size + sizes[0], _HEADER.size + sizes[0] + sizes[1]
    return encoded[_HEADER.size : first], encoded[first:second], encoded[second:]


def _checked_signer(body: bytes, signature: bytes, certificate: bytes, authority: bytes) -> str:
    """Return the name of the device that signed."""
    try:
        certified = read_certificate(certificate)
        if (certified.use, certified.role) != (KeyUse.SIGNING, "device"):
            raise PublishedPartError(
                f"a published part must be signed with a device's signing key, got a "
                f"{certified.role}'s {certified.use.value} key"
            )
        check_issuer(certificate, ca=authority)
        verify(certified.public_key, body, signature, purpose=Purpose.PUBLISHED_PART)
    except (CertificateError, SignatureError) as error:
        raise PublishedPartError(f"the published part cannot be trusted: {error}") from None
    return certified.name
