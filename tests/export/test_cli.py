"""The command as its users meet it: what it prints, where, and with which exit status."""

import io
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from export.cli import main
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector
from tests.export.conftest import Federation, write_release
from tests.export.people_scene import release_with_people

ROOT = Path(__file__).parents[2]
Json = dict[str, object]


@pytest.fixture
def server_folder(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector, federation: Federation
) -> Path:
    """A coordinator's folder with its first release."""
    folder = tmp_path / "server"
    shutil.copytree(federation.folder, folder)
    release = folder / "releases" / "000003"
    write_release(release, vocabulary, parameters, signer=federation.coordinator)
    (folder / "releases" / "latest").symlink_to("000003")
    return folder


def report_of(capsys: pytest.CaptureFixture[str]) -> Json:
    return msgspec.json.decode(capsys.readouterr().out, type=Json)


def test_export_verify_suggest(
    server_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = str(tmp_path / "keyboard.zip")
    authority = str(server_folder / "authority" / "authority.crt")

    assert main(["keyboard", str(server_folder), "--out", bundle, "--json"]) == 0
    exported = report_of(capsys)
    assert main(["verify", bundle, "--authority", authority, "--json"]) == 0
    verified = report_of(capsys)
    assert main(["suggest", bundle, "we s", "--json"]) == 0
    suggested = report_of(capsys)

    assert exported["round"] == 3
    assert exported["privacy_spent"] == "none promised"
    assert exported["promise_for_the_whole_run"] == "no privacy guarantee"
    assert str(exported["release_signed_by"]).startswith("coordinator (")
    assert str(exported["parity"]).startswith("equals torch to")
    assert verified["weights"] == "the release's, bit for bit"
    assert "of the given authority" in str(verified["bundle_signed_by"])
    shown = msgspec.convert(suggested["suggestions"], list[Json])
    assert len(shown) == 3
    assert {word["word"] for word in shown} < {"sea", "see", "seen", "seeing"}


def test_a_persons_file_is_made_inspected_and_asked(
    tmp_path: Path,
    vocabulary: Vocabulary,
    federation: Federation,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = tmp_path / "server"
    shutil.copytree(federation.folder, server)
    release_with_people(server, vocabulary, signer=federation.coordinator)
    shared, ada, whole = (str(tmp_path / name) for name in ("shared.zip", "ada.zip", "whole.zip"))
    authority = ["--authority", str(server / "authority" / "authority.crt")]
    personal = ["personal", str(server), "--client", "ada", "--json", "--out"]

    assert main(["keyboard", str(server), "--out", shared]) == 0
    capsys.readouterr()
    assert main([*personal, ada, "--at-rest", "int8"]) == 0
    made = report_of(capsys)
    assert main([*personal, whole, "--whole"]) == 0
    baked = report_of(capsys)
    assert main(["verify", ada, "--json", *authority]) == 0
    verified = report_of(capsys)
    assert main(["inspect", shared, "--json", *authority]) == 0
    inspected = report_of(capsys)
    assert main(["suggest", shared, "we s", "--person", ada, "--json", *authority]) == 0
    suggested = report_of(capsys)
    assert main(["suggest", shared, "we s"]) == 1
    refused = capsys.readouterr().err

    assert (made["client"], made["origin"], made["at_rest"]) == ("ada", "generated", "int8")
    assert baked["client"] == "ada"
    assert (verified["digests"], verified["round"]) == ("fit", 1)
    assert "of the given authority" in str(verified["signed_by"])
    assert inspected["personal_tensors"] == [
        f"blocks.{block}.attention.to_qkv.weight" for block in (0, 1)
    ]
    assert len(msgspec.convert(suggested["suggestions"], list[Json])) == 3
    assert "give a person's tensors" in refused


def test_a_bundle_is_rounded_and_signed_by_the_coordinator(
    server_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, small = str(tmp_path / "exact.zip"), str(tmp_path / "small.zip")
    authority = ["--authority", str(server_folder / "authority" / "authority.crt")]
    sign = ["--sign-as", str(server_folder)]

    assert main(["keyboard", str(server_folder), "--out", exact]) == 0
    capsys.readouterr()
    assert main(["quantise", exact, "--out", small, "--json", *sign, *authority]) == 0
    made = report_of(capsys)
    assert main(["inspect", small, "--json", *authority]) == 0
    found = report_of(capsys)

    assert made["precision"] == found["precision"] == "int8"
    assert str(made["rounding"]).startswith("moves a log-probability by up to")


def test_a_coordinator_signs_no_rounding_of_what_it_did_not_sign(
    server_folder: Path,
    release_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed, unsigned = str(tmp_path / "signed.zip"), str(tmp_path / "unsigned.zip")
    small, sign = str(tmp_path / "small.zip"), ["--sign-as", str(server_folder)]
    assert main(["keyboard", str(server_folder), "--out", signed]) == 0
    assert main(["keyboard", str(release_folder), "--out", unsigned, "--language", "en"]) == 0
    capsys.readouterr()

    assert main(["quantise", unsigned, "--out", small, *sign]) == 1
    assert "nobody signed it" in capsys.readouterr().err
    assert not Path(small).exists()
    assert main(["quantise", signed, "--out", small, *sign]) == 0


def test_an_unsigned_release_makes_an_unsigned_bundle_and_says_so(
    release_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = str(tmp_path / "keyboard")

    assert main(["keyboard", str(release_folder), "--out", bundle, "--language", "en"]) == 0
    exported = capsys.readouterr().out
    assert main(["verify", bundle]) == 0
    verified = capsys.readouterr().out

    assert "release_signed_by: nobody\n" in exported
    assert "languages: en\n" in exported
    assert "metrics: perplexity 12.5\n" in exported
    assert "bundle_signed_by: nobody\n" in verified


def test_suggestions_are_one_a_line_with_their_probability(
    bundle_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suggest", str(bundle_folder), "you ", "--top", "2"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    probabilities = [float(line.split("\t")[1]) for line in lines]
    assert 1 >= probabilities[0] >= probabilities[1] > 0


def test_a_text_that_ends_in_writing_without_blanks_is_refused_in_a_line(
    bundle_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suggest", str(bundle_folder), "see 明天"]) != 0

    told = capsys.readouterr().err
    assert "blanks between words, got '明天'" in told
    assert told.count("\n") == 1


def test_blocked_words_are_suggested_only_to_those_who_allow_them(
    bundle_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["suggest", str(bundle_folder), "you ", "--top", "1"]

    def suggested(*more: str) -> str:
        assert main([*asked, *more]) == 0
        return capsys.readouterr().out.partition("\t")[0]

    best = suggested()
    monkeypatch.setattr(
        "export.commands.open_bundles.blocked_words",
        lambda tags: frozenset({best} if tuple(tags) == ("en",) else ()),
    )

    assert suggested() != best
    assert suggested("--offensive") == best


def test_a_text_can_come_by_standard_input(
    bundle_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("I don'"))

    assert main(["suggest", str(bundle_folder), "-"]) == 0

    assert capsys.readouterr().out.startswith("don't\t")


def test_suggesting_loads_no_torch_and_no_onnx(bundle_folder: Path) -> None:
    script = (
        "import sys; from export.cli import main; "
        f"status = main(['suggest', {str(bundle_folder)!r}, 'we ']); "
        "print(sorted({'torch', 'onnx', 'grpc'} & set(sys.modules)), status)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[] 0"


def test_failures_are_one_line_and_leave_nothing(
    release_folder: Path, server_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "bundle")
    damaged = server_folder / "releases" / "000003" / "parameters.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1])

    for arguments, rule in [
        (["keyboard", str(tmp_path / "absent"), "--out", out], "must be the folder of"),
        (["keyboard", str(server_folder), "--out", out], "payload must be 1588 contiguous bytes"),
        (["keyboard", str(server_folder), "--out", out, "--round", "9"], "must have release 9"),
        (["keyboard", str(release_folder), "--out", str(tmp_path)], "exists; remove it"),
        (["keyboard", str(release_folder), "--out", f"{out}/deep"], "must be a folder; make it"),
        (["verify", str(tmp_path / "absent")], "must be a bundle folder or .zip"),
        (["verify", str(release_folder)], "a bundle holds only"),
        (["suggest", str(tmp_path / "absent"), "secret text"], "must be a bundle folder or .zip"),
        (["verify", out, "--authority", str(tmp_path / "absent")], "cannot be read: No such file"),
    ]:
        assert main(arguments) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("sotto-export: ")
        assert printed.err.count("\n") == 1
        assert rule in printed.err
        assert "secret" not in printed.err
    assert not Path(out).exists()


def test_a_server_folder_trusts_its_own_authority_only(
    server_folder: Path,
    vocabulary: Vocabulary,
    parameters: FlatVector,
    other_federation: Federation,
    capsys: pytest.CaptureFixture[str],
) -> None:
    release = server_folder / "releases" / "000003"
    write_release(release, vocabulary, parameters, signer=other_federation.coordinator)

    assert (
        main(["keyboard", str(server_folder), "--out", str(server_folder.parent / "bundle")]) == 1
    )

    assert "not issued by this federation's authority" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["keyboard"],
        ["keyboard", "somewhere"],
        ["suggest", "bundle"],
        ["suggest", "bundle", "text", "--top", "0"],
        ["suggest", "bundle", "text", "--top", "many"],
        ["verify"],
        ["mystery"],
    ],
)
def test_wrong_usage_exits_with_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == 2
    assert "usage: sotto-export" in capsys.readouterr().err


def test_a_missing_package_is_named(
    bundle_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    assert main(["suggest", str(bundle_folder), "we "]) == 1

    assert "onnxruntime is missing; install sotto[export]" in capsys.readouterr().err


def test_help_states_units(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["suggest", "--help"])

    assert stopped.value.code == 0
    assert "most suggestions, in words" in capsys.readouterr().out
