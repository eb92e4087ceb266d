"""A command ends quietly when nobody reads on, and says in one line what else went wrong."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from privacy.foundation.command_exit import failed

PROGRAM = """
import argparse, sys
from privacy.foundation.command_exit import command, failed

def helps():
    argparse.ArgumentParser().parse_args(["--help"])

def prints_little():
    print("a line")

def prints_much():
    print("a line\\n" * 100_000)

@command("program")
def main(argv):
    try:
        globals()[argv[0]]()
    except OSError as error:
        return failed("program", error)
    return 0

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("what", ["helps", "prints_little", "prints_much"])
def test_a_command_is_silent_when_its_reader_has_gone(what: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, what],
            stdout=writer,
            stderr=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
            check=False,
            timeout=60,
        )
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


PROGRAMS = (
    "sotto-privacy",
    "sotto-server",
    "sotto-client",
    "sotto-simulate",
    "sotto-export",
    "sotto-serve",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_says_what_a_command_does_in_plain_text(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (entry,) = entry_points(group="console_scripts", name=program)

    with pytest.raises(SystemExit):
        entry.load()(["--help"])

    # A module's docstring is marked up, and speaks to whoever changes it.
    told = capsys.readouterr().out
    assert "``" not in told
    assert program not in told.removeprefix(f"usage: {program}").split("positional arguments")[0]


@pytest.mark.parametrize(
    ("program", "arguments", "told"),
    [
        (
            "sotto-server",
            ["token", "federation", "--count", "many"],
            "argument --count: must be a whole number from 1 on, got 'many'",
        ),
        (
            "sotto-export",
            ["suggest", "keyboard", "see you", "--top", "0"],
            "argument --top: must be >= 1, got 0",
        ),
        (
            "sotto-simulate",
            ["sweep", "keyboard-tiny", "--seeds", "1,a"],
            "argument --seeds: must be whole numbers with commas between them, such as 1,2,3; "
            "got '1,a'",
        ),
        (
            "sotto-simulate",
            ["tune", "keyboard-tiny", "--public", "--target-epsilon", "8", "--seeds", "1,,2"],
            "argument --seeds: must be whole numbers with commas between them, such as 1,2,3; "
            "got '1,,2'",
        ),
        (
            "sotto-simulate",
            ["tune", "keyboard-tiny", "--public", "--target-epsilon", "8", "--trials", "few"],
            "argument --trials: must be a whole number from 1 on, got 'few'",
        ),
    ],
)
def test_what_is_no_whole_number_is_wrong_usage_and_told_the_rule(
    program: str, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (entry,) = entry_points(group="console_scripts", name=program)

    with pytest.raises(SystemExit) as ended:
        entry.load()(arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {told}\n")


@pytest.mark.parametrize("program", PROGRAMS)
def test_output_that_a_full_disk_does_not_take_is_told_in_one_line(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = entry_points(group="console_scripts", name=program)
    main = entry.load()

    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        status = main(["--help"])
        monkeypatch.undo()
        # What was not written is tried again when the file is closed.
        with pytest.raises(OSError, match="No space"):
            full.close()

    assert status == 1
    assert capsys.readouterr().err == f"{program}: [Errno 28] No space left on device\n"


def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (tmp_path / "plan.toml").read_text()

    assert failed("sotto-privacy", raised.value) == 1

    told = f"sotto-privacy: {tmp_path}/plan.toml: No such file or directory\n"
    assert capsys.readouterr().err == told


def test_another_pipe_that_breaks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed("sotto-simulate", BrokenPipeError(32, "Broken pipe")) == 1

    assert capsys.readouterr().err == "sotto-simulate: [Errno 32] Broken pipe\n"
