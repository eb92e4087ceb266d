"""Read a federation's TOML file, strictly: a refusal names file and key. Presets are such files."""

from importlib import resources
from pathlib import Path
from typing import ClassVar

import msgspec

from models.plugins.names import PluginError
from privacy.foundation.bounded_files import LARGEST_SETTINGS_BYTES, read_bounded
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, parse_toml
from server.config.personalisation_rules import check_deployable
from server.config.plugin_rules import load_named
from server.config.rules import RULES
from server.config.settings import FederationSettings
from server.config.shipped_starts import NO_START, rooted_start


class ConfigError(ValueError):
    """Raised when a federation's settings cannot be used; names the file and the key."""


class FederationConfig(FederationSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a federation, checked together by ``server.config.rules``."""

    RULES: ClassVar = RULES

    def __post_init__(self) -> None:
        if self.start_from == NO_START:
            msgspec.structs.force_setattr(self, "start_from", None)
        for check in self.RULES:
            check(self)


def read_config(path: Path) -> FederationConfig:
    """Read a federation's file; paths in it become relative to the file's folder.

    Raises:
        ConfigError: If the file cannot be read or its settings cannot be used.
    """
    return rooted(parse_config(settings_text(path), str(path)), path.parent.absolute())


def settings_text(path: Path) -> str:
    """Return the text of a file of settings.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        return read_bounded(path, LARGEST_SETTINGS_BYTES).decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None


def parse_config(text: str, source: str) -> FederationConfig:
    """Decode TOML text strictly; ``source`` is the file's name for error messages.

    Raises:
        ConfigError: If the text is no TOML or its settings cannot be used.
    """
    try:
        tables = parse_toml(text)
        load_named(tables)
        config = decoded(tables, FederationConfig)
    except TomlError as error:
        raise ConfigError(f"{source} is no TOML: {error}") from None
    except (msgspec.ValidationError, PluginError) as error:
        raise ConfigError(f"{source}: {error}") from None
    try:
        check_deployable(config.personalisation)
    except ValueError as error:
        raise ConfigError(f"{source}: {error} - at `$.personalisation`") from None
    return config


def preset_names() -> list[str]:
    """Return the presets that ship with sotto, sorted."""
    presets = resources.files("server").joinpath("presets")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in presets.iterdir()
        if entry.name.endswith(".toml")
    )


def preset_text(name: str) -> str:
    """Return a preset as TOML text, comments included.

    Raises:
        ConfigError: If there is no such preset; lists those there are.
    """
    if name not in preset_names():
        raise ConfigError(f"preset must be one of {', '.join(preset_names())}, got {name!r}")
    preset = resources.files("server").joinpath("presets", f"{name}.toml")
    return preset.read_text(encoding="utf-8")


def rooted(config: FederationConfig, folder: Path) -> FederationConfig:
    """Return the settings with every path in them absolute, as it lies in ``folder``."""
    words, evaluation = config.vocabulary, config.evaluation
    if words is not None and words.path is not None:
        words = msgspec.structs.replace(words, path=str(folder / words.path))
    if evaluation.public_text is not None:
        text = str(folder / evaluation.public_text)
        evaluation = msgspec.structs.replace(evaluation, public_text=text)
    return msgspec.structs.replace(
        config,
        start_from=rooted_start(config.start_from, folder),
        vocabulary=words,
        evaluation=evaluation,
        store=config.store.rooted(folder),
    )
