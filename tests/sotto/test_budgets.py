"""Budgets through the door are those that the command prints."""

import json
from pathlib import Path

import pytest

import sotto
from privacy.cli import main

_RUN = ["--rounds", "100", "--delta", "1e-6"]


def test_epsilon_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--noise-multiplier", "1.5", "--sampling-rate", "0.05", "--population", "5000"]

    figures = sotto.epsilon(
        rounds=100, delta=1e-6, noise_multiplier=1.5, sampling_rate=0.05, population=5000
    )

    assert main(["epsilon", *_RUN, *flags, "--json"]) == 0
    assert figures == json.loads(capsys.readouterr().out)


def test_least_noise_is_the_commands_and_keeps_the_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = sotto.noise_for(2.0, rounds=100, delta=1e-6, sampling_rate=0.05)

    sampled = ["--sampling-rate", "0.05"]
    assert main(["noise", "--target-epsilon", "2", *_RUN, *sampled, "--json"]) == 0
    assert figures == json.loads(capsys.readouterr().out)
    z = figures["noise_multiplier"]
    assert isinstance(z, float)
    spent = sotto.epsilon(rounds=100, delta=1e-6, noise_multiplier=z, sampling_rate=0.05)
    assert isinstance(spent["epsilon"], float)
    assert 1.9 < spent["epsilon"] <= 2.0


@pytest.mark.parametrize("mechanism", ["tree", "blt"])
def test_correlated_noise_is_the_commands(
    mechanism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--mode", "ftrl", "--min-separation", "10", "--max-participation", "10"]
    flags += ["--mechanism", mechanism, "--noise-multiplier", "4"]

    figures = sotto.epsilon(
        mode="ftrl",
        rounds=100,
        delta=1e-6,
        noise_multiplier=4.0,
        mechanism="tree" if mechanism == "tree" else "blt",
        min_separation=10,
        max_participation=10,
    )

    assert main(["epsilon", *_RUN, *flags, "--json"]) == 0
    assert figures == json.loads(capsys.readouterr().out)


def test_what_cannot_be_answered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rounds must"):
        sotto.epsilon(noise_multiplier=1.0, sampling_rate=0.1, delta=1e-6)
    with pytest.raises(ValueError, match="has no effect for sums under masks"):
        sotto.epsilon(mode="masked", rounds=1, noise_multiplier=1, delta=1e-6, sampling_rate=0.1)
    with pytest.raises((ValueError, OSError), match=r"absent\.toml"):
        sotto.epsilon(tmp_path / "absent.toml")
