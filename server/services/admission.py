"""Decide whether a device that checks in can take part at all."""

import time

from models.settings.plugin import PluginModel
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from protos.version import PLAN_VERSION, version_mismatch
from server.config.federation import FederationConfig
from server.devices.refused_calls import RefusedError

LARGEST_CLOCK_ERROR_S = 24 * 3600


def check_protocol(version: int) -> None:
    """Refuse a device that speaks another version of the contract.

    Raises:
        RefusedError: Says which side is older.
    """
    mismatch = version_mismatch(version, us="the coordinator", them="this device")
    if mismatch is not None:
        raise RefusedError(RefusalCode.VERSION_MISMATCH, mismatch)


def check_device(
    request: pb.CheckInRequest, config: FederationConfig, *, now: float | None = None
) -> None:
    """Refuse a device whose software or clock (``now`` is Unix seconds) would fail in mid-round.

    Raises:
        RefusedError: If a version, the clock or the model family does not fit.
    """
    check_protocol(request.protocol_version)
    if request.plan_version != PLAN_VERSION:
        older = "the coordinator" if request.plan_version > PLAN_VERSION else "this device"
        raise RefusedError(
            RefusalCode.VERSION_MISMATCH,
            f"plan version must be {PLAN_VERSION}, got {request.plan_version}; "
            f"{older} is older: update it",
        )
    _check_clock(request.device_time_ms / 1000, time.time() if now is None else now)
    _check_family(list(request.model_families), config)


def _check_clock(theirs: float, ours: float) -> None:
    ahead_s = theirs - ours
    if abs(ahead_s) > LARGEST_CLOCK_ERROR_S:
        direction = "ahead of" if ahead_s > 0 else "behind"
        raise RefusedError(
            RefusalCode.CLOCK_WRONG,
            f"the device's clock is {abs(ahead_s) / 3600:.0f} hours {direction} the "
            "coordinator's; set it, or certificates and deadlines cannot be checked",
        )


def _check_family(allowed: list[str], config: FederationConfig) -> None:
    family = config.model.family_name
    # Floors name plugins, not their families: such a device refuses the plan, and says the remedy.
    of_plugin = isinstance(config.model, PluginModel)
    if allowed and not of_plugin and family not in allowed:
        raise RefusedError(
            RefusalCode.MODEL_FAMILY,
            f"the federation trains {family}, and this device's floor allows only "
            f"{', '.join(allowed)}",
        )
