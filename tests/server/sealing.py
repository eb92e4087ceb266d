"""Sealed updates as devices send them, for tests of what the coordinator does with them."""

import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.compression.update_format import PlainFormat, UpdateFormats
from models.plan.plan import upload_schema
from models.plan.signed_plan import sign_plan
from models.settings.model import schema_of
from models.vector.codec import encode
from models.vector.schema import SENT
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import Role
from privacy.identities.party import Identity
from privacy.noise.secure_gaussian import SystemKeys
from privacy.sealing.envelope import MessageContext, seal
from server.config.federation import FederationConfig, parse_config
from server.config.plans import make_plan
from server.downlink.attempt_in_hand import RoundInHand
from server.downlink.sealed_once import Downlink
from server.records.inbox import Inbox
from server.records.store import Store
from server.releases.files import ReleaseFolder
from server.releases.method_state import MethodState
from server.uplink.sealed_payloads import SealedUpdate
from server.uplink.sealed_updates import UpdateOpener
from server.uplink.slot_order_sum import RoundSum

RUN = "ab" * 16
SETTINGS = """
seed = 1
[model]
family = "gru_lm"
vocabulary_size = 10
hidden_size = 2
[vocabulary]
name = "english-10k"
size = 10
[training]
learning_rate = 1.0
batch_size = 1
bptt_steps = 2
example_cap = 100
[privacy]
mode = "none"
[aggregation]
rule = "mean"
weighting = "equal"
[rounds]
cap = 10
cohort_size = 3
quorum = 2
deadline_s = 60.0
[listen]
enrolment = "127.0.0.1:0"
devices = "127.0.0.1:0"
"""


@dataclass(frozen=True)
class Parties:
    """Hold one federation's identities."""

    coordinator: Identity
    devices: tuple[Identity, ...]


def make_parties(folder: Path, names: tuple[str, ...]) -> Parties:
    """Certify a coordinator and devices."""
    authority = CertificateAuthority.create(folder / "authority", RUN)

    def certified(name: str, role: Role) -> Identity:
        requests = Identity.create_requests(folder / name, name)
        hostnames = ("localhost",) if role == "coordinator" else ()
        issued = authority.issue_all(requests, name=name, role=role, hostnames=hostnames)
        ca, now = authority.certificate, time.time()
        return Identity.install(folder / name, issued, ca=ca, role=role, now=now)

    return Parties(
        certified("coordinator", "coordinator"), tuple(certified(name, "device") for name in names)
    )


def configure(**tables: str) -> FederationConfig:
    """Return a small federation; a keyword replaces the lines of one table."""
    text = SETTINGS
    for table, lines in tables.items():
        start = text.index(f"[{table}]")
        end = text.index("\n[", start)
        text = f"{text[:start]}[{table}]\n{lines}{text[end:]}"
    return parse_config(text, "the test's settings")


def round_sum_of(
    config: FederationConfig, store: Store, inbox: Inbox, coordinator: Identity, method: MethodState
) -> RoundSum:
    """Return what sums plain updates; its releases lie beside the inbox."""
    formats = UpdateFormats([PlainFormat(config.schema.with_roles(*SENT))])
    return RoundSum(
        config,
        store,
        inbox,
        UpdateOpener(formats, coordinator),
        noise_keys=SystemKeys(),
        method=method,
        releases=ReleaseFolder(inbox.folder.parent / "releases"),
    )


def round_in_hand(config: FederationConfig, coordinator: Identity) -> RoundInHand:
    """Return round 1, from parameters that are all zero."""
    plan = make_plan(config, RUN, cohort_size=3)
    schema = schema_of(config.model)
    zeros = np.zeros(schema.element_count, dtype=np.float32)
    return RoundInHand(
        plan=plan,
        round_number=1,
        attempt=0,
        base_sha256=bytes(32),
        opened_at=100.0,
        deadline_ms=160_000,
        downlink=Downlink.seal(
            encode(schema, zeros),
            run=bytes.fromhex(RUN),
            round_number=1,
            base_sha256=bytes(32),
            schema_sha256=schema.sha256,
            sender=coordinator,
        ),
        coordinator=coordinator.certificates,
        plan_signature=sign_plan(plan.encode(), coordinator, run=RUN, round_number=1, attempt=0),
    )


def send(
    path: Path,
    in_hand: RoundInHand,
    update: NDArray[np.float32],
    *,
    last_element: float | None = None,
    context: MessageContext,
    sender: Identity,
    recipient: Identity,
) -> SealedUpdate:
    """Write a sealed update and return what the coordinator expects of it.

    ``last_element`` replaces the last of the update after the codec has looked at it.
    """
    payload = bytearray(encode(upload_schema(in_hand.plan), update))
    if last_element is not None:
        payload[-4:] = struct.pack("<f", last_element)
    return seal_into(path, payload, context, sender, recipient)


def seal_into(
    path: Path, payload: bytearray, context: MessageContext, sender: Identity, recipient: Identity
) -> SealedUpdate:
    """Write any payload as a sealed update and return what the coordinator expects of it."""
    message = seal(
        payload,
        context,
        sender=sender,
        recipient=recipient.wrapping.certified,
    )
    path.write_bytes(b"".join(map(bytes, message.views())))
    return SealedUpdate(
        path=path,
        context=context,
        message_id=message.message_id,
        senders=[sender.signing.certified],
    )
