"""Read what a simulation runs: a federation's file with two more tables, ``[data]``, ``[attack]``.

Only a simulation can have ``vocabulary.path = "training-split"``, which counts the words of the
training text, and ``evaluation.public_text = "valid"``, which measures on the validation split.

A preset or file whose ``extends`` names a preset has that preset's settings, changed by its own.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from models.plugins.loaded import has_part
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.vector.schema import RELEASED
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, parse_toml
from server.config.federation import ConfigError, FederationConfig, settings_text
from server.config.plugin_rules import load_named
from server.config.rules import RULES, check_public_text
from simulation.config.attack import AttackSettings, check_attack
from simulation.config.data import DataSettings
from simulation.config.overrides import Override, with_setting

TRAINING_SPLIT = "training-split"
VALIDATION_SPLIT = "valid"
_TASKS_WITH_OWN_TESTS = ("next_character", "image_classification", "speech", "vocoder")


class SimulationConfig(FederationConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A federation's settings and its simulated population; without ``attack`` all are honest."""

    # The text to follow a run by is the data set's own, and every task has figures.
    RULES: ClassVar = tuple(rule for rule in RULES if rule is not check_public_text)

    data: DataSettings
    attack: AttackSettings | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.data.check_task(self.task)
        if self.evaluation.kind == "devices" and self.evaluation.noise is None:
            raise ValueError(
                'evaluation.kind must be "none" or "public" in a simulation, got "devices"; under '
                "a guarantee it may be, with evaluation.noise"
            )
        path = None if self.vocabulary is None else self.vocabulary.path
        if self.privacy.guarantees_privacy and path == TRAINING_SPLIT:
            raise ValueError(
                f'vocabulary.path = "{TRAINING_SPLIT}" counts words of private text, which no '
                "guarantee covers; use a public list"
            )
        if self.evaluation.public_text not in (None, VALIDATION_SPLIT):
            raise ValueError(
                f'evaluation.public_text must be "{VALIDATION_SPLIT}" in a simulation, '
                f"got {self.evaluation.public_text!r}"
            )

        if self.data.keystrokes and self.task != "next_word":
            raise ValueError(
                f'data.keystrokes needs task = "next_word", which types words, got "{self.task}"'
            )
        if self.attack is not None:
            size = self.rounds.cohort_size
            check_attack(self.attack, self.task, self.aggregation, size, privacy=self.privacy)
        self._check_measures()

    @property
    def _tests_are_own(self) -> bool:
        return self.task in _TASKS_WITH_OWN_TESTS or has_part(Part.TASKS, self.task)

    def _check_measures(self) -> None:
        """Check that the final measurements are possible with this method, split and task."""
        data, method = self.data, self.personalisation.method
        is_own = data.split == "by-user-time" or self._tests_are_own
        is_whole = len(self.schema.with_roles(*RELEASED).tensors) == len(self.schema.tensors)
        if data.keystrokes and not is_own and not is_whole:
            raise ValueError(
                "data.keystrokes types others' text with the released model, and with method "
                f'"{method}" that is no whole one; set split = "by-user-time" or keystrokes = false'
            )
        if self.attack is not None and self.attack.kind == "backdoor" and not is_whole:
            raise ValueError(
                'attack.kind = "backdoor" is measured in the released model, and with method '
                f'"{method}" that is no whole one; use another method or kind'
            )
        is_cut = self.task == "next_character" or has_part(Part.TASKS, self.task)
        holds_text_out = data.split == "by-user-time" or is_cut
        if self.evaluation.kind == "devices" and not holds_text_out:
            raise ValueError(
                'evaluation.kind = "devices" scores clients on text that they hold out themselves; '
                'set data.split = "by-user-time" with task = "next_word", or use task = '
                f'"next_character"; got split = "{data.split}" and task = "{self.task}"'
            )
        if data.fine_tuning_epochs and not is_own:
            raise ValueError(
                "data.fine_tuning_epochs scores clients on examples of their own; "
                f'set split = "by-user-time", got "{data.split}"'
            )
        if data.fine_tuning_epochs and not is_whole:
            raise ValueError(
                "data.fine_tuning_epochs starts from the released model, and with method "
                f'"{method}" that is no whole one; leave it out'
            )


# TOML tables hold values of any TOML type.
def read_tables(preset_or_file: str) -> dict[str, Any]:
    """Return the TOML tables of a preset, or of a file if the name ends in ``.toml``.

    Raises:
        ConfigError: If there is no such preset or file, it is no TOML, or extends no preset.
    """
    if preset_or_file.endswith(".toml"):
        text = settings_text(Path(preset_or_file))
    else:
        text = preset_text(preset_or_file)
    try:
        tables = parse_toml(text)
    except TomlError as error:
        raise ConfigError(f"{preset_or_file} is no TOML: {error}") from None
    return extended(tables, preset_or_file)


def extended(tables: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return TOML tables with the settings of the preset that they extend, if they extend one.

    Raises:
        ConfigError: If they extend no preset; the text names ``source``.
    """
    own = dict(tables)
    if "extends" not in own:
        return own
    return _changed(_extended(source, own.pop("extends")), own)


def config_from(tables: Mapping[str, Any], source: str) -> SimulationConfig:
    """Decode TOML tables, strictly; error messages name ``source``, the preset or file.

    Raises:
        ConfigError: If a setting is unknown, missing, of the wrong type or out of range.
    """
    if "data" not in tables:
        raise ConfigError(
            f"{source}: data.dataset must say whose text stands in for the devices': give a table "
            "[data], or --set data.dataset=folder with --data FOLDER"
        )
    try:
        load_named(tables)
        return decoded(tables, SimulationConfig)
    except (msgspec.ValidationError, PluginError) as error:
        raise ConfigError(f"{source}: {error}") from None


def with_settings(tables: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """Return the tables with single settings changed.

    Raises:
        ValueError: If an override gives more than one value.
    """
    changed = dict(tables)
    for override in overrides:
        if len(override.values) != 1:
            raise ValueError(
                f"{override.name} must have one value here, got {len(override.values)}; "
                "sotto-simulate sweep runs over lists"
            )
        changed = with_setting(changed, override.path, override.values[0])
    return changed


def preset_names() -> list[str]:
    """Return the presets that ship with sotto, sorted."""
    names = (entry.name for entry in resources.files("simulation").joinpath("presets").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return a preset as TOML text, comments included.

    Raises:
        ConfigError: If there is no such preset; lists those that read alike, or all there are.
    """
    _refuse_split(name)
    if name not in preset_names():
        raise ConfigError(
            f"preset must be one of {_meant(name)}, or a file ending in .toml, got {name!r}"
        )
    preset = resources.files("simulation").joinpath("presets", f"{name}.toml")
    return preset.read_text(encoding="utf-8")


def _refuse_split(name: str) -> None:
    """Say what stands for a split of LJ Speech, each of which was a preset once."""
    split = re.fullmatch(r"(fedd?t-ljspeech)-(?:([2-4])|([1-9])-([1-9])-([1-9]))", name)
    if split is None:
        return
    base, clients, *sizes = split.groups()
    ratio = [int(size) for size in sizes] if clients is None else [1] * int(clients)
    settings = [f"data.ratio={ratio}".replace(" ", ""), f"rounds.quorum={len(ratio)}"]
    if clients is not None:
        settings.append(f"data.clips_per_speaker={500 + 2520 * len(ratio)}")
    told = " ".join(f"--set '{setting}'" for setting in settings)
    raise ConfigError(f"preset {name} is now {base} with {told}")


def _meant(name: str) -> str:
    alike = get_close_matches(name, preset_names())
    if alike:
        return f"those that `sotto-simulate presets` lists, such as {', '.join(alike)}"
    return ", ".join(preset_names())


def _extended(preset_or_file: str, base: object) -> dict[str, Any]:
    """Return the tables of the preset that is extended; one that extends itself is no preset."""
    _refuse_split(str(base))
    if base == preset_or_file or base not in preset_names():
        raise ConfigError(
            f"{preset_or_file}: extends must name another preset (sotto-simulate presets lists "
            f"them), got {base!r}"
        )
    return read_tables(str(base))


def _changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with some values replaced; what is a table in both is joined."""
    joined = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(joined.get(key), dict)
        joined[key] = _changed(joined[key], value) if both else value
    return joined
