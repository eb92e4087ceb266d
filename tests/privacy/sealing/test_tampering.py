"""Messages that must not open, and the one thing that is said about each.

An attacker here is anyone on the way (changes bytes), a cohort mate (knows a downlink's content
key), another enrolled device (signs what it likes with its own key), or the sender itself with
faulty software. Cases that forge start from `Forger`, whose untouched message opens: it is the
change alone that is refused.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA512
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.identities.party import Identity
from privacy.sealing.envelope import (
    Direction,
    MessageContext,
    Opener,
    Suite,
    UnsealError,
    open_sealed,
    seal,
    seal_body,
)
from tests.privacy.conftest import Federation
from tests.privacy.forging import (
    HEADER_FIELDS,
    MIB,
    Forger,
    Parts,
    key_digest,
    slip_fields_of,
    tree_digest,
)

ONLY_TEXT = "sealed message could not be opened"


@dataclass
class Lab:
    """Give a case what it needs: a federation, an honest message, and a forger."""

    federation: Federation
    context: MessageContext
    forger: Forger
    sender: Identity
    recipient: Identity

    def honest(self, **changes: Any) -> Parts:
        """Return an honest message, for this context or one that differs from it."""
        return self.forged(replace(self.forger, context=replace(self.context, **changes)))

    @staticmethod
    def forged(forger: Forger, **overrides: Any) -> Parts:
        return forger.make(**overrides)

    def opener(self, **changes: Any) -> Opener:
        arguments: dict[str, Any] = {
            "expected": self.context,
            "payload_bytes": len(self.forger.payload),
            "recipient": self.recipient,
            "sender": self.sender.signing.certified,
        }
        return Opener(**(arguments | changes))


Case = Callable[[Lab], tuple[Parts | bytes, dict[str, Any]]]
CASES: dict[str, Case] = {}
DOWNLINK_CASES: dict[str, Case] = {}


def case(name: str, change: Callable[[Lab], Parts | bytes], **opener: Any) -> None:
    """Add an update that is tampered with, and what its opener is told beyond the usual."""
    assert name not in CASES
    CASES[name] = lambda lab: (change(lab), opener)


def downlink_case(name: str, change: Callable[[Lab], Parts | bytes]) -> None:
    """Add a model that is tampered with on its way to a device."""
    assert name not in DOWNLINK_CASES
    DOWNLINK_CASES[name] = lambda lab: (change(lab), {})


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


# Header fields: one flipped bit in the last byte of each, on the way


def _header_offsets() -> dict[str, int]:
    sizes = {"B": 1, "I": 4, "Q": 8}
    offsets, position = {}, 0
    for name, code in HEADER_FIELDS.items():
        position += sizes[code] if code in sizes else int(code[:-1])
        offsets[name] = position - 1
    return offsets


def _flip_header(position: int) -> Callable[[Lab], Parts]:
    def change(lab: Lab) -> Parts:
        parts = lab.honest()
        return replace(parts, header=flipped(parts.header, position))

    return change


for _name, _offset in _header_offsets().items():
    case(f"header-flip-{_name}", _flip_header(_offset))


# Header fields: signed by the sender itself, but not what was agreed


def _forge(**overrides: Any) -> Callable[[Lab], Parts]:
    return lambda lab: lab.forged(lab.forger, **overrides)


case("forged-magic", _forge(magic=b"SOTTOENW"))
case("forged-version-older", _forge(version=1))
case("forged-version-newer", _forge(version=3))
case("forged-direction-unknown", _forge(direction=3))
case("forged-deadline-later", _forge(deadline_ms=1_800_000_060_001))
case("forged-deadline-none", _forge(deadline_ms=0))
case("forged-sender-none", _forge(sender_sha256=bytes(32)))
case(
    "forged-sender-is-the-wrapping-certificate",
    lambda lab: lab.forged(
        lab.forger, sender_sha256=lab.federation.device.wrapping.certified.sha256
    ),
)

# Chunks dropped, repeated, moved, cut


def _chunks(order: Callable[[list[bytes]], list[bytes]]) -> Callable[[Lab], Parts]:
    def change(lab: Lab) -> Parts:
        parts = lab.honest()
        return replace(parts, chunks=order(parts.chunks))

    return change


case("chunk-drop-first", _chunks(lambda c: c[1:]))
case("chunk-drop-middle", _chunks(lambda c: [c[0], c[2]]))
case("chunk-drop-last", _chunks(lambda c: c[:-1]))
case("chunk-drop-all", _chunks(lambda c: []))
case("chunk-drop-all-but-last", _chunks(lambda c: c[-1:]))
case("chunk-repeat-first", _chunks(lambda c: [c[0], *c]))
case("chunk-repeat-middle", _chunks(lambda c: [c[0], c[1], c[1], c[2]]))
case("chunk-repeat-last", _chunks(lambda c: [*c, c[-1]]))
case("chunk-repeat-first-for-second", _chunks(lambda c: [c[0], c[0], c[2]]))
case("chunk-repeat-whole-body", _chunks(lambda c: [*c, *c]))
case("chunk-swap-first-two", _chunks(lambda c: [c[1], c[0], c[2]]))
case("chunk-swap-first-and-last", _chunks(lambda c: [c[2], c[1], c[0]]))
case("chunk-swap-last-two", _chunks(lambda c: [c[0], c[2], c[1]]))
case("chunk-rotate", _chunks(lambda c: [*c[1:], c[0]]))
case("chunk-flip-first-byte", _chunks(lambda c: [flipped(c[0], 0), *c[1:]]))
case("chunk-flip-last-ciphertext-byte", _chunks(lambda c: [*c[:-1], flipped(c[-1], -17)]))
case("chunk-flip-tag", _chunks(lambda c: [c[0], flipped(c[1], -1), c[2]]))
case("chunk-zeroed", _chunks(lambda c: [bytes(len(c[0])), *c[1:]]))
case("truncate-last-byte", lambda lab: lab.honest().join()[:-1])
case("truncate-last-tag", lambda lab: lab.honest().join()[:-16])
case("truncate-in-first-chunk", lambda lab: lab.honest().join()[:5000])
case("truncate-after-prefix", lambda lab: lab.honest().join()[:1310])
case("truncate-in-header", lambda lab: lab.honest().join()[:700])
case("truncate-all", lambda lab: b"")
case("truncate-first-byte", lambda lab: lab.honest().join()[1:])
case("append-a-byte", lambda lab: lab.honest().join() + b"\0")
case("append-an-empty-chunk", lambda lab: lab.honest().join() + bytes(16))
case("prepend-a-byte", lambda lab: b"\0" + lab.honest().join())

# Another round, slot, run, direction, client


def _other(**changes: Any) -> Callable[[Lab], Parts]:
    return lambda lab: lab.honest(**changes)


case("cross-round-before", _other(round_number=2))
case("cross-round-after", _other(round_number=4))
case("cross-slot", _other(slot=2))
case("cross-run", _other(run=b"another run, 16b"))
case("cross-run-zeros", _other(run=bytes(16)))
case("cross-direction", _other(direction=Direction.DOWNLINK))
case("cross-direction-both", _other(direction=Direction.DOWNLINK, slot=0, lease_nonce=bytes(16)))
case(
    "cross-client-signed-by-another-device",
    lambda lab: lab.forged(replace(lab.forger, sender=lab.federation.other_device)),
)
case(
    "cross-client-another-device-names-this-one",
    lambda lab: lab.forged(
        replace(lab.forger, sender=lab.federation.other_device),
        sender_sha256=lab.federation.device.signing.certified.sha256,
    ),
)
case(
    "cross-client-signed-by-the-coordinator",
    lambda lab: lab.forged(replace(lab.forger, sender=lab.federation.coordinator)),
)
case(
    "cross-recipient-sealed-to-another-device",
    lambda lab: lab.forged(
        replace(lab.forger, recipient=lab.federation.other_device.wrapping.certified)
    ),
)


def _slip_of(**changes: Any) -> Callable[[Lab], Parts]:
    """Put another message's slip before this one's body."""
    return lambda lab: replace(lab.honest(), slip=lab.honest(**changes).slip)


case("cross-slip-of-another-round", _slip_of(round_number=4))
case("cross-slip-of-another-slot", _slip_of(slot=2))
case("cross-slip-of-another-run", _slip_of(run=b"another run, 16b"))


def _header_of(**changes: Any) -> Callable[[Lab], Parts]:
    """Put another message's signed header before this one's body."""

    def change(lab: Lab) -> Parts:
        other = lab.honest(**changes)
        return replace(lab.honest(), header=other.header, signature=other.signature)

    return change


case("cross-header-of-another-run", _header_of(run=b"another run, 16b"))
case(
    "cross-chunk-of-another-run",
    lambda lab: replace(
        lab.honest(),
        chunks=[*lab.honest().chunks[:-1], lab.honest(run=b"another run, 16b").chunks[-1]],
    ),
)
case(
    "cross-header-of-another-slot",
    lambda lab: replace(
        lab.honest(slot=2), header=lab.honest().header, signature=lab.honest().signature
    ),
)
case(
    "cross-chunk-of-another-round",
    lambda lab: replace(
        lab.honest(),
        chunks=[lab.honest(round_number=4).chunks[0], *lab.honest().chunks[1:]],
    ),
)
case(
    "cross-slip-names-another-recipient",
    lambda lab: lab.forged(
        replace(
            lab.forger, slip_fields=slip_fields_of(lab.federation.other_device.wrapping.certified)
        )
    ),
)


def _mixed_slip_fields(lab: Lab) -> tuple[bytes, bytes]:
    """Return slip fields that are half the coordinator's and half the other device's."""
    ours = slip_fields_of(lab.federation.coordinator.wrapping.certified)
    theirs = slip_fields_of(lab.federation.other_device.wrapping.certified)
    return theirs[:32] + ours[32:], ours[:32] + theirs[32:]


case(
    "cross-slip-names-another-certificate",
    lambda lab: lab.forged(replace(lab.forger, slip_fields=_mixed_slip_fields(lab)[0])),
)
case(
    "cross-slip-names-another-key",
    lambda lab: lab.forged(replace(lab.forger, slip_fields=_mixed_slip_fields(lab)[1])),
)


def _rewritten_slip_fields(lab: Lab) -> Parts:
    """Readdress the other device's slip to the coordinator, wrapped key left as it is."""
    theirs = lab.forged(
        replace(lab.forger, recipient=lab.federation.other_device.wrapping.certified)
    )
    fields = slip_fields_of(lab.federation.coordinator.wrapping.certified)
    return replace(theirs, slip=fields + theirs.slip[64:])


case("cross-slip-readdressed", _rewritten_slip_fields)

# Weaker keys, suites, paddings


def _wrap(wrap_padding: padding.AsymmetricPadding) -> Callable[[Lab], Parts]:
    return lambda lab: lab.forged(replace(lab.forger, wrap_padding=wrap_padding))


def _sign(sign_padding: padding.AsymmetricPadding) -> Callable[[Lab], Parts]:
    return lambda lab: lab.forged(replace(lab.forger, sign_padding=sign_padding))


def _oaep_without_label(lab: Lab) -> Parts:
    oaep = padding.OAEP(padding.MGF1(SHA256()), SHA256(), None)
    return lab.forged(replace(lab.forger, wrap_padding=oaep))


def _oaep_sha1(lab: Lab) -> Parts:
    header = lab.forged(lab.forger).header
    fields = slip_fields_of(lab.forger.recipient)
    label = hashlib.sha256(header + fields).digest()
    oaep = padding.OAEP(padding.MGF1(SHA1()), SHA1(), label)  # noqa: S303  # the attack itself
    return lab.forged(replace(lab.forger, wrap_padding=oaep))


case("downgrade-suite-none", _forge(suite=0))
case("downgrade-suite-unknown", _forge(suite=3))
case("downgrade-suite-names-larger-keys-than-used", _forge(suite=2))
case("downgrade-suite-not-accepted", _forge(), suites=frozenset({Suite.RSA_4096}))
case("downgrade-no-suite-accepted", _forge(), suites=frozenset())
case("downgrade-wrap-pkcs1v15", _wrap(padding.PKCS1v15()))
case("downgrade-wrap-oaep-without-label", _oaep_without_label)
case("downgrade-wrap-oaep-sha1", _oaep_sha1)
case("downgrade-sign-pkcs1v15", _sign(padding.PKCS1v15()))
case("downgrade-sign-no-salt", _sign(padding.PSS(padding.MGF1(SHA256()), 0)))
case("downgrade-sign-other-mask", _sign(padding.PSS(padding.MGF1(SHA512()), 32)))
case(
    "downgrade-content-key-128-bits",
    lambda lab: lab.forged(replace(lab.forger, content_key=b"k" * 16)),
)
case(
    "downgrade-content-key-192-bits",
    lambda lab: lab.forged(replace(lab.forger, content_key=b"k" * 24)),
)

# Lengths


def _grown(lab: Lab, by: int) -> Parts:
    """Seal honestly a payload that is longer or shorter than the schema's."""
    payload = (lab.forger.payload + bytes(max(by, 0)))[: len(lab.forger.payload) + by]
    return lab.forged(replace(lab.forger, payload=payload))


case("length-payload-said-shorter", _forge(payload_bytes=2 * MIB + 99))
case("length-payload-said-longer", _forge(payload_bytes=2 * MIB + 101))
case("length-payload-said-none", _forge(payload_bytes=0))
case("length-payload-said-huge", _forge(payload_bytes=(1 << 64) - 1))
case("length-no-chunks", _forge(chunk_count=0))
case("length-one-chunk-less", _forge(chunk_count=2))
case("length-one-chunk-more", _forge(chunk_count=4))
case("length-most-chunks", _forge(chunk_count=(1 << 32) - 1))
case(
    "length-smaller-chunks",
    lambda lab: lab.forged(replace(lab.forger, chunk_bytes=MIB // 2), chunk_count=5),
)
case(
    "length-smaller-chunks-not-said",
    lambda lab: lab.forged(replace(lab.forger, chunk_bytes=MIB // 2)),
)
case("length-one-large-chunk", lambda lab: lab.forged(replace(lab.forger, chunk_bytes=3 * MIB)))

# Payload of another schema, base or content

case("codec-payload-one-byte-longer", lambda lab: _grown(lab, 1))
case("codec-payload-one-float-shorter", lambda lab: _grown(lab, -4))
case("codec-payload-one-chunk-longer", lambda lab: _grown(lab, MIB))
case("codec-payload-empty", lambda lab: lab.forged(replace(lab.forger, payload=b"")))
case("codec-other-schema", _other(schema_sha256=b"t" * 32))
case("codec-no-schema", _other(schema_sha256=bytes(32)))
case("codec-other-plan", _other(plan_sha256=b"q" * 32))
case("codec-no-plan", _other(plan_sha256=bytes(32)))
case("codec-other-base", _other(base_sha256=b"c" * 32))
case("codec-base-and-schema-exchanged", _other(base_sha256=b"s" * 32, schema_sha256=b"b" * 32))

# Content that the sender did not commit to. In a downlink every cohort mate knows the key; in an
# uplink nobody does, but anybody can wrap a key of their own for the coordinator.


def _mate_rewrites(lab: Lab) -> Parts:
    """Re-encrypt other content under the known key: every tag fits, the digest does not."""
    payload = flipped(lab.forger.payload, MIB + 7)
    return lab.forged(replace(lab.forger, encrypted=payload))


def _mate_rewrites_last_bit(lab: Lab) -> Parts:
    return lab.forged(replace(lab.forger, encrypted=flipped(lab.forger.payload, -1)))


def _mate_exchanges_chunks(lab: Lab) -> Parts:
    first, second, rest = (lab.forger.payload[i * MIB :][:MIB] for i in range(3))
    return lab.forged(replace(lab.forger, encrypted=second + first + rest))


def _key_changed(lab: Lab) -> Parts:
    """Wrap a key of one's own for the victim, and encrypt other content with it."""
    thief = replace(lab.forger, content_key=b"K" * 32, encrypted=bytes(len(lab.forger.payload)))
    return thief.make_below(lab.honest())


def _key_changed_content_kept(lab: Lab) -> Parts:
    return replace(lab.forger, content_key=b"K" * 32).make_below(lab.honest())


downlink_case("commitment-mate-rewrites-a-chunk", _mate_rewrites)
downlink_case("commitment-mate-rewrites-the-last-bit", _mate_rewrites_last_bit)
downlink_case("commitment-mate-exchanges-chunks", _mate_exchanges_chunks)
downlink_case("commitment-mate-changes-the-key", _key_changed)
downlink_case("commitment-none", _forge(commitment=bytes(32)))
downlink_case(
    "commitment-hashed-from-end-to-end",
    lambda lab: lab.forged(lab.forger, commitment=hashlib.sha256(lab.forger.payload).digest()),
)
downlink_case(
    "commitment-to-another-payload",
    lambda lab: lab.forged(lab.forger, commitment=tree_digest(lab.forger.payload[::-1])),
)
downlink_case(
    "commitment-to-the-key-alone",
    lambda lab: lab.forged(lab.forger, commitment=key_digest(lab.forger.content_key)),
)
case("commitment-stranger-changes-the-key", _key_changed)
case("commitment-stranger-changes-the-key-only", _key_changed_content_kept)
case("commitment-none", _forge(commitment=bytes(32)))
case("commitment-to-another-key", _forge(commitment=key_digest(b"K" * 32)))
case("commitment-to-the-key-untagged", _forge(commitment=hashlib.sha256(b"k" * 32).digest()))
case(
    "commitment-to-the-payload-alone",
    lambda lab: lab.forged(lab.forger, commitment=tree_digest(lab.forger.payload)),
)

# Signature


def _signature(change: Callable[[bytes], bytes]) -> Callable[[Lab], Parts]:
    def changed(lab: Lab) -> Parts:
        parts = lab.honest()
        return replace(parts, signature=change(parts.signature))

    return changed


case("signature-flip-first", _signature(lambda s: flipped(s, 0)))
case("signature-flip-last", _signature(lambda s: flipped(s, 383)))
case("signature-flip-filling", _signature(lambda s: flipped(s, 384)))
case("signature-flip-last-of-filling", _signature(lambda s: flipped(s, 511)))
case("signature-zeros", _signature(lambda s: bytes(512)))
case("signature-ones", _signature(lambda s: b"\xff" * 512))
case("signature-shifted", _signature(lambda s: s[1:] + b"\0"))
case(
    "signature-of-another-message",
    lambda lab: replace(lab.honest(), signature=lab.honest(slot=2).signature),
)
case(
    "signature-made-for-a-release",
    lambda lab: lab.forged(replace(lab.forger, sign_prefix=b"sotto release\0")),
)
case(
    "signature-made-for-nothing",
    lambda lab: lab.forged(replace(lab.forger, sign_prefix=b"")),
)
case(
    "slip-flip-certificate",
    lambda lab: replace(lab.honest(), slip=flipped(lab.honest().slip, 0)),
)
case("slip-flip-key-id", lambda lab: replace(lab.honest(), slip=flipped(lab.honest().slip, 32)))
case(
    "slip-flip-wrapped-key",
    lambda lab: replace(lab.honest(), slip=flipped(lab.honest().slip, 64)),
)
case("slip-flip-filling", lambda lab: replace(lab.honest(), slip=flipped(lab.honest().slip, 575)))
case("slip-zeros", lambda lab: replace(lab.honest(), slip=bytes(576)))

# Lease nonce and replay

case("lease-nonce-zeros", _other(lease_nonce=bytes(16)))
case("lease-nonce-of-another-lease", _other(lease_nonce=b"nonce of lease 2"))
case("lease-nonce-reversed", _other(lease_nonce=b"nonce of lease 1"[::-1]))
case("lease-nonce-is-the-run", _other(lease_nonce=bytes(range(16))))
case("replay-of-an-earlier-attempt", _other(lease_nonce=b"attempt before 1", slot=0))
case("replay-before-a-restart-moved-the-deadline", _other(deadline_ms=1_800_000_030_000))
case("replay-on-a-base-rolled-back", _other(base_sha256=hashlib.sha256(b"older").digest()))
case("replay-under-another-name", _forge(), message_id=b"the name of a 2.")
case("replay-of-last-round-as-announced", _other(round_number=2), message_id=b"a message's name")


@pytest.fixture
def lab(federation: Federation, uplink: MessageContext, forger: Forger) -> Lab:
    return Lab(federation, uplink, forger, federation.device, federation.coordinator)


@pytest.fixture
def downlink_lab(federation: Federation, downlink: MessageContext, forger: Forger) -> Lab:
    sender, recipient = federation.coordinator, federation.device
    forger = replace(
        forger, sender=sender, recipient=recipient.wrapping.certified, context=downlink
    )
    return Lab(federation, downlink, forger, sender, recipient)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_tampered_update_does_not_open(lab: Lab, name: str) -> None:
    _check_refused(lab, *CASES[name](lab))


@pytest.mark.parametrize("name", DOWNLINK_CASES)
def test_a_tampered_model_does_not_open(downlink_lab: Lab, name: str) -> None:
    _check_refused(downlink_lab, *DOWNLINK_CASES[name](downlink_lab))


def _check_refused(lab: Lab, message: Parts | bytes, changes: dict[str, Any]) -> None:
    sealed = message.join() if isinstance(message, Parts) else message
    opener = lab.opener(**changes)

    with pytest.raises(UnsealError) as refusal:
        _feed_and_finish(opener, sealed)

    assert str(refusal.value) == ONLY_TEXT
    # Nothing comes out afterwards either, and the right bytes do not revive it.
    with pytest.raises(UnsealError):
        opener.feed(lab.honest().join())
    with pytest.raises(UnsealError):
        opener.finish()
    with pytest.raises(UnsealError):
        _ = opener.header


def test_the_untouched_messages_open(lab: Lab, downlink_lab: Lab) -> None:
    for each in (lab, downlink_lab):
        assert _feed_and_finish(each.opener(), each.honest().join()) == each.forger.payload


@pytest.mark.parametrize(
    "changes",
    [
        {"round_number": 4},
        {"slot": 2},
        {"run": bytes(16)},
        {"direction": Direction.DOWNLINK},
        {"lease_nonce": b"nonce of lease 2"},
        {"base_sha256": b"c" * 32},
        {"schema_sha256": b"t" * 32},
        {"plan_sha256": b"q" * 32},
        {"deadline_ms": 0},
    ],
)
def test_a_message_refused_elsewhere_opens_where_it_belongs(
    lab: Lab, changes: dict[str, Any]
) -> None:
    opener = lab.opener(expected=replace(lab.context, **changes))

    assert _feed_and_finish(opener, lab.honest(**changes).join()) == lab.forger.payload


@pytest.mark.slow
@pytest.mark.parametrize("small_end", ["sender", "recipient"])
def test_the_larger_suite_needs_large_keys_at_both_ends(
    lab: Lab, large: Identity, small_end: str
) -> None:
    sender = lab.federation.device if small_end == "sender" else large
    recipient = lab.federation.coordinator if small_end == "recipient" else large
    forger = replace(lab.forger, sender=sender, recipient=recipient.wrapping.certified)
    ends: dict[str, Any] = {"sender": sender.signing.certified, "recipient": recipient}

    with pytest.raises(UnsealError, match=ONLY_TEXT):
        _feed_and_finish(lab.opener(**ends), forger.make(suite=2).join())

    assert _feed_and_finish(lab.opener(**ends), forger.make(suite=1).join()) == forger.payload


def test_a_replay_shows_itself_by_its_name(lab: Lab) -> None:
    sealed = lab.honest().join()
    first, again = lab.opener(), lab.opener()

    _feed_and_finish(first, sealed)
    _feed_and_finish(again, sealed)

    assert first.message_id == again.message_id == b"a message's name"


def test_a_downlink_sealed_to_one_member_does_not_open_for_another(
    federation: Federation, downlink: MessageContext
) -> None:
    body = seal_body(b"model", downlink, sender=federation.coordinator)
    slip = body.for_recipient(federation.device.wrapping.certified)

    with pytest.raises(UnsealError, match=ONLY_TEXT):
        open_sealed(
            [slip, *map(bytes, body.views())],
            downlink,
            payload_bytes=5,
            recipient=federation.other_device,
            sender=federation.coordinator.signing.certified,
        )


@pytest.fixture(scope="module")
def small(federation: Federation, uplink: MessageContext) -> bytes:
    message = seal(
        bytes(range(200)),
        uplink,
        sender=federation.device,
        recipient=federation.coordinator.wrapping.certified,
    )
    return b"".join(map(bytes, message.views()))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_anywhere_is_noticed(
    federation: Federation, uplink: MessageContext, small: bytes, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(small) - 1))
    sealed = flipped(small, position, data.draw(st.integers(0, 7)))

    with pytest.raises(UnsealError, match=ONLY_TEXT):
        _open_small(sealed, uplink, federation.coordinator, federation)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_truncation_is_noticed(
    federation: Federation, uplink: MessageContext, small: bytes, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(small) - 1))

    with pytest.raises(UnsealError, match=ONLY_TEXT):
        _open_small(small[:kept], uplink, federation.coordinator, federation)


@settings(max_examples=100, deadline=None)
@given(rubbish=st.binary(max_size=4000))
def test_rubbish_does_not_open(
    federation: Federation, uplink: MessageContext, rubbish: bytes
) -> None:
    with pytest.raises(UnsealError, match=ONLY_TEXT):
        _open_small(rubbish, uplink, federation.coordinator, federation)


def _open_small(
    sealed: bytes, expected: MessageContext, recipient: Identity, federation: Federation
) -> memoryview:
    return open_sealed(
        [sealed],
        expected,
        payload_bytes=200,
        recipient=recipient,
        sender=federation.device.signing.certified,
    )


def _feed_and_finish(opener: Opener, sealed: bytes) -> memoryview:
    opener.feed(sealed)
    return opener.finish()
