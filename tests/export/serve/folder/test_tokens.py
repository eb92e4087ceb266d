import stat
from pathlib import Path

import pytest

from export.serve.cli import main
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.tokens import clients_with_tokens, make_tokens, read_tokens, revoke_tokens
from tests.export.serve.conftest import new_client
from tests.export.serve.running_server import RunningServer
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> ServingFolder:
    assert main(["init", str(tmp_path / "folder"), "--accept-unsigned"]) == 0
    return ServingFolder(tmp_path / "folder")


def test_a_token_is_known_by_its_hash_alone(folder: ServingFolder) -> None:
    made = make_tokens(folder, ["ann", "bob"])

    known = read_tokens(folder)
    assert {known.client_of(token) for token in made.values()} == {"ann", "bob"}
    assert known.client_of(made["ann"][:-1]) is None
    stored = folder.tokens.read_text()
    assert not any(token in stored for token in made.values())
    assert stat.S_IMODE(folder.tokens.stat().st_mode) == 0o600


def test_a_new_token_ends_the_old_one(folder: ServingFolder) -> None:
    old = make_tokens(folder, ["ann"])["ann"]
    new = make_tokens(folder, ["ann"])["ann"]

    known = read_tokens(folder)
    assert known.client_of(old) is None
    assert known.client_of(new) == "ann"
    assert clients_with_tokens(folder) == ["ann"]


def test_revoking_is_all_or_nothing(folder: ServingFolder) -> None:
    token = make_tokens(folder, ["ann"])["ann"]

    with pytest.raises(ServingError, match="client 'bob' has no token to revoke"):
        revoke_tokens(folder, ["ann", "bob"])
    assert read_tokens(folder).client_of(token) == "ann"
    revoke_tokens(folder, ["ann"])
    assert read_tokens(folder).client_of(token) is None


@pytest.mark.parametrize("name", ["", " ", "a b", "../ann", "-ann", "a" * 65, "änn", "a\n"])
def test_a_name_that_is_none_is_refused(folder: ServingFolder, name: str) -> None:
    with pytest.raises(ServingError, match="a client's name must be 1 to 64 of"):
        make_tokens(folder, ["ann", name])
    assert clients_with_tokens(folder) == []


@pytest.mark.slow
def test_a_server_takes_over_new_and_revoked_tokens_while_it_runs(server: RunningServer) -> None:
    token = new_client(server, "leaving")

    assert main(["revoke", str(server.folder.root), "leaving"]) == 0
    until(lambda: server.next(token, "").status == 401)

    again = new_client(server, "leaving")
    assert again != token
    assert server.next(token, "").status == 401


def test_a_spoilt_file_of_tokens_leaves_those_that_were_known(
    server: RunningServer, ann: str
) -> None:
    kept = server.folder.tokens.read_bytes()

    server.folder.tokens.write_bytes(b"{")
    until(lambda: "tokens are not taken over" in server.log.read_text())

    assert server.next(ann, "").status == 200
    server.folder.tokens.write_bytes(kept)
