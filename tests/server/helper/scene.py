"""A helper, a coordinator and devices of one federation, admitted as in life."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem
from privacy.identities.helper_admission import (
    certify_helper,
    read_helper_request,
    write_helper_file,
)
from privacy.identities.issuing_key import make_issuing_key
from privacy.identities.party import Identity
from privacy.masking.mask_form import MaskForm, MaskTerms
from privacy.masking.sealed_seed import seal_seed
from server.helper.folder import HelperFolder, admit_helper, found_helper
from server.helper.newest_issuer import NewestIssuer
from server.helper.running import listen
from server.helper.service import HelperService
from server.helper.settings import HelperSettings
from server.records.failpoints import UNARMED, Failpoints
from server.records.helper_answers import HelperAnswers
from server.records.threads import Threads
from server.uplink.helper_call import HelperCall, MaskedMember

RUN = bytes.fromhex("ab" * 16)
FORM = MaskForm(element_count=1000, bits=24, attempt=0, groups=1, least_contributors=1)
SETTINGS = HelperSettings(listen="127.0.0.1:0", least_contributors=2, largest_rounds_a_day=3)


def terms_of(round_number: int = 1, group: int = 0, form: MaskForm = FORM) -> MaskTerms:
    return MaskTerms(
        run=RUN,
        round_number=round_number,
        group=group,
        form=form,
        base_sha256=b"b" * 32,
        plan_sha256=b"p" * 32,
        deadline_ms=int(time.time() * 1000) + 60_000,
    )


def seed_of(slot: int, terms: MaskTerms) -> bytes:
    """Return a seed that no other slot, round or attempt has."""
    return bytes([slot, terms.round_number, terms.form.attempt]) + bytes(29)


@dataclass
class Parties:
    """One federation's parties; the helper lives in ``folder``."""

    root: Path
    authority: CertificateAuthority
    issuer: CertificateAuthority
    folder: HelperFolder
    devices: list[Identity] = field(default_factory=list)

    @property
    def helper(self) -> Identity:
        return Identity.load(self.folder.identity)

    def device(self, name: str, *, days_ago: float = 0.0) -> Identity:
        """Return a device whose certificates of 90 days were issued so many days ago."""
        requests = Identity.create_requests(self.root / name, name)
        then = time.time() - days_ago * 86_400
        issued = self.authority.issue_all(requests, name=name, role="device", days=90, now=then)
        ca = self.authority.certificate
        return Identity.install(self.root / name, issued, ca=ca, role="device", now=then)

    def member(
        self,
        slot: int,
        terms: MaskTerms,
        *,
        device: Identity | None = None,
        bound_to: MaskTerms | None = None,
        seed: bytes | None = None,
        nonce: bytes | None = None,
    ) -> MaskedMember:
        """Return what a device gives; ``bound_to`` replaces the terms that its seed is bound to."""
        sender = device or self.devices[slot % len(self.devices)]
        lease = nonce or bytes([slot, terms.round_number, terms.form.attempt]) + bytes(13)
        sealed = seal_seed(
            seed or seed_of(slot, terms),
            (bound_to or terms).context(slot, lease),
            device=sender,
            helper=self.helper.wrapping.certified,
        )
        return MaskedMember(slot, lease, sealed, sender.certificates.signing)

    def members(self, slots: Iterable[int], terms: MaskTerms) -> list[MaskedMember]:
        return [self.member(slot, terms) for slot in slots]


def make_parties(root: Path, device_count: int = 4) -> Parties:
    """Found a federation's authority, have a helper admitted and certify devices."""
    authority = CertificateAuthority.create(root / "authority", RUN.hex())
    issuer = make_issuing_key(root / "authority", authority)
    pem = root / "authority.pem"
    pem.write_bytes(certificate_pem(authority.certificate))
    folder = HelperFolder(root / "helper")
    found_helper(folder, pem, ["localhost", "127.0.0.1"], SETTINGS)
    certificates = root / "helper.json"
    write_helper_file(certificates, certify_helper(authority, read_helper_request(folder.request)))
    admit_helper(folder, certificates, now=time.time())
    parties = Parties(root, authority, issuer, folder)
    parties.devices += [parties.device(f"device-{number}") for number in range(device_count)]
    return parties


@asynccontextmanager
async def serving(
    parties: Parties,
    *,
    settings: HelperSettings = SETTINGS,
    failpoints: Failpoints = UNARMED,
    clock: Callable[[], float] = time.time,
    run: bytes = RUN,
) -> AsyncIterator[str]:
    """Let the helper answer in this process; yield its address."""
    with ThreadPoolExecutor(2) as executor:
        service = HelperService(
            parties.folder.open_answers(settings),
            parties.helper,
            run,
            settings,
            issuers=NewestIssuer(parties.folder.newest_issuer, parties.authority.certificate),
            threads=Threads(executor),
            failpoints=failpoints,
            clock=clock,
        )
        grpc_server, port = await listen(service, parties.helper, settings.listen)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await grpc_server.stop(None)


@asynccontextmanager
async def calling(
    parties: Parties, address: str, *, issuer: CertificateAuthority | None = None
) -> AsyncIterator[HelperCall]:
    """Lend a coordinator's call, with what it kept of earlier ones."""
    with ThreadPoolExecutor(1) as executor:
        yield HelperCall(address, issuer or parties.issuer, kept_by(parties), Threads(executor))


def kept_by(parties: Parties) -> HelperAnswers:
    """Return what the coordinator kept, read anew."""
    return HelperAnswers(
        parties.root / "helper-answers.jsonl",
        authorities=[parties.authority.certificate],
        run=RUN,
    )


async def ask(
    parties: Parties,
    address: str,
    terms: MaskTerms,
    members: Sequence[MaskedMember],
    *,
    for_s: float = 60.0,
) -> bytes:
    """Ask once, with a coordinator that was just started."""
    async with calling(parties, address) as call:
        return bytes(await call.keystream_sum(terms, members, until=time.time() + for_s))


def asked(
    parties: Parties, terms: MaskTerms, members: Sequence[MaskedMember], **serving_with: object
) -> bytes:
    """Start the helper and ask it once."""

    async def run() -> bytes:
        async with serving(parties, **serving_with) as address:  # type: ignore[arg-type]
            return await ask(parties, address, terms, members)

    return asyncio.run(run())


def changed(terms: MaskTerms, **changes: object) -> MaskTerms:
    return replace(terms, **changes)  # type: ignore[arg-type]
