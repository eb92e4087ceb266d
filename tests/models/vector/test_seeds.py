import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.vector.seeds import client_seed


def test_the_seed_is_the_digest_of_run_round_and_name() -> None:
    digest = hashlib.sha256(b"7/3/11/device-0001/data").digest()

    # The name has eleven characters with the zero-filled number.
    assert client_seed(7, 3, "device-0001") == int.from_bytes(digest[:8], "little") >> 1


@given(
    run=st.integers(0, 2**63),
    round_number=st.integers(1, 10**6),
    name=st.text(min_size=1),
    other=st.text(min_size=1),
)
def test_clients_rounds_and_purposes_draw_apart(
    run: int, round_number: int, name: str, other: str
) -> None:
    seed = client_seed(run, round_number, name)

    assert 0 <= seed < 2**63
    assert seed != client_seed(run, round_number + 1, name)
    assert seed != client_seed(run, round_number, name, purpose="dropout")
    assert (seed == client_seed(run, round_number, other)) == (name == other)


@pytest.mark.parametrize(("round_number", "name"), [(0, "a"), (1, "")])
def test_a_round_below_one_or_no_name_is_refused(round_number: int, name: str) -> None:
    with pytest.raises(ValueError, match="must"):
        client_seed(1, round_number, name)
