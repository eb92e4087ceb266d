import pytest
import torch

from models.vector.tensor_file import decode_tensors
from server.releases.method_state import MethodStateError, method_state_of
from tests.server.fedtp import CONFIG, taught
from tests.server.sealing import configure

ONE, TWO, NEW = "device-0001", "device-0002", "device-0003"


def test_what_was_learnt_is_taken_up_to_the_bit() -> None:
    before, after = taught(ONE, TWO), method_state_of(CONFIG)

    after.restore(before.encoded())

    for client in (ONE, TWO, NEW):
        assert torch.equal(after.parameters_for(client), before.parameters_for(client))
    assert after.encoded() == before.encoded()
    assert after.encoded() != method_state_of(CONFIG).encoded()


def test_a_close_that_came_to_nothing_is_unlearnt() -> None:
    state = taught(ONE)
    before, snapshot = state.encoded(), state.snapshot()
    state.restore(taught(ONE, TWO).encoded())
    assert state.encoded() != before

    state.roll_back(snapshot)

    assert state.encoded() == before


def test_a_forgotten_client_has_no_row_and_the_others_keep_theirs() -> None:
    state = taught(ONE, TWO)
    two = state.parameters_for(TWO)

    state.forget(ONE)

    encoded = state.encoded()
    assert encoded is not None
    names = [name for name in decode_tensors(encoded)[0] if name.startswith("client/")]
    assert names == [f"client/{TWO}"]
    assert torch.equal(state.parameters_for(TWO), two)


def test_a_method_that_learns_nothing_has_no_file() -> None:
    state = method_state_of(configure())

    assert state.encoded() is None
    state.restore(None)
    with pytest.raises(MethodStateError, match="keeps no state"):
        state.restore(taught(ONE).encoded())


def test_a_state_that_is_missing_or_changed_is_refused_with_a_remedy() -> None:
    state = method_state_of(CONFIG)
    damaged = taught(ONE).encoded()
    assert damaged is not None
    del damaged[-1]

    for file in (None, bytes(damaged), b"no tensors"):
        with pytest.raises(MethodStateError, match="restore a backup, or the settings"):
            state.restore(file)


def test_a_fitted_embedding_becomes_a_row_once() -> None:
    state = taught(ONE)
    embedding = torch.tensor([0.5, -1.0, 2.0])
    drawn = state.parameters_for(NEW)
    assert state.knows(ONE)
    assert not state.knows(NEW)

    state.adopt(NEW, embedding)

    assert state.knows(NEW)
    assert not torch.equal(state.parameters_for(NEW), drawn)
    encoded = state.encoded()
    assert encoded is not None
    # Its momentum starts at nothing.
    row = decode_tensors(encoded)[0][f"client/{NEW}"]
    assert row.tolist() == [[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match="must have no embedding yet"):
        state.adopt(NEW, embedding)
    with pytest.raises(ValueError, match=r"must be float32 of shape \(3,\)"):
        state.adopt(TWO, torch.zeros(4))
