"""The ways in which a device's model can differ from everyone's, with the settings of each.

``method`` picks the kind: a tagged union, one struct a method. Defaults are the papers' values.

References:
    [FedProx] Li et al., MLSys 2020, arXiv:1812.06127.
    [FedPer] Arivazhagan et al., 2019, arXiv:1912.00818.
    [FedRep] Collins et al., ICML 2021, arXiv:2102.07078.
    [FedBN] Li et al., ICLR 2021, arXiv:2102.07623.
    [pFedMe] T. Dinh et al., NeurIPS 2020, arXiv:2006.08848.
    [pFedHN] Shamsian et al., ICML 2021, arXiv:2103.04628.
    [pFedGP] Achituve et al., NeurIPS 2021, arXiv:2106.15482.
    [FedRoD] Chen and Chao, ICLR 2022, arXiv:2107.00778.
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572.
    [kNN-Per] Marfoq et al., ICML 2022, arXiv:2111.09360.
    [Ditto] Li et al., ICML 2021, arXiv:2012.04221.
"""

from typing import Any, Literal

import msgspec

from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.bounds import check_at_least, check_positive
from models.settings.gaussian_process import GaussianProcessSettings
from models.settings.hypernetwork import HypernetworkSettings
from models.settings.plugin import MethodPart, own_settings, plugin_speaks
from models.vector.schema import Schema


class _Method(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="method"
):
    @property
    def method(self) -> str:
        """Return the method's name, as it stands in a file."""
        return str(self.__struct_config__.tag)


class GlobalSettings(_Method, frozen=True, kw_only=True, tag="global"):
    """One model for everyone: FedAvg where the rule is the mean."""


class LocalSettings(_Method, frozen=True, kw_only=True, tag="local"):
    """Every client by itself: every tensor is personal and nothing is sent. For simulations."""


class FedProxSettings(_Method, frozen=True, kw_only=True, tag="fedprox"):
    """Training that stays near the received parameters ([FedProx]).

    Attributes:
        proximal_strength: μ of μ/2·|θ - θ_received|²; [FedProx] tries 0.001 to 1.
    """

    proximal_strength: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self, "proximal_strength")


class FedPerSettings(_Method, frozen=True, kw_only=True, tag="fedper"):
    """The head is personal and is trained together with the rest ([FedPer])."""


class FedRepSettings(_Method, frozen=True, kw_only=True, tag="fedrep"):
    """The head is personal: the last local epoch trains the body, the rest the head ([FedRep])."""


class FedBnSettings(_Method, frozen=True, kw_only=True, tag="fedbn"):
    """Batch norm is personal, running statistics included ([FedBN])."""


class PFedMeSettings(_Method, frozen=True, kw_only=True, tag="pfedme"):
    """A personal model that is drawn to the client's copy of the global one ([pFedMe]).

    ``training.learning_rate`` is η, the step of that copy.

    Attributes:
        attraction: λ; 15 in [pFedMe].
        inner_steps: Steps of the personal model for each batch; K, 5 in [pFedMe].
        inner_learning_rate: Their step size; 0.09 in [pFedMe], 0.01 on CIFAR.
    """

    attraction: float = 15.0
    inner_steps: int = 5
    inner_learning_rate: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self, "attraction", "inner_learning_rate")
        check_at_least(self, 1, "inner_steps")


class PFedHnSettings(_Method, frozen=True, kw_only=True, tag="pfedhn"):
    """A hypernetwork makes every client's whole model ([pFedHN]).

    Attributes:
        hypernetwork: The hypernetwork, of [pFedHN]'s width, a linear layer a tensor, and its clip.
    """

    hypernetwork: HypernetworkSettings = HypernetworkSettings(
        hidden_size=100, output="literal", gradient_clipping_norm=50.0
    )


class PFedGpSettings(_Method, frozen=True, kw_only=True, tag="pfedgp"):
    """A tree of Gaussian processes on shared features classifies for each client ([pFedGP]).

    Attributes:
        gaussian_process: Kernel and sampling.
        inner_steps: Steps on the client's whole data in a round; 1 on CIFAR-100, 3 on CIFAR-10.
    """

    gaussian_process: GaussianProcessSettings = GaussianProcessSettings()
    inner_steps: int = 1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "inner_steps")


class FedRodSettings(_Method, frozen=True, kw_only=True, tag="fedrod"):
    """A generic head by balanced softmax, and a personal head that adds to it ([FedRoD], linear).

    Attributes:
        personal_learning_rate: Step size of the personal head's plain SGD; absent means
            ``training.learning_rate``.
    """

    personal_learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_positive(self, "personal_learning_rate")


class VanillaSettings(_Method, frozen=True, kw_only=True, tag="vanilla"):
    """Attention's projections stay on the device; [FedTP]'s vanilla personalisation."""


class NeighbourSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a client's nearest training examples join its prediction ([kNN-Per], [FedTP]).

    Attributes:
        count: Neighbours that vote; k.
        share: Share of their vote in the prediction, in [0, 1]; the network has the rest.
        capacity: Share of the client's training examples that are stored, in (0, 1].
    """

    count: int = 10
    share: float = 0.6
    capacity: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "count")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be in [0, 1], got {self.share}")
        if not 0 < self.capacity <= 1:
            raise ValueError(f"capacity must be in (0, 1], got {self.capacity}")


class FedTpSettings(_Method, frozen=True, kw_only=True, tag="fedtp"):
    """A hypernetwork makes every client's attention projections ([FedTP]).

    Attributes:
        hypernetwork: The hypernetwork and its optimiser.
        head: ``shared`` as published; ``personal`` is FedTP+FedPer, ``balanced`` FedTP+FedRoD.
        neighbours: Set for FedTP+kNN; they vote beside one head, so not with ``balanced``.
        personal_learning_rate: As in ``fedrod``, for ``head = "balanced"``.
    """

    hypernetwork: HypernetworkSettings = HypernetworkSettings()
    head: Literal["shared", "personal", "balanced"] = "shared"
    neighbours: NeighbourSettings | None = None
    personal_learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_positive(self, "personal_learning_rate")
        if self.neighbours is not None and self.head == "balanced":
            raise ValueError(
                'neighbours vote beside one head; set head = "shared" or "personal", got "balanced"'
            )


class DittoSettings(_Method, frozen=True, kw_only=True, tag="ditto"):
    """A personal model beside the global one, held near it by a proximal term ([Ditto]).

    Attributes:
        proximal_strength: λ of λ/2·|v - θ_received|²; [Ditto] tries 0.05 to 2.
    """

    proximal_strength: float = 0.1

    def __post_init__(self) -> None:
        check_positive(self, "proximal_strength")


class AdaptedSettings(_Method, frozen=True, kw_only=True, tag="adapted"):
    """Everyone's model, which each device trains on by itself and keeps if it does better.

    A round trains and sends as method ``global`` does. The device's own newest text or clips
    decide.

    Attributes:
        epochs: Most passes over the device's own data; fewer where one more did not help.
        learning_rate: Step size of those passes; far below that of rounds, whose updates are
            averaged. The default is for word models under SGD with clipped gradients.
        first_round: Round from which devices adapt. Before it a model that still learns fast would
            make each device's own worthless by the next round.
    """

    epochs: int = 4
    learning_rate: float = 1.0
    first_round: int = 1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "epochs", "first_round")
        check_positive(self, "learning_rate")


class PluginMethod(_Method, frozen=True, kw_only=True, tag="plugin"):
    """A method that a plugin has in ``sotto.personalisation``: which tensors a person keeps.

    Attributes:
        name: The method's name in the plugin.
        settings: Its settings, as the plugin's own struct has them.
    """

    name: str
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def method(self) -> str:
        """Return the method's name in the plugin."""
        return self.name

    @property
    def own(self) -> MethodPart:
        """Return the settings as the plugin's own struct; PluginError if they are not."""
        settings: MethodPart = own_settings(Part.PERSONALISATION, self.name, self.settings)
        return settings

    def personal_names(self, schema: Schema) -> tuple[str, ...]:
        """Return the names of the tensors that a person keeps.

        Raises:
            PluginError: If the plugin is broken, or names tensors that the model does not have.
        """
        own = self.own
        with plugin_speaks(Part.PERSONALISATION, self.name):
            names = tuple(own.personal_names(schema))
        foreign = [name for name in names if name not in schema.slices]
        if foreign:
            raise PluginError(
                f"{self.name} of {Part.PERSONALISATION} must name tensors of the model, got "
                f"{foreign[:3]}"
            )
        return names


PersonalisationSettings = (
    GlobalSettings
    | LocalSettings
    | FedProxSettings
    | FedPerSettings
    | FedRepSettings
    | FedBnSettings
    | PFedMeSettings
    | PFedHnSettings
    | PFedGpSettings
    | FedRodSettings
    | VanillaSettings
    | FedTpSettings
    | DittoSettings
    | AdaptedSettings
    | PluginMethod
)
