"""Decide whether a device runs what a lease asks for.

The coordinator may be newer, older, misconfigured or captured. Nothing is fetched before its plan
has been understood, agrees with this device's own idea of the model, and lies above the floor.
"""

import msgspec

from edge_client.agent.version_gap import older_side
from edge_client.owner.floor import Floor, PlanBelowFloorError, check_plan, check_plugins_named
from edge_client.owner.traffic import Traffic
from models.plan.onlookers import check_hiding
from models.plan.plan import Plan, PlanError, decode_plan, hypernetwork_of, plan_schema
from models.plan.plugins import plugins_in
from models.plugins.names import PluginError, PluginName
from models.settings.hypernetwork import hypernetwork_schema
from models.vector.schema import RELEASED, SENT, Role, Schema
from privacy.foundation.removed_settings import check_removed
from privacy.foundation.strict_json import decode_json
from protos import federation_pb2 as wire

# Header, signature, slip and codec header of a sealed model take less than this; the tag of each
# 1 MiB chunk adds 16 bytes.
_SEALING_BYTES = 64 << 10


class PlanRefusedError(Exception):
    """Raised when this device will not run a plan; the coordinator receives the stable ``code``."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def accept_plan(lease: wire.Lease, floor: Floor, traffic: Traffic) -> Plan:
    """Return the lease's plan if this device runs it.

    Raises:
        PlanRefusedError: If the plan is unreadable, asks for a removed setting, describes another
            model than this device would build, lies below the floor, asks what none asks that
            hides the text from the coordinator, or exceeds today's remaining bytes.
    """
    try:
        check_plugins_named(_named_plugins(lease.plan), floor)
        plan = decode_plan(lease.plan)
        check_removed(decode_json(lease.plan, object))
    except PlanBelowFloorError as error:
        raise PlanRefusedError(error.code, str(error)) from None
    except (PlanError, msgspec.ValidationError) as error:
        raise PlanRefusedError("plan_unreadable", str(error)) from None
    schema = plan_schema(plan)
    if schema.sha256.hex() != plan.schema_sha256:
        raise PlanRefusedError(
            "schema_mismatch",
            "the coordinator builds this model with other tensors than this device; "
            + _remedy(plan, lease.software_version),
        )
    _check_sizes(lease, plan, schema)
    try:
        check_plan(plan, floor)
    except PlanBelowFloorError as error:
        raise PlanRefusedError(error.code, str(error)) from None
    try:
        check_hiding(plan)
    except PlanError as error:
        raise PlanRefusedError("plan_unusable", str(error)) from None
    _check_traffic(lease, floor, traffic)
    return plan


def _named_plugins(plan: bytes) -> tuple[PluginName, ...]:
    """Return the plugins of a plan before anything is decoded that one of them has a part in."""
    try:
        return plugins_in(plan)
    except (PluginError, msgspec.DecodeError):
        return ()  # ``decode_plan`` says what is wrong with it.


def _remedy(plan: Plan, software_version: str) -> str:
    if plan.named_plugins:
        return (
            f"two builds of {', '.join(plan.named_plugins)} differ under one version: install the "
            "one that the coordinator has"
        )
    return older_side(software_version)


def _check_sizes(lease: wire.Lease, plan: Plan, schema: Schema) -> None:
    generated, hypernetwork = schema.with_roles(Role.GENERATED), Schema(())
    if plan.kind == "fit_embedding":
        # The device generates its tensors itself.
        generated, hypernetwork = Schema(()), hypernetwork_schema(hypernetwork_of(plan), generated)
    for size, part, what in (
        (lease.generated_bytes, generated, "generated for this device"),
        (lease.hypernetwork_bytes, hypernetwork, "of the hypernetwork"),
    ):
        if bool(size) != bool(part.tensors):
            raise PlanRefusedError(
                "wrong_size",
                f"the plan has {len(part.tensors)} tensors {what}, and the lease {size} bytes",
            )
    released = schema.with_roles(*RELEASED)
    for size, part in (
        (lease.download_bytes, released),
        *((moved.download_bytes, released) for moved in lease.moved),
        (lease.generated_bytes, generated),
        (lease.hypernetwork_bytes, hypernetwork),
        (lease.upload_bytes, schema.with_roles(*SENT)),
    ):
        largest = part.payload_bytes + part.payload_bytes // 1000 + _SEALING_BYTES
        if size > largest:
            raise PlanRefusedError("wrong_size", f"a sealed part must be at most {largest} bytes")


def _check_traffic(lease: wire.Lease, floor: Floor, traffic: Traffic) -> None:
    down = lease.download_bytes + lease.generated_bytes + lease.hypernetwork_bytes
    needed = down + lease.upload_bytes
    left = None if floor.bytes_a_day is None else floor.bytes_a_day - traffic.today.bytes_moved
    if left is not None and needed > left:
        raise PlanRefusedError(
            "bytes_a_day", f"a round moves {needed} bytes and {max(left, 0)} are left today"
        )
