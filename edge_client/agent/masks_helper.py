"""Look at the helper of a plan whose updates are masked, before anything is fetched."""

from collections.abc import Container

from edge_client.agent.acceptance import PlanRefusedError
from edge_client.owner.floor import PlanBelowFloorError, check_helper
from edge_client.owner.pinned_helper import read_helper
from models.plan.plan import Plan
from privacy.identities.certificates import CertificateError
from protos import federation_pb2 as wire


def accept_helper(
    lease: wire.Lease,
    plan: Plan,
    helpers: Container[str] | None,
    *,
    authority: bytes,
    now: float,
) -> None:
    """Accept the helper that the lease of a masked plan names, if the owner pinned it.

    Any other plan has none to look at. ``authority`` is its certificate, DER; ``now`` is in Unix
    seconds.

    Raises:
        PlanRefusedError: If the plan is masked and its lease names no helper, one that is not
            pinned, or one whose certificate cannot be used now.
    """
    if not plan.sends_masked:
        return
    try:
        if not lease.helper_certificate:
            check_helper(None, helpers)
        helper = read_helper(lease.helper_certificate, authority=authority, now=now)
        check_helper(helper.sha256.hex(), helpers)
    except PlanBelowFloorError as error:
        raise PlanRefusedError(error.code, str(error)) from None
    except CertificateError as error:
        raise PlanRefusedError("helper_certificate", str(error)) from None
