from pathlib import Path

import pytest

from models.plan.plan import decode_plan, upload_schema
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.model import GruLmSettings, schema_of
from models.settings.personalisation import DittoSettings, PFedHnSettings
from models.text.vocabulary import Vocabulary
from privacy.noise.calibrated_settings import CentralNoise
from server.config.federation import (
    ConfigError,
    parse_config,
    preset_names,
    preset_text,
    read_config,
)
from server.config.fitting import FittingSettings, check_fitting, fit_kind
from server.config.plans import make_plan

RUN = "ab" * 16
SOUND = """
seed = 1
[model]
family = "gru_lm"
vocabulary_size = 4
hidden_size = 2
[vocabulary]
path = "words.txt"
size = 4
[training]
learning_rate = 0.5
batch_size = 2
bptt_steps = 3
[privacy]
mode = "none"
clipping_norm = 1.0
[aggregation]
rule = "attentive"
[rounds]
cap = 3
cohort_size = 2
quorum = 1
deadline_s = 10
"""


def changed(before: str, after: str) -> str:
    assert before in SOUND
    return SOUND.replace(before, after)


def test_a_sound_file_is_read_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    text = SOUND + '[evaluation]\nkind = "public"\npublic_text = "public.txt"\n'
    (tmp_path / "federation.toml").write_text(text)

    config = read_config(tmp_path / "federation.toml")

    assert config.rounds.deadline_s == 10.0
    assert config.word_list.path == str(tmp_path / "words.txt")
    assert config.evaluation.public_text == str(tmp_path / "public.txt")
    assert config.store.sqlite_path == tmp_path / "store.sqlite"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("cap = 3", "cap = 3.0", r"Expected `int`, got `float` - at `\$\.rounds\.cap`"),
        ("quorum = 1", "quoroum = 1", r"unknown field `quoroum` - at `\$\.rounds`"),
        ("quorum = 1", "", r"missing required field `quorum` - at `\$\.rounds`"),
        ("cap = 3", 'cap = "3"', r"Expected `int`, got `str` - at `\$\.rounds\.cap`"),
        ('mode = "none"', "", r"missing required field `mode` - at `\$\.privacy`"),
        ('mode = "none"', 'mode = "paper"', r"`randomisation_magnitude` - at `\$\.privacy`"),
        ('mode = "none"', 'mode = "nonne"', r"Invalid value 'nonne' - at `\$\.privacy\.mode`"),
        ("quorum = 1", "quorum = 3", r"cohort_size must be >= quorum 3, got 2; lower quorum"),
        ("cap = 3", "cap = 0", r"cap must be >= 1, got 0 - at `\$\.rounds`"),
        ("deadline_s = 10", "deadline_s = nan", "deadline_s must be > 0 and finite, got nan"),
        ("cohort_size = 2", "", "give either cohort_size or participation_rate"),
        ("clipping_norm = 1.0", "", "set privacy.clipping_norm, or use rule"),
        ("size = 4\n[training]", "size = 5\n[training]", "must equal vocabulary.size 5, got 4"),
        ('path = "words.txt"', 'name = "klingon"', 'name must be "english-10k", got "klingon"'),
        ('path = "words.txt"', "", "give either name or path, and not both"),
        ("seed = 1", "seed = -1", r"seed must be in \[0, 2\^63\), got -1"),
        ("seed = 1", "seed = 1\nsede = 2", "unknown field `sede`"),
        ("seed = 1", "seed = ", "is no TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_key(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(changed(before, after))

    with pytest.raises(ConfigError, match=message) as refusal:
        read_config(path)

    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("[convergence]\npatience = 2", "set evaluation.kind, or remove convergence"),
        ('[evaluation]\nkind = "public"', "public_text belongs to kind"),
        ('[evaluation]\npublic_text = "a.txt"', "public_text belongs to kind"),
        ('[evaluation]\nkind = "devices"', "cohort_size belongs to kind"),
        ('[evaluation]\nkind = "devices"\ncohort_size = 2\nquorum = 3', "must be >= quorum 3"),
        ("[evaluation]\nevery_rounds = 0", "every_rounds must be >= 1, got 0"),
        ('[listen]\ndevices = "localhost"', 'devices must be "host:port"'),
        ('[listen]\ndevices = "localhost:70000"', "port up to 65535"),
        ('[listen]\ndevices = "a:1"\nenrolment = "a:1"', "must differ"),
        ('[listen]\nadmin_socket = ""', "admin_socket must name a file"),
        ('[store]\nurl = "mysql://here"', 'url must start with "sqlite:///" or "postgresql"'),
        ("[store]\nkeep_releases = 0", "keep_releases must be >= 1, got 0"),
        ('[personalisation]\nmethod = "magic"', "Invalid value 'magic'"),
        ('[personalisation]\nmethod = "local"', "sends nothing that could be clipped"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(section: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(SOUND + section, "federation.toml")


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ('uplink = "float16"', 'compression.uplink = "bfloat16"'),
        (
            'uplink = "int8"\nerror_feedback = true\nkeep_fraction = 0.1\nkeep = "random"',
            'compression.keep = "top", or compression.uplink = "int8" or "int4"',
        ),
        (
            'uplink = "int8"\nerror_feedback = true\nrank = 8',
            'compression.keep = "top", or compression.uplink = "int8" or "int4"',
        ),
    ],
)
def test_a_form_that_was_removed_is_refused_with_what_to_use_instead(
    setting: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_config(f"{SOUND}[compression]\n{setting}\n", "here")

    asked = setting.splitlines()[-1]
    assert str(refusal.value) == f"here: compression.{asked} was removed; use {remedy}"


def test_a_misspelt_form_is_not_told_to_be_one_that_was_removed() -> None:
    with pytest.raises(ConfigError, match=r"must be one of bfloat16, int4, int8, none$"):
        parse_config(SOUND + '[compression]\nuplink = "int5"', "here")


CENTRAL = """mode = "central"
noise_multiplier = 1.0
adjacency = "zero-out"
delta = 1e-6
epsilon_budget = 8.0"""
TREE = CENTRAL.replace("central", "ftrl") + "\nmin_separation = 1\nmax_participation = 3"


@pytest.mark.parametrize("mode", [CENTRAL, TREE], ids=["central", "ftrl"])
@pytest.mark.parametrize(
    ("section", "harmless", "message"),
    [
        ("[screening]\nnorm_factor = 4.0", "", "no noise covers; leave it out"),
        (
            '[compression]\nuplink = "int8"\nentropy = "zstd"',
            '[compression]\nuplink = "int8"',
            'compression.entropy must be "none"',
        ),
    ],
    ids=["norm_factor", "zstd"],
)
def test_what_would_show_clients_is_refused_under_a_guarantee_alone(
    mode: str, section: str, harmless: str, message: str
) -> None:
    # Attention is bounded from three places on.
    guaranteed = changed('mode = "none"', mode).replace("cohort_size = 2", "cohort_size = 3")

    parse_config(SOUND + section, "federation.toml")
    parse_config(guaranteed + harmless, "federation.toml")
    with pytest.raises(ConfigError, match=message):
        parse_config(guaranteed + section, "federation.toml")


def test_a_password_is_refused_and_not_repeated() -> None:
    section = '[store]\nurl = "postgresql://sotto:hunter2@localhost/sotto"'

    with pytest.raises(ConfigError, match="url must not hold a password") as refusal:
        parse_config(SOUND + section, "federation.toml")

    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_is_missing_or_binary_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "federation.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"cannot read|is not UTF-8"):
        read_config(path)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_used_and_says_its_source(name: str) -> None:
    config = parse_config(preset_text(name), name)

    plan = make_plan(config, RUN, cohort_size=config.rounds.cohort_size)

    assert decode_plan(plan.encode()) == plan
    assert "# Source:" in preset_text(name)


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError,
        match=r"keyboard, keyboard-central, keyboard-robust, keyboard-tiny.*got 'keybord'",
    ):
        preset_text("keybord")


def test_the_plan_holds_what_devices_need() -> None:
    config = parse_config(SOUND, "federation.toml")
    words = Vocabulary(("<unk>", "<eos>", "good", "morning"))

    plan = make_plan(config, RUN, vocabulary=words)

    assert (plan.run, plan.kind, plan.seed, plan.cohort_size) == (RUN, "train", 1, 2)
    assert plan.vocabulary is not None
    assert plan.vocabulary.name == "words"
    assert plan.vocabulary.sha256 == words.sha256.hex()
    assert plan.training == config.training
    assert plan.privacy == config.privacy


def test_a_plan_is_not_made_for_an_unknown_task() -> None:
    config = parse_config(changed("seed = 1", 'seed = 1\ntask = "next_wrod"'), "federation.toml")

    with pytest.raises(ValueError, match=r"task must be one of .*next_word.*, got 'next_wrod'"):
        make_plan(config, RUN, vocabulary=Vocabulary(("<unk>", "<eos>", "good", "morning")))


def test_a_plan_is_not_made_from_another_word_list(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<unk>\n<eos>\ngood\n")
    (tmp_path / "federation.toml").write_text(SOUND)
    config = read_config(tmp_path / "federation.toml")

    with pytest.raises(ValueError, match="has 3 words, but size is 4; set size"):
        make_plan(config, RUN)

    with pytest.raises(ValueError, match="vocabulary must have 4 words, got 3"):
        make_plan(config, RUN, vocabulary=Vocabulary(("<unk>", "<eos>", "good")))


def test_a_plan_under_a_participation_rate_needs_the_size_of_the_cohort() -> None:
    text = changed("cohort_size = 2", "participation_rate = 0.5")
    config = parse_config(text, "federation.toml")
    words = Vocabulary(("<unk>", "<eos>", "good", "morning"))

    with pytest.raises(ValueError, match="cohort_size must be given"):
        make_plan(config, RUN, vocabulary=words)

    assert make_plan(config, RUN, vocabulary=words, cohort_size=7).cohort_size == 7


def test_public_text_scores_no_model_that_nobody_has() -> None:
    sections = '[evaluation]\nkind = "public"\npublic_text = "a.txt"\n[personalisation]\nmethod = '
    untied = SOUND.replace("[model]", "[model]\ntied = false")

    parse_config(f'{untied}{sections}"ditto"', "federation.toml")
    with pytest.raises(ConfigError, match='method = "fedper"; use "devices"'):
        parse_config(f'{untied}{sections}"fedper"', "federation.toml")


@pytest.mark.parametrize(
    ("personalisation", "message"),
    [
        ('method = "fedprox"', 'method = "fedprox" leaves this model nothing to fit'),
        (
            'method = "ditto"\n[fitting.fit]\nlearning_rate = 0.5',
            "may say no more than epochs",
        ),
        (
            'method = "adapted"\n[fitting.fit]\nepochs = 3',
            "epochs must be 1 with .* got 3: personalisation.epochs says",
        ),
        (
            'method = "pfedhn"\nhypernetwork = { embeddings = "fixed" }',
            'embeddings = "fixed" keeps them',
        ),
        ('method = "pfedhn"\n[fitting]\ndeadline_s = 0', "deadline_s must be > 0"),
    ],
)
def test_fitting_needs_something_of_a_devices_own(personalisation: str, message: str) -> None:
    fitting = "" if "[fitting]" in personalisation else "\n[fitting]"
    mean = SOUND.replace('rule = "attentive"', 'rule = "mean"')

    with pytest.raises(ConfigError, match=message):
        parse_config(f"{mean}[personalisation]\n{personalisation}{fitting}", "federation.toml")


@pytest.mark.parametrize("method", ["adapted", "ditto", "fedper", "pfedme"])
def test_what_a_device_keeps_is_fitted(method: str, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<unk>\n<eos>\na\nb\n")
    text = changed("words.txt", str(tmp_path / "words.txt"))
    text = text.replace("[model]", "[model]\ntied = false").replace("attentive", "mean")
    config = parse_config(f'{text}[personalisation]\nmethod = "{method}"\n[fitting]', "here")

    plan = make_plan(config, RUN, fit_kind(config.personalisation))

    assert plan.kind == "fit_personal"
    assert plan.embedding_fit == EmbeddingFitSettings()
    assert upload_schema(plan).tensors == ()


def test_a_guarantee_forbids_to_fit_only_what_leaves_a_device() -> None:
    central = CentralNoise(
        clipping_norm=1.0,
        noise_multiplier=1.0,
        delta=1e-5,
        epsilon_budget=8.0,
        adjacency="zero-out",
    )
    schema = schema_of(GruLmSettings(vocabulary_size=4, hidden_size=2))

    check_fitting(FittingSettings(), DittoSettings(), schema, central)
    with pytest.raises(ValueError, match="leaves it without noise"):
        check_fitting(FittingSettings(), PFedHnSettings(), schema, central)


GROWING = """
family = "transformer_lm"
vocabulary_size = 4
model_size = 4
head_count = 1
layer_count = 4
feedforward_size = 4
context_size = 8
"""
GRU = 'family = "gru_lm"\nvocabulary_size = 4\nhidden_size = 2\n'
GROWTH = "[growth]\ntarget_layer_count = 4\nstage_count = 2\nround_count = 6\n"


def test_a_model_that_grows_has_a_plan_for_each_stage(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<unk>\n<eos>\na\nb\n")
    text = changed(GRU, GROWING).replace("words.txt", str(tmp_path / "words.txt"))
    config = parse_config(text + GROWTH, "here")

    plans = [make_plan(config, RUN, round_number=number) for number in (1, 3, 4, 99)]

    assert [plan.growth_stage for plan in plans] == [1, 1, 2, 2]
    assert [plan.model for plan in plans[1:3]] == [config.model_at(1), config.model]
    assert plans[0].schema_sha256 == config.schema_at(1).sha256.hex()
    assert plans[2].schema_sha256 == config.schema.sha256.hex()
    assert config.schema_at(1).payload_bytes < config.schema.payload_bytes


def test_the_schedule_is_a_part_of_the_run() -> None:
    text = changed(GRU, GROWING)
    digests = {
        parse_config(text + growth, "here").run_digest
        for growth in ("", GROWTH, GROWTH.replace("= 6", "= 8"), GROWTH + 'start = "random"\n')
    }

    assert len(digests) == 4
    plain = parse_config(text, "here")
    assert plain.run_digest == plain.schema.sha256


FTRL = """mode = "ftrl"
noise_multiplier = 1.0
delta = 1e-5
epsilon_budget = 1000.0
adjacency = "zero-out"
min_separation = 1
max_participation = 3
"""


@pytest.mark.parametrize(
    ("model", "growth", "privacy", "message"),
    [
        (GRU, GROWTH, None, 'family "gru_lm" has none: a new layer would replace what is below'),
        (GROWING, GROWTH.replace("= 4", "= 8"), None, r"must be model\.layer_count 4, got 8"),
        (GROWING, GROWTH.replace("_count = 2", "_count = 3"), None, "multiple of stage_count 3"),
        (GROWING, GROWTH + 'start = "big"\n', None, r"Invalid enum value 'big' - at `\$.growth"),
        (GROWING, GROWTH, FTRL, 'growth must be absent with privacy.mode = "ftrl"'),
        (
            GROWING,
            GROWTH,
            'mode = "none"\nclipping = "per-layer"\nlayer_ratios = [' + "1.0, " * 49 + "]\n",
            "layer_ratios must be empty with growth",
        ),
    ],
)
def test_growth_that_cannot_be_kept_is_refused(
    model: str, growth: str, privacy: str | None, message: str
) -> None:
    text = changed(GRU, model)
    if privacy is not None:
        text = text.replace('mode = "none"\n', privacy)
        text = text.replace('rule = "attentive"', 'rule = "mean"\nweighting = "equal"')

    with pytest.raises(ConfigError, match=message):
        parse_config(text + growth, "here")


@pytest.mark.parametrize(
    "privacy",
    [
        'mode = "none"\nclipping = "per-layer"\n',
        'mode = "central"\nnoise_multiplier = 1.0\ndelta = 1e-5\nepsilon_budget = 1000.0\n'
        'adjacency = "zero-out"\n',
        'mode = "local"\nnoise_multiplier = 1.0\ndelta = 1e-5\nepsilon_budget = 1000.0\n',
        'mode = "paper"\nrandomisation_magnitude = 0.1\n',
    ],
)
def test_growth_goes_with_every_mode_whose_state_has_no_dimension(privacy: str) -> None:
    text = changed(GRU, GROWING).replace('mode = "none"\n', privacy)
    text = text.replace("cohort_size = 2", "cohort_size = 3")

    assert parse_config(text + GROWTH, "here").growth is not None
