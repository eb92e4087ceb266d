"""What a device must be before it gets work."""

import pytest

from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from protos.version import PLAN_VERSION, PROTOCOL_VERSION
from server.config.federation import parse_config, preset_text
from server.devices.refused_calls import RefusedError
from server.services.admission import check_device, check_protocol

CONFIG = parse_config(preset_text("keyboard-tiny"), "keyboard-tiny")
NOW = 1_800_000_000.0
DAY_S = 86_400


def request(
    *, plan: int = PLAN_VERSION, clock: float = NOW, families: tuple[str, ...] = ()
) -> pb.CheckInRequest:
    return pb.CheckInRequest(
        protocol_version=PROTOCOL_VERSION,
        plan_version=plan,
        device_time_ms=round(clock * 1000),
        model_families=families,
    )


@pytest.mark.parametrize("error_s", [0, DAY_S - 1, 1 - DAY_S])
@pytest.mark.parametrize("families", [(), ("gru_lm",), ("transformer_lm", "gru_lm")])
def test_a_fitting_device_is_let_in(error_s: int, families: tuple[str, ...]) -> None:

    check_device(request(clock=NOW + error_s, families=families), CONFIG, now=NOW)


@pytest.mark.parametrize(
    ("unfit", "code", "text"),
    [
        (request(plan=PLAN_VERSION + 1), "version_mismatch", "the coordinator is older"),
        (request(plan=PLAN_VERSION - 1), "version_mismatch", "this device is older"),
        (request(clock=NOW + DAY_S + 1), "clock_wrong", "24 hours ahead of"),
        (request(clock=NOW - 3 * DAY_S), "clock_wrong", "72 hours behind"),
        (request(clock=0), "clock_wrong", "behind"),
        (request(families=("transformer_lm",)), "model_family", "trains gru_lm"),
    ],
)
def test_an_unfit_device_is_told_why(unfit: pb.CheckInRequest, code: str, text: str) -> None:
    with pytest.raises(RefusedError, match=text) as caught:
        check_device(unfit, CONFIG, now=NOW)

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("version", "older"), [(PROTOCOL_VERSION - 1, "this device"), (99, "the coordinator")]
)
def test_the_older_side_is_named(version: int, older: str) -> None:
    with pytest.raises(RefusedError, match=f"got {version}; {older} is older") as caught:
        check_protocol(version)

    assert caught.value.code is RefusalCode.VERSION_MISMATCH
