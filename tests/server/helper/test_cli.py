"""What the owner of a helper types, and whoever compares two lists."""

import json
import re
from pathlib import Path

import pytest

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem
from privacy.identities.helper_admission import (
    certify_helper,
    read_helper_request,
    write_helper_file,
)
from privacy.identities.party import Identity
from server.cli import main as coordinator
from server.config.federation import preset_text
from server.helper.cli import main
from server.operating.founding import found
from tests.server.helper.scene import RUN, SETTINGS, Parties, asked, terms_of

LIMITS = ["--least-contributors", "20", "--largest-rounds-a-day", "24"]


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("founded") / "federation"
    found(root, preset_text("keyboard-tiny"), [])
    return root


def test_a_helper_is_made_admitted_and_renewed(
    federation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, helper = federation / "authority/authority.crt", tmp_path / "helper"

    made = run("init", helper, "--authority", authority, "--hostname", "h.example", *LIMITS)
    owner_is_told = capsys.readouterr().out
    admitting = ["admit-helper", str(federation), str(helper / "request.json")]
    assert (made, coordinator(admitting)) == (0, 0)
    # What the two compare, so that nobody in between puts a request of their own there.
    told = re.findall(r"certified the request ([0-9a-f]{64}):", capsys.readouterr().out)
    assert told[0] in owner_is_told
    assert run("admit", helper, federation / "helper.json") == 0
    first = Identity.load(helper / "identity")
    assert run("renew", helper) == 0
    # Until the new keys are certified the old ones stay.
    assert Identity.load(helper / "identity").wrapping.certified == first.wrapping.certified
    assert coordinator(admitting) == 0
    assert run("admit", helper, federation / "helper.json") == 0
    capsys.readouterr()
    assert run("status", helper, "--json") == 0

    status = json.loads(capsys.readouterr().out)
    assert status["least_contributors"] == 20
    assert status["listen"] == "0.0.0.0:7450"
    assert (status["answers"], status["newest"], status["rounds_today"]) == (0, None, 0)
    assert not status["is_running"]
    renewed = Identity.load(helper / "identity")
    assert renewed.previous_wrapping is not None
    assert renewed.previous_wrapping.certified == first.wrapping.certified


def test_certificates_of_another_authority_are_refused_and_change_nothing(
    federation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = CertificateAuthority.create(tmp_path / "other", "cd" * 16)
    pem = tmp_path / "other.pem"
    pem.write_bytes(certificate_pem(other.certificate))
    helper = tmp_path / "helper"
    run("init", helper, "--authority", pem, "--hostname", "h.example", *LIMITS)

    request = helper / "request.json"
    refused = coordinator(["admit-helper", str(federation), str(request)])
    # And what this federation certified for a helper of its own.
    mine = tmp_path / "mine"
    authority = federation / "authority/authority.crt"
    run("init", mine, "--authority", authority, "--hostname", "h.example", *LIMITS)
    coordinator(["admit-helper", str(federation), str(mine / "request.json")])
    capsys.readouterr()

    assert refused == 1
    assert run("admit", helper, federation / "helper.json") == 1
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert other.fingerprint.hex() in told
    assert not Identity.exists(helper / "identity")


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (["--least-contributors", "1", "--largest-rounds-a-day", "24"], "least_contributors"),
        (["--least-contributors", "2", "--largest-rounds-a-day", "0"], "must be >= 1"),
        (["--largest-rounds-a-day", "24"], "--least-contributors"),
        (["--least-contributors", "2"], "--largest-rounds-a-day"),
    ],
)
def test_limits_that_protect_nobody_are_refused(
    federation: Path,
    tmp_path: Path,
    limits: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = federation / "authority/authority.crt"
    arguments = ["--authority", str(authority), "--hostname", "h.example", *limits]

    try:
        status = run("init", tmp_path / "helper", *arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)

    assert status != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "helper").exists()


def two_rounds(parties: Parties) -> Path:
    """Have two rounds answered and return the coordinator's list."""
    for round_number in (1, 2):
        terms = terms_of(round_number)
        asked(parties, terms, parties.members([0, 1], terms))
    return parties.root / "helper-answers.jsonl"


def test_anyone_compares_both_lists(
    parties: Parties, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = two_rounds(parties)
    run("ledger", parties.folder.root)
    printed = tmp_path / "printed.jsonl"
    printed.write_text(capsys.readouterr().out)
    authority = parties.folder.authority

    assert run("verify", parties.folder.root, kept) == 0
    assert run("verify", printed, kept, "--authority", authority) == 0
    told = capsys.readouterr().out
    assert "2 answers in common" in told
    # Both rounds at the first attempt; groups of one attempt would count once.
    assert "they hold sums of 2 attempts" in told

    # A printed list has no authority beside it.
    assert run("verify", printed, kept) == 1
    assert "--authority" in capsys.readouterr().err

    kept.write_bytes(kept.read_bytes().splitlines(keepends=True)[0])
    assert run("verify", printed, kept, "--authority", authority) == 1
    told = capsys.readouterr().out
    assert "the coordinator's list lacks the last 1" in told
    assert "was put back from an old backup" in told


def test_a_helper_that_was_put_back_takes_back_what_it_answered(
    parties: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = two_rounds(parties)
    for file in parties.folder.root.glob("answers.sqlite*"):
        file.unlink()

    assert run("verify", parties.folder.root, kept) == 1
    assert "`sotto-helper recover`" in capsys.readouterr().out
    assert run("recover", parties.folder.root, kept) == 0
    assert run("verify", parties.folder.root, kept) == 0
    third = terms_of(3)
    assert asked(parties, third, parties.members([0, 1], third))


def test_lists_that_contradict_each_other_are_told(
    parties: Parties, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = two_rounds(parties)
    first_list = kept.read_bytes()
    for file in (kept, *parties.folder.root.glob("answers.sqlite*")):
        file.unlink()
    two_rounds(parties)
    (tmp_path / "first.jsonl").write_bytes(first_list)

    assert run("verify", parties.folder.root, tmp_path / "first.jsonl") == 1
    assert "the helper signed two" in capsys.readouterr().err


def test_settings_that_cannot_be_used_are_told_with_the_file(
    parties: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    parties.folder.settings.write_bytes(SETTINGS.encode() + b"verbose = true\n")

    assert run("status", parties.folder.root) == 1

    told = capsys.readouterr().err
    assert "helper.toml" in told
    assert "verbose" in told


def test_a_damaged_memory_of_issuing_keys_is_told(
    parties: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    parties.folder.newest_issuer.write_text('{"began": 1}')

    assert run("run", parties.folder.root) == 1

    assert "newest_issuer.json cannot be read" in capsys.readouterr().err


def test_a_helper_that_was_not_admitted_does_not_run(
    federation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = federation / "authority/authority.crt"
    run("init", tmp_path / "h", "--authority", authority, "--hostname", "h.example", *LIMITS)

    assert run("run", tmp_path / "h") == 1

    assert "`sotto-helper admit`" in capsys.readouterr().err


def test_a_helper_follows_to_an_authority_that_its_owner_was_given(
    parties: Parties, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = CertificateAuthority.create(tmp_path / "new", RUN.hex())
    (tmp_path / "new.pem").write_bytes(certificate_pem(new.certificate))
    other = CertificateAuthority.create(tmp_path / "other", "cd" * 16)
    (tmp_path / "other.pem").write_bytes(certificate_pem(other.certificate))
    root = parties.folder.root
    terms = terms_of()
    asked(parties, terms, parties.members([0, 1], terms))

    assert run("renew", root, "--authority", tmp_path / "other.pem") == 1
    assert "another helper" in capsys.readouterr().err
    assert run("renew", root, "--authority", tmp_path / "new.pem") == 0
    # Nothing is answered in the name of either until the new one has admitted it.
    assert run("run", root) == 1
    assert "another authority" in capsys.readouterr().err
    request = read_helper_request(parties.folder.request)
    write_helper_file(tmp_path / "helper.json", certify_helper(new, request))
    assert run("admit", root, tmp_path / "helper.json") == 0

    # Its list goes on, and is compared by both.
    kept = parties.root / "helper-answers.jsonl"
    former = tmp_path / "former.pem"
    former.write_bytes(certificate_pem(parties.authority.certificate))
    both = ["--authority", str(tmp_path / "new.pem"), "--authority", str(former)]
    assert run("verify", root, kept, *both) == 0
    assert run("verify", root, kept) == 1
