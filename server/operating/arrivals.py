"""Put together what takes in a federation's updates and closes its rounds, by its noise mode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from models.compression.update_format import update_formats
from models.plan.plan import Plan
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from privacy.identities.succession import read_former
from privacy.noise.secure_gaussian import NoiseKeys
from server.aggregation.closing_workers import buffers_wanted, closing_worker_count
from server.config.federation import FederationConfig
from server.devices.known_helper import known_helper
from server.records.folder import ServerFolder
from server.records.helper_answers import HelperAnswers
from server.releases.method_state import MethodState
from server.releases.storage import Storage
from server.uplink.closing_rounds import MaskedRounds, OpenedRounds, RoundCloser
from server.uplink.helper_call import HelperCall
from server.uplink.intake_settings import intake_settings
from server.uplink.masked_sum import MaskedSum
from server.uplink.masked_updates import MaskedOpener, Masks
from server.uplink.sealed_payloads import PayloadOpener
from server.uplink.sealed_updates import UpdateOpener
from server.uplink.slot_order_sum import RoundSum
from server.uplink.update_buffers import buffer_count_for


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """The parts through which updates arrive and become a model.

    Attributes:
        take_stage: Prepares the opener for the plan of another stage of growth, between rounds.
        helper_certificate: The helper's wrapping certificate, DER; empty without masks.
    """

    opener: PayloadOpener[Any]  # Each mode opens something else.
    closer: RoundCloser
    take_stage: Callable[[Plan], None]
    helper_certificate: bytes = b""


def opened_arrivals(
    config: FederationConfig,
    plan: Plan,
    identity: Identity,
    storage: Storage,
    *,
    method: MethodState,
    noise_keys: NoiseKeys,
) -> Arrivals:
    """Return the parts of a mode in which the coordinator opens updates; ``plan`` is any of its."""
    arrives_as = update_formats(plan)
    opener = UpdateOpener(
        arrives_as,
        identity,
        measure=intake_settings(config, plan.growth_stage).measure,
        buffer_count=_buffer_count(config, arrives_as.payload_bytes),
    )

    def take_stage(staged: Plan) -> None:
        arrives_as = update_formats(staged)
        opener.take_format(
            arrives_as,
            measure=intake_settings(config, staged.growth_stage).measure,
            buffer_count=_buffer_count(config, arrives_as.payload_bytes),
        )

    round_sum = RoundSum(
        config,
        storage.store,
        storage.inbox,
        opener,
        noise_keys=noise_keys,
        method=method,
        releases=storage.releases,
    )
    return Arrivals(opener=opener, closer=OpenedRounds(round_sum, storage), take_stage=take_stage)


def masked_arrivals(
    folder: ServerFolder,
    config: FederationConfig,
    plan: Plan,
    identity: Identity,
    storage: Storage,
    *,
    issuer: CertificateAuthority,
) -> Arrivals:
    """Return the parts of mode ``masked``; ``plan`` is any of its, ``issuer`` certifies calls.

    Raises:
        HelperMissingError: If the federation names no helper.
        CertificateError: If the helper's certificates cannot be used now.
        AnswerError: If the list of its answers was changed.
    """
    helper = known_helper(folder, config)
    if helper is None or config.helper is None:
        raise ValueError('only a federation of privacy.mode = "masked" has masked updates')
    opener = MaskedOpener(Masks(plan), identity)
    former = read_former(folder.authority).root_certificates
    kept = HelperAnswers(
        folder.helper_answers,
        authorities=(issuer.certificate, *former),
        run=bytes.fromhex(plan.run),
        tenure=storage.store.tenure,
    )
    call = HelperCall(config.helper.address, issuer, kept, storage.threads)
    masked_sum = MaskedSum(config, storage.store, storage.inbox, opener, releases=storage.releases)
    return Arrivals(
        opener=opener,
        closer=MaskedRounds(masked_sum, call, storage, address=config.helper.address, key=helper),
        # Every round begins with its own plan.
        take_stage=lambda _: None,
        helper_certificate=helper.der,
    )


def _buffer_count(config: FederationConfig, payload_bytes: int) -> int:
    closing = buffers_wanted(closing_worker_count())
    return buffer_count_for(payload_bytes, config.rounds.cohort_size, closing=closing)
