import json
from pathlib import Path

import numpy as np
import pytest

from privacy.auditing.judgement import judge, verdict
from privacy.auditing.scores import AuditError
from privacy.auditing.scores_file import read_scores
from privacy.cli import main


def scores_file(path: Path, *, noise_multiplier: float, twice: int | None = None) -> Path:
    """Write 300 rounds of four canaries, one of which may count twice."""
    generator = np.random.default_rng(11)
    lines = ["canary,score,included"]
    for _ in range(300):
        for canary in range(4):
            coin = int(generator.integers(2))
            moved = coin * (2 if canary == twice else 1)
            score = moved + noise_multiplier * generator.standard_normal()
            lines.append(f"canary-{canary},{score!r},{coin}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_claim_that_holds_is_told_with_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scores_file(tmp_path / "scores.csv", noise_multiplier=1.0)

    assert main(["audit", "--scores", str(path), "--noise-multiplier", "1"]) == 0
    words = capsys.readouterr().out
    assert main(["audit", "--scores", str(path), "--noise-multiplier", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)

    assert "4 in each of 300 rounds" in words
    assert "Nothing contradicts the claim" in words
    assert figures["noise_multiplier"] == pytest.approx(1.0, rel=0.2)
    assert figures["noise_multiplier_lower"] < 1 < figures["noise_multiplier_upper"]
    assert 0 < figures["epsilon_lower_bound"] < figures["claimed_epsilon"]
    assert figures["holds"] is True


def test_a_claim_that_does_not_hold_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scores_file(tmp_path / "scores.csv", noise_multiplier=1.0, twice=2)

    assert main(["audit", "--scores", str(path), "--noise-multiplier", "1.2"]) == 1

    told = capsys.readouterr()
    assert "worst canary                                         canary-2" in told.out
    assert "The claim does not hold." in told.out
    assert "one client counts more than once" in told.err


def test_without_a_claim_there_is_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scores_file(tmp_path / "scores.csv", noise_multiplier=0.1)

    assert main(["audit", "--scores", str(path)]) == 0

    assert "there is no epsilon to compare with" in capsys.readouterr().out


def test_an_epsilon_that_is_refuted_is_a_fault() -> None:
    # No noise at all against a claim of 3: every guess is right.
    coins = np.random.default_rng(1).random((200, 4)) < 0.5

    found = judge(coins.astype(float), coins, claimed=3.0)

    assert any("one round spends an epsilon above" in fault for fault in found.faults)
    assert verdict(found) == "The claim does not hold."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with the line canary,score,included"),
        ("canary,score,included\n", "as many lines for every canary, it has none"),
        ("canary,score,included\na,1,1\na,1,0\nb,1,1\n", r"it has \[1, 2\]"),
        ("canary,score,included\na,1,yes\n", "scores.csv:2 must read like"),
        ("canary,score,included\na,1\n", "scores.csv:2 must read like"),
        ("canary,score,included\na,one,1\n", "scores.csv:2 must read like"),
    ],
)
def test_a_file_that_holds_no_scores_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(text)

    with pytest.raises(AuditError, match=message):
        read_scores(path)


def test_bad_scores_and_claims_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scores_file(tmp_path / "scores.csv", noise_multiplier=1.0)
    few = tmp_path / "few.csv"
    few.write_text("canary,score,included\na,1,1\na,0,0\n")
    broken = tmp_path / "nan.csv"
    broken.write_text("canary,score,included\na,nan,1\na,0,0\n")

    assert main(["audit", "--scores", str(few)]) == 1
    assert "at least 30 canaries must be included and 30 left out, got 1 and 1" in (
        capsys.readouterr().err
    )
    assert main(["audit", "--scores", str(broken)]) == 1
    assert "1 of 2 are NaN or infinite" in capsys.readouterr().err
    assert main(["audit", "--scores", str(path), "--noise-multiplier", "nan"]) == 1
    assert "claimed noise multiplier must be > 0 and finite, got nan" in capsys.readouterr().err
