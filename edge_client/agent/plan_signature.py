"""Check, before anything else, that the coordinator signed the plan of a lease.

A holder of the coordinator's TLS key alone, or of its proxy, can then ask for nothing.
"""

from edge_client.agent.acceptance import PlanRefusedError
from edge_client.folder.layout import DeviceFolder
from models.plan.signed_plan import SignedPlan, SignedPlanError
from privacy.identities.certificates import CertificateError
from protos import federation_pb2 as wire


def check_signed(lease: wire.Lease, folder: DeviceFolder, *, now: float) -> SignedPlan:
    """Return the lease's plan with its proof; the folder's coordinator keys are the lease's.

    ``now`` is in Unix seconds.

    Raises:
        PlanRefusedError: If the plan is not signed by the coordinator of this device's run.
        DeviceFolderError: If the folder is not an enrolled device's.
    """
    enrolment = folder.enrolment()
    told = SignedPlan(
        run=enrolment.run,
        round_number=lease.round_number,
        attempt=lease.attempt,
        plan=lease.plan,
        signature=lease.plan_signature,
        certificate=folder.coordinator().signing,
    )
    try:
        told.check(enrolment.ca_certificate).check_time(now)
    except SignedPlanError:
        raise PlanRefusedError(
            "plan_not_signed", "the plan is not signed by this federation's coordinator"
        ) from None
    except CertificateError:
        raise PlanRefusedError(
            "certificate_unusable", "the coordinator's signing certificate is not valid now"
        ) from None
    return told
