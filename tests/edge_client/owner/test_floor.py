"""A captured coordinator cannot go below what the device's owner accepts."""

import math
import re
import stat
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from edge_client.owner.floor import (
    ExampleBudget,
    Floor,
    FloorError,
    PlanBelowFloorError,
    check_data,
    check_helper,
    check_plan,
    read_floor,
)
from edge_client.owner.starting_floor import write_starting_floor
from models.plan.plan import Plan, PlanKind, TrainingSettings, VocabularySettings
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.model import GruLmSettings, ModelSettings, schema_of
from models.settings.personalisation import DittoSettings, GlobalSettings, PFedHnSettings
from models.settings.weighing import EqualWeights
from privacy.example_level.settings import ExamplePrivacySettings
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise
from privacy.noise.evaluation_settings import EvaluationNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import NoNoise, PaperNoise, PrivacySettings

FLOOR = Floor(
    modes=frozenset({"paper"}),
    largest_clipping_norm=1.0,
    least_cohort=10,
    model_families=frozenset({"gru_lm"}),
)


def central(*, noise_multiplier: float) -> CentralNoise:
    """Return settings of central noise within the floor's clip."""
    return CentralNoise(
        clipping_norm=1.0,
        noise_multiplier=noise_multiplier,
        delta=1e-3,
        epsilon_budget=8.0,
        adjacency="zero-out",
    )


def plan(**changes: Any) -> Plan:
    """Return a plan that lies exactly at the floor."""
    model = GruLmSettings(vocabulary_size=5, hidden_size=2)
    at_floor = Plan(
        run="00" * 16,
        model=model,
        schema_sha256=schema_of(model).sha256.hex(),
        vocabulary=VocabularySettings(name="test", size=5, sha256="00" * 32),
        training=TrainingSettings(learning_rate=1.0, batch_size=1, bptt_steps=1),
        privacy=PaperNoise(clipping_norm=1.0, randomisation_magnitude=0.1),
        cohort_size=10,
        quorum=10,
        seed=1,
    )
    if isinstance(changes.get("privacy"), MaskedNoise):
        changes["weighing"] = EqualWeights()
    return msgspec.structs.replace(at_floor, **changes)


def test_a_plan_exactly_at_the_floor_is_accepted() -> None:
    check_plan(plan(), FLOOR)


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"privacy": NoNoise(clipping_norm=1.0)}, "floor_mode", "its owner can, in floor.toml"),
        (
            {"privacy": PaperNoise(clipping_norm=1.01, randomisation_magnitude=0.1)},
            "floor_clipping_norm",
            "got 1.01; its owner can raise largest_clipping_norm, in floor.toml",
        ),
        (
            {"privacy": PaperNoise(randomisation_magnitude=0.1)},
            "floor_clipping_norm",
            "got none; its owner can raise largest_clipping_norm, in floor.toml",
        ),
        ({"cohort_size": 9}, "floor_cohort", "its owner can lower least_cohort, in floor.toml"),
        ({"quorum": 9}, "floor_cohort", "got 10 and 9; its owner can lower least_cohort"),
        # An earlier coordinator does not say how few may close a round: one may.
        ({"quorum": None}, "floor_cohort", "got 10 and none; its owner can lower least_cohort"),
    ],
)
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_plan_below_the_floor_is_refused_with_its_rule_and_the_line_to_change(
    changes: dict[str, Any], code: str, told: str, kind: str
) -> None:
    with pytest.raises(PlanBelowFloorError, match=told) as refused:
        check_plan(plan(kind=kind, **changes), FLOOR)

    assert refused.value.code == code


@pytest.mark.parametrize(
    ("privacy", "is_accepted"),
    [
        (central(noise_multiplier=0.5), True),
        (central(noise_multiplier=0.49), False),
        (PaperNoise(clipping_norm=1.0, randomisation_magnitude=0.1), False),
    ],
)
def test_an_owner_may_name_the_least_noise(privacy: PrivacySettings, *, is_accepted: bool) -> None:
    modes = frozenset({"central", "paper"})
    floor = msgspec.structs.replace(FLOOR, modes=modes, least_noise_multiplier=0.5)

    if is_accepted:
        check_plan(plan(privacy=privacy), floor)
        return
    with pytest.raises(PlanBelowFloorError, match=r"must be >= 0\.5 for this device") as refused:
        check_plan(plan(privacy=privacy), floor)
    assert "its owner can lower or remove least_noise_multiplier, in floor.toml" in str(
        refused.value
    )
    assert refused.value.code == "floor_noise_multiplier"


def test_no_embedding_leaves_a_device_without_noise_under_a_guarantee() -> None:
    fitting = plan(
        kind="fit_embedding",
        embedding_fit=EmbeddingFitSettings(),
        personalisation=PFedHnSettings(),
        privacy=central(noise_multiplier=1.0),
    )
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"central"}))

    with pytest.raises(PlanBelowFloorError, match="an embedding leaves without noise") as refused:
        check_plan(fitting, floor)
    assert refused.value.code == "floor_mode"


def test_what_a_device_fits_for_itself_leaves_it_under_no_mode() -> None:
    fitting = plan(
        kind="fit_personal",
        embedding_fit=EmbeddingFitSettings(),
        personalisation=DittoSettings(),
        privacy=central(noise_multiplier=1.0),
    )

    check_plan(fitting, msgspec.structs.replace(FLOOR, modes=frozenset({"central"})))


def test_an_owner_may_choose_the_methods_that_a_device_takes_part_in() -> None:
    personal = plan(personalisation=DittoSettings())
    only_global = msgspec.structs.replace(FLOOR, methods=frozenset({"global"}))

    check_plan(personal, FLOOR)
    check_plan(plan(), only_global)
    with pytest.raises(PlanBelowFloorError, match="method ditto; its owner can let it") as refused:
        check_plan(personal, only_global)
    assert refused.value.code == "floor_method"


def test_an_owner_who_asks_for_example_privacy_trains_under_no_plan_without() -> None:
    floor = msgspec.structs.replace(FLOOR, example_privacy=ExampleBudget(epsilon=8.0, delta=1e-5))
    hiding = ExamplePrivacySettings(
        clipping_norm=0.5, noise_multiplier=1.0, sampling_rate=0.1, delta=1e-5
    )
    training = msgspec.structs.replace(plan().training, example_privacy=hiding)

    check_plan(plan(training=training), floor)
    with pytest.raises(PlanBelowFloorError, match=r"can remove \[example_privacy\]") as refused:
        check_plan(plan(), floor)

    assert refused.value.code == "floor_example_privacy"


@pytest.mark.parametrize("kind", ["evaluate", "fit_embedding"])
def test_an_owner_who_asks_for_example_privacy_sends_nothing_else_made_from_the_text(
    kind: PlanKind,
) -> None:
    floor = msgspec.structs.replace(FLOOR, example_privacy=ExampleBudget(epsilon=8.0, delta=1e-5))
    fits = kind == "fit_embedding"
    asked = plan(
        kind=kind,
        embedding_fit=EmbeddingFitSettings() if fits else None,
        personalisation=PFedHnSettings() if fits else GlobalSettings(),
    )

    check_plan(asked, FLOOR)
    with pytest.raises(PlanBelowFloorError, match="sends nothing else") as refused:
        check_plan(asked, floor)

    assert refused.value.code == "floor_example_privacy"
    # Tensors that are fitted for the person stay on the device.
    stays = plan(
        kind="fit_personal",
        embedding_fit=EmbeddingFitSettings(),
        personalisation=DittoSettings(),
    )
    check_plan(stays, floor)


def local(**changes: Any) -> LocalNoise:
    terms = {"clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "epsilon_budget": 8.0}
    return LocalNoise(**{**terms, **changes})


def masked(**changes: Any) -> MaskedNoise:
    terms = {
        "clipping_norm": 1.0,
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "epsilon_budget": 8.0,
        "coordinator_epsilon_budget": 8.0,
        "adjacency": "zero-out",
        "honest_share": 0.5,
    }
    return MaskedNoise(**{**terms, **changes})


def started(folder: Path) -> Floor:
    write_starting_floor(folder / "floor.toml")
    return read_floor(folder / "floor.toml")


@pytest.mark.parametrize(
    ("privacy", "code"),
    [
        (central(noise_multiplier=1e-6), "floor_noise_multiplier"),
        (local(noise_multiplier=1e-6), "floor_noise_multiplier"),
        (local(noise_multiplier=0.29, epsilon_budget=10.0), "floor_noise_multiplier"),
        (local(epsilon_budget=1e300), "floor_epsilon"),
        (local(epsilon_budget=10.01), "floor_epsilon"),
        (local(delta=0.5), "floor_delta"),
        (local(delta=1.1e-3), "floor_delta"),
        (local(clipping_norm=1e9), "floor_clipping_norm"),
        (masked(epsilon_budget=10.01), "floor_epsilon"),
        # Against the coordinator, too, which sees every attempt.
        (masked(coordinator_epsilon_budget=10.01), "floor_epsilon"),
        (masked(noise_multiplier=0.29), "floor_noise_multiplier"),
        (masked(delta=1.1e-3), "floor_delta"),
        (masked(clipping_norm=1e9), "floor_clipping_norm"),
        # Ten devices in six groups: a sum of one.
        (masked(groups=6), "floor_cohort"),
        (NoNoise(), "floor_mode"),
    ],
)
def test_a_new_device_refuses_what_promises_next_to_nothing(
    tmp_path: Path, privacy: PrivacySettings, code: str
) -> None:
    with pytest.raises(PlanBelowFloorError) as refused:
        check_plan(plan(privacy=privacy), started(tmp_path))

    assert refused.value.code == code


def test_the_noise_of_a_device_itself_keeps_the_budget_under_every_floor() -> None:
    # Classical bound (Dwork and Roth, theorem A.1): z = sqrt(2 ln(1.25/δ)) / ε suffices for ε < 1.
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"local"}))
    enough = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9

    check_plan(plan(privacy=local(noise_multiplier=enough, epsilon_budget=0.9)), floor)
    with pytest.raises(PlanBelowFloorError, match="no honest plan") as refused:
        check_plan(plan(privacy=local(noise_multiplier=enough / 2, epsilon_budget=0.9)), floor)

    assert refused.value.code == "floor_noise_multiplier"


def test_one_sum_keeps_the_budget_against_the_coordinator_under_every_floor() -> None:
    # As for "local" above: z = sqrt(2 ln(1.25/δ)) / ε suffices for ε < 1.
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"masked"}))
    enough = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9
    budgets = {"epsilon_budget": 8.0, "coordinator_epsilon_budget": 0.9}

    check_plan(plan(privacy=masked(noise_multiplier=enough, **budgets)), floor)
    with pytest.raises(PlanBelowFloorError, match="no honest plan") as refused:
        check_plan(plan(privacy=masked(noise_multiplier=enough / 2, **budgets)), floor)

    assert refused.value.code == "floor_noise_multiplier"


@pytest.mark.parametrize(
    ("changes", "is_accepted"),
    [
        ({}, True),
        ({"privacy": masked(groups=2)}, False),
        ({"quorum": 9}, False),
        ({"quorum": None}, False),
        ({"cohort_size": 20, "quorum": 20, "privacy": masked(groups=2)}, True),
    ],
)
def test_no_sum_under_masks_has_fewer_devices_than_the_floor_says(
    changes: dict[str, Any], *, is_accepted: bool
) -> None:
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"masked"}))
    asked = plan(**{"privacy": masked(), **changes})

    if is_accepted:
        check_plan(asked, floor)
        return
    with pytest.raises(PlanBelowFloorError, match="must be >= 10 for this device") as refused:
        check_plan(asked, floor)
    assert refused.value.code == "floor_cohort"


def test_a_device_that_wants_masks_sends_nothing_else() -> None:
    modes = frozenset({"masked", "central"})
    floor = msgspec.structs.replace(FLOOR, modes=modes, sums="masked")
    noised = EvaluationNoise(token_cap=100, loss_cap=10.0, noise_multiplier=1.0)

    check_plan(plan(privacy=masked()), floor)
    stays = plan(
        kind="fit_personal",
        privacy=masked(),
        embedding_fit=EmbeddingFitSettings(),
        personalisation=DittoSettings(),
    )
    check_plan(stays, floor)
    for asked, code in (
        (plan(privacy=central(noise_multiplier=1.0)), "floor_sums"),
        # Counts of one device, which the coordinator would see before it noises them.
        (plan(privacy=masked(), kind="evaluate", evaluation_noise=noised), "floor_mode"),
    ):
        with pytest.raises(PlanBelowFloorError) as refused:
            check_plan(asked, floor)
        assert refused.value.code == code


def test_only_a_helper_that_the_owner_pinned_may_hold_the_masks(tmp_path: Path) -> None:
    pinned, other = "ab" * 32, "cd" * 32
    write_starting_floor(tmp_path / "floor.toml", helper=pinned)
    helpers = read_floor(tmp_path / "floor.toml").helpers

    check_helper(pinned, helpers)
    for asked, allowed in ((other, helpers), (None, helpers), (pinned, None)):
        with pytest.raises(PlanBelowFloorError, match="can add it to helpers") as refused:
            check_helper(asked, allowed)
        assert refused.value.code == "floor_helper"


@pytest.mark.parametrize("name", ["mode central", "mode local", "noise on sums"])
def test_only_places_that_a_guarantee_fixes_stand_in_for_a_quorum(name: str) -> None:
    privacy = {
        "mode central": central(noise_multiplier=1.0),
        "mode local": local(),
        # Sums are divided by the weight that came, so an empty place is no zero.
        "noise on sums": msgspec.structs.replace(central(noise_multiplier=1.0), noise_on="sums"),
    }[name]
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"central", "local"}))
    asked = plan(privacy=privacy, quorum=1)

    if name == "mode central":
        check_plan(asked, floor)
        return
    with pytest.raises(PlanBelowFloorError) as refused:
        check_plan(asked, floor)
    assert refused.value.code == "floor_cohort"


def test_an_owner_may_choose_the_kinds_of_plan() -> None:
    floor = msgspec.structs.replace(FLOOR, kinds=frozenset({"train"}))

    check_plan(plan(), floor)
    with pytest.raises(PlanBelowFloorError, match="kind evaluate; its owner can let it") as refused:
        check_plan(plan(kind="evaluate"), floor)

    assert refused.value.code == "floor_kind"


def test_a_floor_of_an_earlier_version_still_reads(tmp_path: Path) -> None:
    path = tmp_path / "floor.toml"
    path.write_text(
        'modes = ["central", "ftrl", "local"]\nlargest_clipping_norm = "any"\n'
        'least_cohort = 2\nmodel_families = ["gru_lm"]\n'
    )

    floor = read_floor(path)

    assert (floor.largest_epsilon, floor.largest_delta, floor.kinds) == (None, None, None)
    check_plan(plan(privacy=central(noise_multiplier=0.1)), floor)


def test_the_starting_floors_budget_is_usable_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "floor.toml"
    write_starting_floor(path)
    lines = path.read_text().splitlines()
    first = lines.index("# [example_privacy]")

    path.write_text("\n".join([*lines[:first], *(line[2:] for line in lines[first:])]))

    assert read_floor(path).example_privacy == ExampleBudget(epsilon=8.0, delta=1e-5)


def test_a_model_family_that_the_floor_lacks_is_refused() -> None:
    floor = msgspec.structs.replace(FLOOR, model_families=frozenset({"transformer_lm"}))

    with pytest.raises(PlanBelowFloorError, match="gru_lm; its owner can add it") as refused:
        check_plan(plan(), floor)

    assert refused.value.code == "floor_model_family"


def test_the_starting_floor_trains_every_family(tmp_path: Path) -> None:
    write_starting_floor(tmp_path / "floor.toml")

    floor = read_floor(tmp_path / "floor.toml")

    # Those of plugins come with the plugin, and no floor names one by itself.
    tags = {settings.__struct_config__.tag for settings in get_args(ModelSettings)}
    assert floor.model_families == tags - {"plugin"}
    assert floor.plugins == ()


def test_any_norm_also_accepts_no_clipping() -> None:
    floor = msgspec.structs.replace(FLOOR, largest_clipping_norm="any")

    check_plan(plan(privacy=PaperNoise(randomisation_magnitude=0.1)), floor)


def test_data_must_lie_in_the_owners_folders_even_through_a_link(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    floor = msgspec.structs.replace(FLOOR, data_folders=(str(inside),))

    check_data(inside, floor)
    check_data(inside / "deep" / "texts.jsonl", floor)
    check_data(outside, FLOOR)
    for elsewhere in (outside, inside / "link", inside / ".." / "outside", tmp_path):
        told = f"must lie in one of {inside}, got {elsewhere.resolve()}; add its folder"
        with pytest.raises(PlanBelowFloorError, match=re.escape(told)) as refused:
            check_data(elsewhere, floor)
        assert refused.value.code == "floor_data_folder"


def test_the_starting_floor_is_owner_only_usable_and_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "floor.toml"

    write_starting_floor(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_floor(path).modes == {"central", "ftrl", "local", "masked"}
    raised = path.read_text().replace("least_cohort = 2", "least_cohort = 50")
    path.write_text(raised)
    write_starting_floor(path)
    assert read_floor(path).least_cohort == 50


def test_a_floor_below_every_guarantee_is_written_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "floor.toml"

    write_starting_floor(path, accepts_no_guarantee=True)

    without = {"none", "paper", "paper-server"}
    assert read_floor(path).modes == {"central", "ftrl", "local", "masked"} | without


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("least_cohort = 2", "", "least_cohort"),
        ('modes = ["central"', 'mode = ["central"', "mode"),
        ("least_cohort = 2", "least_cohort = 2.5", "least_cohort"),
        (
            "least_noise_multiplier = 0.3",
            "least_noise_multiplier = nan",
            "least_noise_multiplier must be > 0 and finite, got nan",
        ),
        ("least_cohort = 2", "least_cohort = 0", "least_cohort must be >= 1, got 0"),
        ("norm = 100.0", "norm = nan", "largest_clipping_norm must be > 0"),
        ("norm = 100.0", "norm = -1.0", "largest_clipping_norm must be > 0"),
        ("norm = 100.0", 'norm = "all"', "largest_clipping_norm"),
        ("largest_epsilon = 10.0", "largest_epsilon = nan", "largest_epsilon"),
        ("largest_epsilon = 10.0", "largest_epsilon = 0.0", "largest_epsilon"),
        ("largest_delta = 1e-3", "largest_delta = 1.0", "largest_delta"),
        ("kinds = [", "kinds = 1 # [", "kinds"),
        ("least_cohort = 2", "least_cohort = ", "line"),
        ('# helpers = ["..."]', 'helpers = ["..."]', "helpers must have 64 lower-case hex digits"),
        ('# sums = "masked"', 'sums = "plain"', "sums"),
        ("# bytes_a_day = 200_000_000", "bytes_a_day = -1", "bytes_a_day must be >= 0"),
        ('# data_folders = ["/home/me/texts"]', 'data_folders = ["texts"]', "absolute"),
        ("# [example_privacy]", "[example_privacy]\nepsilon = 8.0", "delta"),
        ("# [example_privacy]", "[example_privacy]\nepsilon = 0.0\ndelta = 0.1", "epsilon"),
        ("# [example_privacy]", "[example_privacy]\nepsilon = nan\ndelta = 0.1", "epsilon"),
        ("# [example_privacy]", "[example_privacy]\nepsilon = 1.0\ndelta = 1.0", "delta"),
    ],
)
def test_a_floor_with_a_mistake_is_refused_with_its_key(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    path = tmp_path / "floor.toml"
    write_starting_floor(path)
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after, 1))

    with pytest.raises(FloorError, match=said) as refused:
        read_floor(path)

    assert str(path) in str(refused.value)


def test_a_device_without_a_floor_takes_no_part(tmp_path: Path) -> None:
    with pytest.raises(FloorError, match="is missing"):
        read_floor(tmp_path / "floor.toml")


def test_counts_without_noise_are_not_told_under_a_guarantee() -> None:
    central = CentralNoise(
        clipping_norm=1.0,
        noise_multiplier=1.0,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency="zero-out",
    )
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"central"}))

    check_plan(plan(privacy=central), floor)
    with pytest.raises(PlanBelowFloorError, match="leave without noise") as refused:
        check_plan(plan(privacy=central, kind="evaluate"), floor)

    assert refused.value.code == "floor_mode"


def test_counts_leave_where_the_plan_noises_them_enough() -> None:
    noise = EvaluationNoise(noise_multiplier=0.6, token_cap=10, loss_cap=5.0)
    floor = msgspec.structs.replace(FLOOR, modes=frozenset({"central", "local"}))
    asked = plan(kind="evaluate", privacy=central(noise_multiplier=1.0), evaluation_noise=noise)

    check_plan(asked, floor)
    with pytest.raises(PlanBelowFloorError) as refused:
        check_plan(asked, msgspec.structs.replace(floor, least_noise_multiplier=0.7))
    assert refused.value.code == "floor_noise_multiplier"
    check_plan(asked, msgspec.structs.replace(floor, least_noise_multiplier=0.5))
    # In mode "local" the coordinator is not trusted to add noise.
    local = LocalNoise(clipping_norm=1.0, noise_multiplier=1.0, delta=1e-5, epsilon_budget=1.0)
    with pytest.raises(PlanBelowFloorError, match="leave without noise"):
        check_plan(msgspec.structs.replace(asked, privacy=local), floor)
