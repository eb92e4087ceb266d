from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from edge_client.personalisation.state import (
    PersonalState,
    PersonalStateError,
    StateLayout,
    flat_state,
    read_state,
    state_of,
    write_state,
)
from models.vector.codec import CodecError
from models.vector.schema import Role, Schema, TensorSpec

BODY = TensorSpec(name="body", shape=(3,), layer="body")
WIDE_BODY = msgspec.structs.replace(BODY, shape=(1, 3))
RENAMED_BODY = msgspec.structs.replace(BODY, name="trunk")
HEAD = TensorSpec(name="head", shape=(2,), layer="head", role=Role.PERSONAL)
SCHEMA = Schema((BODY, HEAD))
EXTRA = TensorSpec(name="own.body", shape=(1, 3), layer="body")
LAYOUT = StateLayout.of(SCHEMA, [EXTRA])
FED_BACK = StateLayout.of(SCHEMA, [EXTRA], keeps_residual=True)
STATE = PersonalState(torch.tensor([1.0, 2.0]), {"own.body": torch.tensor([[3.0, 4.0, 5.0]])})


def test_a_state_is_personal_tensors_and_then_extras() -> None:
    assert flat_state(LAYOUT, STATE).tolist() == [1, 2, 3, 4, 5]
    assert state_of(LAYOUT, flat_state(LAYOUT, STATE)).extras["own.body"].shape == (1, 3)


def test_a_state_that_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"

    write_state(path, LAYOUT, STATE)
    state = read_state(path, LAYOUT)

    assert state is not None
    assert torch.equal(state.personal, STATE.personal)
    assert torch.equal(state.extras["own.body"], STATE.extras["own.body"])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_client_that_never_trained_has_none(tmp_path: Path) -> None:
    assert read_state(tmp_path / "none.bin", LAYOUT) is None


def test_what_compression_lost_is_kept_behind_the_rest_and_is_zero_at_first(
    tmp_path: Path,
) -> None:
    # Sent is the body alone: the head is personal.
    lost = replace(STATE, residual=torch.tensor([6.0, 7.0, 8.0]))

    write_state(tmp_path / "lost", FED_BACK, lost)
    write_state(tmp_path / "nothing", FED_BACK, STATE)
    found, nothing = (read_state(tmp_path / name, FED_BACK) for name in ("lost", "nothing"))

    assert flat_state(FED_BACK, lost).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found is not None
    assert found.residual is not None
    assert found.residual.tolist() == [6, 7, 8]
    assert nothing is not None
    assert nothing.residual is not None
    assert nothing.residual.tolist() == [0, 0, 0]
    assert not StateLayout.of(Schema(SCHEMA.tensors[:1]), [], keeps_residual=True).is_empty


@pytest.mark.parametrize(
    ("layout", "other"),
    [
        (LAYOUT, StateLayout.of(SCHEMA, [])),
        (LAYOUT, StateLayout.of(Schema((msgspec.structs.replace(HEAD, shape=(1, 2)),)), [EXTRA])),
        (LAYOUT, StateLayout.of(SCHEMA, [msgspec.structs.replace(EXTRA, name="other")])),
        # As many values, and only what was lost belongs to another model.
        (FED_BACK, StateLayout.of(Schema((WIDE_BODY, HEAD)), [EXTRA], keeps_residual=True)),
        (FED_BACK, StateLayout.of(Schema((RENAMED_BODY, HEAD)), [EXTRA], keeps_residual=True)),
    ],
    ids=["grown", "shape", "method", "lost-shape", "lost-name"],
)
def test_a_state_of_another_model_or_method_is_refused(
    tmp_path: Path, layout: StateLayout, other: StateLayout
) -> None:
    path = tmp_path / "state.bin"
    write_state(path, layout, STATE)

    with pytest.raises(PersonalStateError, match=r"does not fit .*remove it to start over"):
        read_state(path, other)


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    write_state(path, LAYOUT, STATE)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(PersonalStateError, match="contiguous bytes"):
        read_state(path, LAYOUT)


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    wrong = [
        (PersonalState(torch.zeros(3), STATE.extras), r"shape \(2,\)"),
        (PersonalState(STATE.personal, {}), r"extras must be \['own.body'\], got \[\]"),
        (PersonalState(STATE.personal, {"own.body": torch.zeros(3)}), r"shape \(1, 3\), got"),
    ]
    for state, message in wrong:
        with pytest.raises(ValueError, match=message):
            write_state(path, LAYOUT, state)
    with pytest.raises(CodecError, match="NaN or infinity in head"):
        write_state(path, LAYOUT, PersonalState(torch.tensor([1.0, torch.nan]), STATE.extras))
    assert not path.exists()
