"""The device's floor: what its owner accepts at the least, whatever the coordinator asks for.

The coordinator writes the plan, so a captured or misconfigured one could switch clipping or noise
off. The floor file stays on the device, and a plan below it is refused before anything is fetched.
"""

import math
import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from edge_client.owner.masked_floor import below_masks
from edge_client.owner.noise_floor import below_noise, noises_counts
from models.plugins.names import PluginName, plugin_names
from privacy.accounting.checked_values import check_delta, check_epsilon, check_noise_multiplier
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, read_toml
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.settings import noises_sums

if TYPE_CHECKING:
    from models.plan.plan import Plan

FloorCode = Literal[
    "floor_mode",
    "floor_clipping_norm",
    "floor_noise_multiplier",
    "floor_epsilon",
    "floor_delta",
    "floor_kind",
    "floor_cohort",
    "floor_model_family",
    "floor_method",
    "floor_data_folder",
    "floor_example_privacy",
    "floor_authority",
    "floor_sums",
    "floor_helper",
    "floor_plugin",
]


_OF_PLUGIN = "plugin"
"""Tag of a model that a plugin has (``models.settings.plugin``)."""


class FloorError(ValueError):
    """Raised when the floor file cannot be used; names the file and the key."""


class PlanBelowFloorError(Exception):
    """Raised when a plan asks for what the owner does not accept; ``code`` names the rule."""

    def __init__(self, code: FloorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class ExampleBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that example-level privacy may cost over all rounds that this device ever trains.

    Attributes:
        epsilon: That of one sentence.
        delta: The owner's own, whatever the plan says.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)


class Floor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least that a device accepts; what decides privacy has no default.

    Attributes:
        modes: Noise modes of plans, such as ``central``.
        largest_clipping_norm: Largest L2 norm that a plan may clip updates to, in parameter units;
            ``any`` accepts every norm and no clipping.
        least_noise_multiplier: Least noise standard deviation over sensitivity that a plan may
            name; None also accepts plans without calibrated noise.
        largest_epsilon: Largest ε that a plan may name for the whole run; None as above.
        largest_delta: Largest δ of that budget; None as above.
        kinds: Kinds of plan; None accepts any.
        least_cohort: Fewest clients that a round is drawn for and, unless ``central`` or ``ftrl``
            noises a mean over all places, closes with; under ``masked`` also the fewest of a sum.
        model_families: Families of models, without those of plugins.
        plugins: Packages that this device imports and accepts models, tasks and methods of, each
            with its version; a plan that names another is refused.
        methods: Personalisation methods; None accepts any.
        data_folders: Absolute folders that the data may lie in; None accepts any.
        authorities: SHA-256 fingerprints, 64 hex digits, of the authorities that may certify the
            coordinator; None accepts the one enrolled with and its successors.
        bytes_a_day: Most bytes moved in a UTC day, up and down together; None accepts any.
        example_privacy: Accept only plans that hide each sentence, up to this budget; None also
            accepts others.
        helpers: SHA-256 of the wrapping certificates, 64 hex digits, of the helpers that may hold
            this device's masks; None accepts no plan of mode ``masked``.
        sums: Accept only plans under which the coordinator learns noised sums; None also accepts
            others.
    """

    modes: frozenset[str]
    largest_clipping_norm: float | Literal["any"]
    least_noise_multiplier: float | None = None
    largest_epsilon: float | None = None
    largest_delta: float | None = None
    kinds: frozenset[str] | None = None
    least_cohort: int
    model_families: frozenset[str]
    plugins: tuple[str, ...] = ()
    methods: frozenset[str] | None = None
    data_folders: tuple[str, ...] | None = None
    authorities: frozenset[str] | None = None
    bytes_a_day: int | None = None
    example_privacy: ExampleBudget | None = None
    helpers: frozenset[str] | None = None
    sums: Literal["masked"] | None = None

    def __post_init__(self) -> None:
        norm = self.largest_clipping_norm
        if norm != "any" and not 0 < norm < math.inf:
            raise ValueError(f"largest_clipping_norm must be > 0 and finite, got {norm}")
        if self.least_noise_multiplier is not None:
            check_noise_multiplier(self.least_noise_multiplier, "least_noise_multiplier")
        if self.largest_epsilon is not None:
            check_epsilon(self.largest_epsilon, "largest_epsilon")
        if self.largest_delta is not None:
            check_delta(self.largest_delta, "largest_delta")
        if self.least_cohort < 1:
            raise ValueError(f"least_cohort must be >= 1, got {self.least_cohort}")
        if self.bytes_a_day is not None and self.bytes_a_day < 0:
            raise ValueError(f"bytes_a_day must be >= 0, got {self.bytes_a_day}")
        plugin_names(self.plugins)
        for name in ("authorities", "helpers"):
            for digest in getattr(self, name) or ():
                if not re.fullmatch("[0-9a-f]{64}", digest):
                    raise ValueError(
                        f"{name} must have 64 lower-case hex digits each, got {digest!r}"
                    )
        for folder in self.data_folders or ():
            if not Path(folder).is_absolute():
                raise ValueError(f"data_folders must be absolute paths, got {folder!r}")


def read_floor(path: Path) -> Floor:
    """Read the floor file.

    Raises:
        FloorError: If it is missing or cannot be used: a device without a floor takes no part.
    """
    try:
        return decoded(read_toml(path), Floor)
    except FileNotFoundError:
        raise FloorError(
            f"{path} is missing: it says what this device accepts at the least; enrolment "
            "writes one to start from"
        ) from None
    except OSError as error:
        raise FloorError(f"{path} cannot be read: {error.strerror}") from None
    except (TomlError, msgspec.ValidationError) as error:
        raise FloorError(f"{path}: {error}") from None


def check_plan(plan: "Plan", floor: Floor) -> None:
    """Accept a plan that is at or above the floor.

    Raises:
        PlanBelowFloorError: If it is below; the code says by which rule.
    """
    mode, family = _tag(plan.privacy), _tag(plan.model)
    check_plugins_named(plugin_names(plan.named_plugins), floor)
    if floor.kinds is not None and plan.kind not in floor.kinds:
        raise PlanBelowFloorError(
            "floor_kind",
            f"this device takes no plan of kind {plan.kind}; its owner can let it, in floor.toml",
        )
    if mode not in floor.modes:
        raise PlanBelowFloorError(
            "floor_mode",
            f"this device does not accept noise mode {mode}; its owner can, in floor.toml",
        )
    leaves = plan.kind in ("evaluate", "fit_embedding")
    if leaves and plan.privacy.guarantees_privacy and not noises_counts(plan):
        # A coordinator with a guarantee never asks: only a captured one would.
        sent = "counts of an evaluation leave" if plan.kind == "evaluate" else "an embedding leaves"
        raise PlanBelowFloorError("floor_mode", f"{sent} without noise, which {mode} forbids")
    # Clipping, noise and the crowd.
    norm, largest = plan.privacy.clipping_norm, floor.largest_clipping_norm
    if largest != "any" and not (norm is not None and norm <= largest):
        raise PlanBelowFloorError(
            "floor_clipping_norm",
            f"clipping_norm must be <= {largest} for this device, got {_told(norm)}; its owner can "
            "raise largest_clipping_norm, in floor.toml",
        )
    below = below_noise(
        plan,
        least_noise_multiplier=floor.least_noise_multiplier,
        largest_epsilon=floor.largest_epsilon,
        largest_delta=floor.largest_delta,
    )
    if below is not None:
        raise PlanBelowFloorError(*below)
    _check_crowd(plan, floor)
    unmasked = below_masks(plan, sums=floor.sums, least_cohort=floor.least_cohort)
    if unmasked is not None:
        raise PlanBelowFloorError(*unmasked)
    # The model and the method; a plugin's family is accepted with the plugin.
    if family != _OF_PLUGIN and family not in floor.model_families:
        raise PlanBelowFloorError(
            "floor_model_family",
            f"this device does not train models of family {family}; its owner can add it to "
            "model_families, in floor.toml",
        )
    method = plan.personalisation.method
    if floor.methods is not None and method not in floor.methods:
        raise PlanBelowFloorError(
            "floor_method",
            f"this device takes no part in personalisation method {method}; its owner can let it, "
            "in floor.toml",
        )
    _check_example_privacy(plan, floor)


def check_plugins_named(plugins: Sequence[PluginName], floor: Floor) -> None:
    """Accept plugins of a plan that the floor names in the same version.

    Raises:
        PlanBelowFloorError: With code ``floor_plugin`` if it does not name one.
    """
    accepted = plugin_names(floor.plugins)
    for plugin in plugins:
        if plugin not in accepted:
            others = [own.version for own in accepted if own.name == plugin.name]
            named = f"the floor names version {others[0]}" if others else "the floor names none"
            raise PlanBelowFloorError(
                "floor_plugin",
                f"the plan needs plugin {plugin}, and {named}; its owner, who must trust it, can "
                f'install it and set plugins = ["{plugin}"], in floor.toml',
            )


def _check_crowd(plan: "Plan", floor: Floor) -> None:
    least, crowd = floor.least_cohort, plan.cohort_size
    if not isinstance(plan.privacy, CentralNoise | TreeNoise) or noises_sums(plan.privacy):
        # An empty place hides nobody here. A plan that does not say with how few a round may close,
        # as of an earlier coordinator, lets it close with one.
        crowd = min(crowd, 1 if plan.quorum is None else plan.quorum)
    if crowd < least:
        quorum = "none" if plan.quorum is None else str(plan.quorum)
        raise PlanBelowFloorError(
            "floor_cohort",
            f"cohort_size, and the quorum without places that a guarantee fixes, must be >= {least}"
            f" for this device, got {plan.cohort_size} and {quorum}; its owner can lower "
            "least_cohort, in floor.toml",
        )


def _check_example_privacy(plan: "Plan", floor: Floor) -> None:
    """Refuse what would leave of the text and hides no sentence; a fit that stays does not."""
    hides = plan.kind == "train" and plan.training.example_privacy is not None
    if floor.example_privacy is not None and not hides and plan.kind != "fit_personal":
        raise PlanBelowFloorError(
            "floor_example_privacy",
            "this device trains only where the plan has example_privacy, and sends nothing else; "
            f"got a plan of kind {plan.kind} without; its owner can remove [example_privacy], in "
            "floor.toml",
        )


def check_data(data: Path, floor: Floor) -> None:
    """Accept data that lies where the floor allows, links followed.

    Raises:
        PlanBelowFloorError: With code ``floor_data_folder`` if it lies elsewhere.
    """
    if floor.data_folders is None:
        return
    real = data.resolve()
    if not any(real.is_relative_to(Path(folder).resolve()) for folder in floor.data_folders):
        raise PlanBelowFloorError(
            "floor_data_folder",
            f"the data must lie in one of {', '.join(floor.data_folders)}, got {real}; add its "
            "folder to data_folders, in floor.toml",
        )


def check_authority(fingerprint: str, authorities: Container[str] | None) -> None:
    """Accept an authority, by its fingerprint in hex, that the owner has not ruled out.

    Raises:
        PlanBelowFloorError: With code ``floor_authority`` if the floor names others alone.
    """
    if authorities is not None and fingerprint not in authorities:
        raise PlanBelowFloorError(
            "floor_authority",
            f"the authority {fingerprint} may not certify this device's coordinator; its owner can "
            "add it to authorities, in floor.toml",
        )


def check_helper(fingerprint: str | None, helpers: Container[str] | None) -> None:
    """Accept a helper, by its wrapping certificate's SHA-256 in hex, that the owner has pinned.

    Raises:
        PlanBelowFloorError: With code ``floor_helper`` if the floor names none or others, or a plan
            comes without a helper.
    """
    if fingerprint is None or helpers is None or fingerprint not in helpers:
        told = "none" if fingerprint is None else fingerprint
        raise PlanBelowFloorError(
            "floor_helper",
            f"the helper that holds this device's masks must be one of its floor, got {told}; its "
            "owner, who knows who runs it, can add it to helpers, in floor.toml",
        )


def _told(value: float | None) -> str:
    return "none" if value is None else str(value)


def _tag(settings: msgspec.Struct) -> str:
    return str(settings.__struct_config__.tag)
