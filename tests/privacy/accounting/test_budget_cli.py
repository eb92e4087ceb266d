"""The commands ``sotto-privacy epsilon``, ``noise``, ``sensitivity`` and ``explain``."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from privacy.accounting.events import GaussianRelease, UnprotectedRelease
from privacy.accounting.ledger_chain import LedgerEntry, next_entry
from privacy.accounting.ledger_file import export_ledger
from privacy.cli import main

RUN = "ab" * 16

TABLES = """
[rounds]
cap = 100
{rounds}
[aggregation]
rule = "attentive"
attention_strength = {strength}
server_step_size = 1.2
[privacy]
{privacy}
"""
CENTRAL = """
mode = "central"
adjacency = "zero-out"
clipping_norm = 1.0
noise_multiplier = 10.0
delta = 1e-6
epsilon_budget = 8.0
"""
TREES = CENTRAL.replace("central", "ftrl") + "min_separation = 10\nmax_participation = 4\n"
BUFFERS = f'{TREES}mechanism = "blt"\nbuffer_decays = [0.9, 0.5]\nbuffer_scales = [0.2, 0.25]\n'
SAMPLED = """
selection = "sampled"
participation_rate = 0.1
population_size = 1000
"""


def plan(
    folder: Path, privacy: str, rounds: str = "cohort_size = 10", strength: float = 0.5
) -> str:
    path = folder / "federation.toml"
    path.write_text(TABLES.format(privacy=privacy, rounds=rounds, strength=strength))
    return str(path)


def ledger(folder: Path, *, set_back_ms: int = 0) -> tuple[str, str]:
    """Return the path of an export with four releases at z = 2, and its head."""
    entries: list[LedgerEntry] = []
    for number in range(1, 5):
        entries.append(
            next_entry(
                entries[-1] if entries else None,
                run=RUN,
                round_number=number,
                event=GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None),
                now_ms=1000 * number - (set_back_ms if number == 3 else 0),
            )
        )
    path = folder / "ledger.json"
    path.write_text(export_ledger(RUN, entries))
    return str(path), entries[-1].sha256.hex()


# Any: figures are numbers, words and nulls.
def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def test_gboards_figures_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(
        capsys,
        *("epsilon", "--mode", "ftrl", "--noise-multiplier", "7", "--rounds", "2000"),
        *("--min-separation", "313", "--max-participation", "6", "--delta", "1e-10"),
    )

    assert (round(found["rho"], 2), round(found["epsilon"], 2)) == (0.81, 8.90)
    assert found["epsilon_pld"] is None and found["epsilon_prv"] is None


def test_a_restart_is_a_second_tree(capsys: pytest.CaptureFixture[str]) -> None:
    # Two trees of 2 rounds, every round: 2 * (4 + 2) over 2 z^2 with z = 2.
    found = figures(
        capsys,
        *("epsilon", "--mode", "ftrl", "--noise-multiplier", "2", "--rounds", "4"),
        *("--min-separation", "1", "--max-participation", "4", "--restart-rounds", "2"),
        *("--delta", "1e-5"),
    )

    assert found["rho"] == pytest.approx(12 / 8)


def test_epsilon_of_flags_has_both_opinions(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(
        capsys,
        *("epsilon", "--noise-multiplier", "1", "--rounds", "1"),
        *("--sampling-rate", "1", "--delta", "1e-5"),
    )

    # One Gaussian release at z = 1: Balle and Wang's formula gives 4.3772 at 1e-5.
    assert found["epsilon"] == found["epsilon_pld"] == pytest.approx(4.3772, abs=1e-3)
    assert abs(found["epsilon_prv"] - found["epsilon_pld"]) <= 0.011
    # One release without sampling is 1/(2 z^2)-zCDP.
    assert found["rho"] == 0.5


def test_a_population_fixes_the_places_and_spends_their_tail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("epsilon", "--noise-multiplier", "1", "--rounds", "100", "--sampling-rate", "0.01")

    bare = figures(capsys, *flags, "--delta", "1e-5")
    fixed = figures(capsys, *flags, "--delta", "1e-5", "--population", "1000")

    assert 0 < fixed["overflow"] <= 1e-6
    assert 10 < fixed["slot_count"] < 60
    assert bare["epsilon"] < fixed["epsilon"] < bare["epsilon"] + 0.05
    assert main([*flags, "--delta", "1e-2", "--population", "1000"]) == 1
    assert "delta must be at most 1 / population" in capsys.readouterr().err


def test_epsilon_of_a_plan_is_that_of_its_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = figures(capsys, "epsilon", plan(tmp_path, CENTRAL))

    # A hundred releases at z = 10 are one at z = 1: 4.8866 at 1e-6 by Balle and Wang.
    assert found["epsilon"] == pytest.approx(4.8866, abs=1e-3)
    assert found["epsilon_budget"] == 8.0


def test_a_plan_above_its_budget_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL.replace("noise_multiplier = 10.0", "noise_multiplier = 5.0"))

    assert main(["epsilon", path]) == 0
    assert "above epsilon_budget 8 of the plan" in capsys.readouterr().out


def test_epsilon_of_a_ledger_checks_its_chain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, head = ledger(tmp_path, set_back_ms=1500)

    found = figures(
        capsys, "epsilon", "--ledger", path, "--delta", "1e-5", "--run", RUN, "--head", head
    )

    # Four releases at z = 2 are one at z = 1.
    assert found["epsilon"] == pytest.approx(4.3772, abs=1e-3)
    assert found["rounds"] == 4
    assert found["head"] == head
    assert found["clock_set_back_count"] == 1


def test_delta_of_a_ledger_may_come_from_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = ledger(tmp_path)

    assert figures(capsys, "epsilon", plan(tmp_path, CENTRAL), "--ledger", path)["delta"] == 1e-6
    assert main(["epsilon", "--ledger", path]) == 1
    assert "delta must be given" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--run", "cd" * 16], f"is the ledger of run {RUN}, not of run {'cd' * 16}"),
        (["--head", "00" * 32], "ledger ends with entry 4"),
    ],
)
def test_a_ledger_that_is_not_the_one_asked_about_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    path, _ = ledger(tmp_path)

    assert main(["epsilon", "--ledger", path, "--delta", "1e-5", *flags]) == 1
    assert words in capsys.readouterr().err


def test_an_edited_ledger_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = ledger(tmp_path)
    Path(path).write_text(Path(path).read_text().replace("2.0", "9.0", 1))

    assert main(["epsilon", "--ledger", path, "--delta", "1e-5"]) == 1
    assert "ledger entry 1 was changed" in capsys.readouterr().err


def test_a_release_without_guarantee_has_no_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = next_entry(
        None, run=RUN, round_number=1, event=UnprotectedRelease(mode="paper"), now_ms=1
    )
    path = tmp_path / "ledger.json"
    path.write_text(export_ledger(RUN, [entry]))

    assert figures(capsys, "epsilon", "--ledger", str(path), "--delta", "1e-5")["epsilon"] is None
    assert main(["epsilon", "--ledger", str(path), "--delta", "1e-5"]) == 0
    assert "no bound" in capsys.readouterr().out
    assert main(["epsilon", plan(tmp_path, 'mode = "none"'), "--ledger", str(path)]) == 1
    assert "there is no epsilon to compute" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--rounds", "1", "--sampling-rate", "1", "--delta", "1e-5"], "noise_multiplier"),
        (["--noise-multiplier", "1", "--sampling-rate", "1", "--delta", "1e-5"], "rounds"),
        (["--noise-multiplier", "1", "--rounds", "1", "--delta", "1e-5"], "sampling_rate"),
        (["--noise-multiplier", "1", "--rounds", "1", "--sampling-rate", "1"], "delta"),
    ],
)
def test_a_missing_value_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], flags: list[str], name: str
) -> None:
    assert main(["epsilon", *flags]) == 1
    assert f"sotto-privacy: {name} must be given" in capsys.readouterr().err


def test_the_sampling_of_trees_and_other_vain_flags_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in (
        ["--mode", "ftrl", "--sampling-rate", "0.1"],
        ["--mechanism", "blt"],
        ["--mode", "ftrl", "--mechanism", "blt", "--restart-rounds", "5"],
        ["--min-separation", "3"],
        [plan(tmp_path, CENTRAL), "--noise-multiplier", "2"],
    ):
        with pytest.raises(SystemExit) as left:
            main(["epsilon", *flags])
        assert left.value.code == 2
        assert "has no effect" in capsys.readouterr().err


def test_opacus_gdp_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(
        [
            *("epsilon", "--noise-multiplier", "1", "--rounds", "1", "--sampling-rate", "1"),
            *("--delta", "1e-5", "--second-opinion", "gdp"),
        ]
    )

    assert status == 1
    assert "understates epsilon" in capsys.readouterr().err


@pytest.mark.slow
def test_noise_is_the_least_that_epsilon_confirms(capsys: pytest.CaptureFixture[str]) -> None:
    run = ("--rounds", "100", "--sampling-rate", "0.1", "--delta", "1e-5")

    z = figures(capsys, "noise", "--target-epsilon", "8", *run)["noise_multiplier"]

    assert figures(capsys, "epsilon", "--noise-multiplier", str(z), *run)["epsilon"] <= 8
    less = figures(capsys, "epsilon", "--noise-multiplier", str(z * 0.995), *run)
    assert less["epsilon"] > 8


def test_noise_of_trees_is_the_least_that_epsilon_confirms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Gboard's published epsilon of 8.90 belongs to a noise multiplier of 7."""
    run = ["--mode", "ftrl", "--rounds", "2000", "--delta", "1e-10"]
    run += ["--min-separation", "313", "--max-participation", "6"]

    found = figures(capsys, "noise", "--target-epsilon", "8.9", *run)
    z = found["noise_multiplier"]

    assert z == pytest.approx(7.0, abs=0.01)
    # Ten draws lie in the model of round 1023, and in none of 2,000 more.
    assert found["model_noise"] == pytest.approx(z * 10**0.5)
    assert figures(capsys, "epsilon", "--noise-multiplier", str(z), *run)["epsilon"] <= 8.9
    less = figures(capsys, "epsilon", "--noise-multiplier", str(z * 0.999), *run)
    assert less["epsilon"] > 8.9


def test_noise_of_restarted_trees_counts_every_tree(capsys: pytest.CaptureFixture[str]) -> None:
    # One person in every round of two trees of one leaf each: rho = 2 / (2 z^2), as for two
    # rounds without sampling, where one tree of two leaves would have (1 + 1 + 4) / (2 z^2).
    run = ["noise", "--mode", "ftrl", "--rounds", "2", "--delta", "1e-5", "--target-epsilon", "4"]
    run += ["--min-separation", "1", "--max-participation", "2"]

    restarted = figures(capsys, *run, "--restart-rounds", "1")["noise_multiplier"]
    whole = figures(capsys, *run)["noise_multiplier"]

    assert whole / restarted == pytest.approx(3**0.5, rel=1e-3)


def test_noise_of_buffers_is_confirmed_and_prints_a_file_that_costs_as_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--mode", "ftrl", "--mechanism", "blt", "--rounds", "100", "--delta", "1e-6"]
    run += ["--min-separation", "10", "--max-participation", "4"]

    found = figures(capsys, "noise", "--target-epsilon", "2", *run)
    assert main(["noise", "--target-epsilon", "2", *run]) == 0
    written = capsys.readouterr().out.splitlines()[-3:]

    z = found["noise_multiplier"]
    assert figures(capsys, "epsilon", "--noise-multiplier", str(z), *run)["epsilon"] <= 2
    less = figures(capsys, "epsilon", "--noise-multiplier", str(z * 0.999), *run)
    assert less["epsilon"] > 2
    assert written[0] == 'mechanism = "blt"'
    assert found["model_noise"] < found["model_noise_of_tree"]
    # The very lines in a plan of 100 rounds cost what the flags say.
    privacy = TREES.replace("noise_multiplier = 10.0", f"noise_multiplier = {z}")
    path = plan(tmp_path, privacy + "\n".join(written) + "\n")
    assert figures(capsys, "epsilon", path)["epsilon"] == pytest.approx(2, abs=1e-3)


def test_noise_takes_the_flags_of_its_mode_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--mode", "ftrl", "--sampling-rate", "0.1"], ["--min-separation", "3"]):
        with pytest.raises(SystemExit) as left:
            main(["noise", "--target-epsilon", "8", *flags])
        assert left.value.code == 2
        assert "has no effect" in capsys.readouterr().err


def test_sensitivity_is_the_theorems_and_has_its_price(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("sensitivity", "--cohort", "10", "--attention-strength", "1", "--clipping-norm", "2")

    found = figures(capsys, *flags)

    # Zero-out, m = 10, κ = 1: C E/(E + 9) = 0.231969 C; equal weights C/10.
    assert found["sensitivity"] == pytest.approx(2 * math.e / (math.e + 9))
    assert found["price_of_attention"] == pytest.approx(10 * math.e / (math.e + 9))
    # Replace-one is twice that.
    doubled = figures(capsys, *flags, "--adjacency", "replace-one")["sensitivity"]
    assert doubled == pytest.approx(4 * math.e / (math.e + 9))


@pytest.mark.parametrize(("strength", "is_priced"), [("0.5", False), ("0.6", True), ("-1", True)])
def test_attention_above_a_half_is_allowed_and_priced(
    capsys: pytest.CaptureFixture[str], strength: str, is_priced: bool
) -> None:
    arguments = ["sensitivity", "--cohort", "10", "--clipping-norm", "1"]

    assert main([*arguments, f"--attention-strength={strength}"]) == 0

    assert ("times the noise of equal weights" in capsys.readouterr().out) == is_priced


def test_sensitivity_of_sums_is_the_clips_and_the_noise_of_their_ratio_a_span(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--cohort", "100", "--attention-strength", "1", "--clipping-norm", "2")

    found = figures(capsys, "sensitivity", *flags, "--layers", "6", "--noise-on", "sums")

    assert found["sensitivity"] == pytest.approx(2 * math.sqrt(1.1))
    assert found["least_released_noise"] == pytest.approx(2 * math.sqrt(1.1) / 100)
    assert found["most_released_noise"] == pytest.approx(2 * math.sqrt(1.1) / 100 * math.e)
    # S / (rho C): sqrt(1.1) / sqrt(0.1 / 6).
    assert found["weight_noise"] == pytest.approx(math.sqrt(66))
    on_mean = figures(capsys, "sensitivity", *flags, "--layers", "6")
    assert found["mean_sensitivity"] == on_mean["sensitivity"]
    # Noise on the mean has no bound for one clip over six layers at 2; the sums have.
    strong = ("--cohort", "100", "--attention-strength", "2", "--clipping-norm", "2")
    beyond = figures(capsys, "sensitivity", *strong, "--layers", "6", "--noise-on", "sums")
    assert beyond["mean_sensitivity"] is None


@pytest.mark.parametrize("mode", [CENTRAL, TREES])
def test_explain_of_sums_states_both_the_noise_drawn_and_that_of_the_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    path = plan(tmp_path, f'{mode}noise_on = "sums"', "cohort_size = 200", strength=1.0)

    found = figures(capsys, "explain", path)

    assert found["sensitivity"] == pytest.approx(math.sqrt(1.1))
    assert found["noise_std"] == pytest.approx(10 * math.sqrt(1.1))
    assert found["least_released_noise_std"] == pytest.approx(10 * math.sqrt(1.1) / 200)
    assert found["most_released_noise_std"] == pytest.approx(10 * math.sqrt(1.1) / 200 * math.e)
    assert main(["explain", path]) == 0
    words = capsys.readouterr().out
    assert "sensitivity of the sums of updates and of weights" in words
    assert "costs at most 2.72 times the noise of equal weights" in words


def test_explain_of_sums_divides_by_whom_the_coins_are_expected_to_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL + 'noise_on = "sums"', SAMPLED, strength=0.0)

    found = figures(capsys, "explain", path)

    # A tenth of a thousand, fewer than the places of a round.
    assert found["least_released_noise_std"] == pytest.approx(10 * math.sqrt(1.1) / 100)
    assert found["most_released_noise_std"] == found["least_released_noise_std"]
    assert found["slot_count"] > 100


def test_what_is_noised_changes_no_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_mean = figures(capsys, "epsilon", plan(tmp_path, CENTRAL, SAMPLED))
    of_sums = figures(capsys, "epsilon", plan(tmp_path, CENTRAL + 'noise_on = "sums"', SAMPLED))

    assert of_sums == of_mean


def test_explain_turns_the_papers_magnitude_into_a_multiplier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = 'mode = "paper-server"\nrandomisation_magnitude = 0.001\nclipping_norm = 1.0'
    path = plan(tmp_path, paper, strength=1.0)

    found = figures(capsys, "explain", path)

    # m = 10, C = 1, step 1.2, κ = 1: 0.001 / (1.2 * 0.23) = 0.0036.
    assert round(found["noise_multiplier"], 4) == 0.0036
    assert found["guarantees_privacy"] is False
    assert main(["explain", path]) == 0
    words = capsys.readouterr().out
    assert "a noise multiplier of 0.0036" in words
    assert "no privacy guarantee" in words


def test_explain_says_unit_neighbours_draw_and_what_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL, SAMPLED, strength=0.6)

    assert main(["explain", path]) == 0

    words = capsys.readouterr().out
    for part in (
        "Unit of privacy: the enrolled person",
        "replaced by zeros",
        "a secret coin of 0.1 for each of at most 1000 people",
        "One round: epsilon",
        "over 100 rounds; the budget is 8",
        "Price: attention strength 0.6 costs",
    ):
        assert part in words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "factor", "shared_with"),
    [
        ("", 1.0, None),
        # z_Δ = z / √(1 - (z γ / σ_b)²), and γ = 0.5.
        ("[privacy.adaptive_clipping]\ncount_noise_std = 10.0", 2 / math.sqrt(3), "the count"),
        ('[personalisation]\nmethod = "fedtp"', math.sqrt(2), "what teaches the hypernetwork"),
        ('[personalisation]\nmethod = "pfedhn"', 1.0, None),
    ],
)
def test_explain_states_the_noise_that_is_drawn(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: str,
    factor: float,
    shared_with: str | None,
) -> None:
    path = plan(tmp_path, CENTRAL, SAMPLED)
    with Path(path).open("a") as file:
        file.write(f"\n{more}\n")

    found = figures(capsys, "explain", path)

    assert found["noise_multiplier"] == 10
    assert found["drawn_noise_multiplier"] == pytest.approx(10 * factor)
    assert found["noise_std"] == pytest.approx(10 * factor * found["sensitivity"])
    assert main(["explain", path]) == 0
    words = capsys.readouterr().out
    if shared_with is None:
        assert "together with" not in words
    else:
        assert f"; 10 together with {shared_with}" in words


def test_explain_names_the_second_layer_and_its_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, 'mode = "none"')
    with Path(path).open("a") as file:
        file.write("""
[training]
local_epochs = 2
learning_rate = 1.0
[training.example_privacy]
clipping_norm = 0.5
noise_multiplier = 2.0
sampling_rate = 0.1
delta = 1e-5
""")

    found = figures(capsys, "explain", path)

    # Two epochs at a rate of 0.1 are 20 steps.
    run = ("--rounds", "20", "--sampling-rate", "0.1", "--delta", "1e-5")
    steps = figures(capsys, "epsilon", "--noise-multiplier", "2", *run)
    assert found["example_epsilon_round"] == pytest.approx(steps["epsilon"], abs=0.01)
    assert main(["explain", path]) == 0
    assert "hidden in their own update: each of 20 steps a round" in capsys.readouterr().out


@pytest.mark.slow
def test_explain_says_where_a_run_will_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL.replace("epsilon_budget = 8.0", "epsilon_budget = 4.8866"))

    found = figures(capsys, "explain", path)

    # A hundred rounds spend 4.88655 and fit just so; with a little less budget they do not.
    assert found["rounds_that_fit"] == 100
    path = plan(tmp_path, CENTRAL.replace("epsilon_budget = 8.0", "epsilon_budget = 4.88"))
    assert figures(capsys, "explain", path)["rounds_that_fit"] == 99


EVALUATION = """cohort_size = 10
[evaluation]
kind = "devices"
cohort_size = 50
every_rounds = 4
noise = { noise_multiplier = 5.0, token_cap = 100, loss_cap = 10.0 }
"""


@pytest.mark.slow
def test_evaluations_by_devices_are_counted_and_priced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL, EVALUATION)

    # 100 rounds at z = 10 and 25 evaluations at z = 5 are 100 / 100 + 25 / 25: one at 1 / sqrt(2).
    whole = figures(capsys, "epsilon", path)["epsilon"]
    one = ("--rounds", "1", "--sampling-rate", "1", "--delta", "1e-6")
    as_one = figures(capsys, "epsilon", "--noise-multiplier", "0.70710678", *one)["epsilon"]
    assert whole == pytest.approx(as_one, rel=1e-6)
    found = figures(capsys, "explain", path)
    assert found["epsilon"] == pytest.approx(whole)
    assert found["epsilon_models"] == pytest.approx(4.8866, abs=1e-3)
    alone = figures(capsys, "epsilon", "--noise-multiplier", "5", *one)["epsilon"]
    assert found["epsilon_evaluation"] == pytest.approx(alone)
    assert found["evaluations"] == 25
    # Noise of 5 x 2 devices on the loss of 50, in halves of a cap of 10 nats.
    assert found["evaluation_loss_error"] == pytest.approx(5.0 * 2 * 5 / 50)
    assert found["rounds_that_fit"] == 100
    tight = CENTRAL.replace("epsilon_budget = 8.0", f"epsilon_budget = {whole - 0.01}")
    # The last evaluation is after round 100.
    assert figures(capsys, "explain", plan(tmp_path, tight, EVALUATION))["rounds_that_fit"] == 99
    assert main(["epsilon", path]) == 0
    assert "over 125 releases, 25 evaluations among them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("privacy", "evaluation"),
    [
        (CENTRAL, EVALUATION.replace("noise =", "# ")),
        (CENTRAL.replace("central", "local").replace("adjacency", "# "), EVALUATION),
    ],
)
def test_counts_without_noise_have_no_epsilon(
    privacy: str, evaluation: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["epsilon", plan(tmp_path, privacy, evaluation)]) == 1
    assert "nothing bounds what counts tell" in capsys.readouterr().err


def test_explain_of_trees_assumes_nothing_about_the_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, TREES)

    assert main(["explain", path]) == 0

    words = capsys.readouterr().out
    assert "takes part at most 4 times, at least 10 rounds apart" in words
    assert "each node of the tree" in words


def test_explain_of_buffers_says_what_they_hold_and_what_the_model_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, BUFFERS)

    assert main(["explain", path]) == 0
    words = capsys.readouterr().out
    found = figures(capsys, "explain", path)

    assert "noise through 2 buffers of" in words
    assert "each round's draw" in words
    assert "2 buffers take 16 bytes a parameter" in words
    # The least a model can hold is its last round's own draw.
    assert found["model_noise_std"] > found["noise_std"]


def test_a_plan_with_a_privacy_value_missing_is_refused_by_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL.replace("delta = 1e-6", ""))

    assert main(["explain", path]) == 1

    error = capsys.readouterr().err
    assert path in error and "delta" in error


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        ("attention_strength = 0.5", "attention_strength = 60.0", "attention_strength must lie in"),
        ('rule = "attentive"', 'rule = "norm-bounded"', "was removed; use aggregation.rule"),
        ("cohort_size = 10", "", "give either cohort_size or participation_rate"),
        ("cohort_size = 10", SAMPLED + "cohort_size = 50", "rounds.cohort_size must be >="),
        ("cohort_size = 10", 'selection = "lottery"', "it must be one of drawn, first-come"),
    ],
)
def test_a_plan_is_held_to_the_coordinators_rules(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    written: str,
    instead: str,
    message: str,
) -> None:
    path = plan(tmp_path, CENTRAL)
    Path(path).write_text(Path(path).read_text().replace(written, instead))

    assert main(["epsilon", path]) == 1

    assert message in capsys.readouterr().err


def test_a_delta_above_one_over_the_population_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = plan(tmp_path, CENTRAL.replace("1e-6", "1e-2"), SAMPLED)

    assert main(["epsilon", path]) == 1
    assert "delta must be at most 1 / population" in capsys.readouterr().err


def test_a_device_without_accountants_is_told_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)

    assert (
        main(
            [
                *("epsilon", "--mode", "ftrl", "--noise-multiplier", "7", "--rounds", "20"),
                *("--min-separation", "3", "--max-participation", "6", "--delta", "1e-10"),
            ]
        )
        == 1
    )
    assert "is missing; install sotto[server]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "unit"),
    [
        ("epsilon", "in rounds"),
        ("noise", "in (0, 1]"),
        ("sensitivity", "in parameter units"),
        ("explain", "federation TOML file"),
    ],
)
def test_help_states_units(command: str, unit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])

    assert left.value.code == 0
    assert unit in " ".join(capsys.readouterr().out.split())
