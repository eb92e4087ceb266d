"""The plugins that a plan needs on a device, which it names with their versions. No torch."""

from collections.abc import Sequence

import msgspec

from models.plan.bounds import MOST_PLAN_BYTES
from models.plan.word_rules import TASKS_NEED_WORDS
from models.plugins.loaded import check_loaded, check_named, has_part, provider_of
from models.plugins.names import PluginName, plugin_names
from models.plugins.parts import Part
from models.settings.personalisation import PersonalisationSettings, PluginMethod
from models.settings.plugin import PluginModel
from privacy.foundation.strict_json import decode_json


class _Names(msgspec.Struct):
    plugins: tuple[str, ...] = ()


def plugins_in(encoded: bytes) -> tuple[PluginName, ...]:
    """Return the plugins that a plan names, before anything else of it is understood.

    Raises:
        ValidationError: msgspec's, if it is no plan.
        PluginError: If one is no name.
    """
    return plugin_names(decode_json(encoded, _Names, at_most=MOST_PLAN_BYTES).plugins)


def needed_plugins(
    model: msgspec.Struct, task: str, personalisation: PersonalisationSettings
) -> tuple[str, ...]:
    """Return the plugins that devices need for a model, a task and a method, as a plan has them.

    Raises:
        PluginError: If no loaded plugin has one of them.
    """
    needed = {provider_of(part, own) for part, own in _asked(model, task, personalisation)}
    return tuple(map(str, sorted(needed)))


def check_plugins(
    plugins: Sequence[str],
    model: msgspec.Struct,
    task: str,
    personalisation: PersonalisationSettings,
) -> None:
    """Check that the plugins named are loaded, and that no part is of another one.

    Raises:
        PluginError: If not; says what to do.
    """
    names = plugin_names(plugins)
    check_loaded(names)
    for part, own in _asked(model, task, personalisation):
        check_named(part, own, names)


def _asked(
    model: msgspec.Struct, task: str, personalisation: PersonalisationSettings
) -> list[tuple[Part, str]]:
    asked: list[tuple[Part, str]] = []
    if isinstance(model, PluginModel):
        asked.append((Part.MODELS, model.name))
    # A task that nobody has is refused where it is looked up, by name.
    if task not in TASKS_NEED_WORDS and has_part(Part.TASKS, task):
        asked.append((Part.TASKS, task))
    if isinstance(personalisation, PluginMethod):
        asked.append((Part.PERSONALISATION, personalisation.name))
    return asked
