"""Say what a floor guarantees, and what it leaves to the coordinator's word: a sentence each.

The coordinator picks among what a floor accepts, so a floor is as strong as the weakest of it.
"""

from edge_client.owner.floor import Floor

_WITHOUT = ("none", "paper", "paper-server")
_BY_COORDINATOR = ("central", "ftrl")


def floor_in_words(floor: Floor) -> tuple[str, str]:
    """Return two sentences for the device's owner."""
    modes = _modes_that_pass(floor)
    if not modes:
        return "This floor accepts no plan at all.", "Nothing is left to the coordinator's word."
    budget = floor.example_privacy
    if budget is not None:
        return (
            "Each sentence is hidden in what this device sends, also from the coordinator, and the "
            f"device itself stops before all its rounds together pass epsilon {budget.epsilon:g} "
            f"at delta {budget.delta:g}.",
            _left_with_example_privacy(modes),
        )
    if without := [mode for mode in modes if mode in _WITHOUT]:
        return (
            "This floor guarantees nothing: it accepts "
            f"{_listed(without)}, under which the coordinator sees this device's updates as they "
            "were trained, and a reader of the models may learn phrases of its text.",
            "Everything is left to the coordinator's word: which plan it sends, whether it adds "
            "any noise, and how many devices a model is made of.",
        )
    if by_coordinator := [mode for mode in modes if mode in _BY_COORDINATOR]:
        return (
            "Every plan promises readers of the models, for all that this device ever sends, "
            f"{_promised(floor)}, and what leaves is clipped first{_clip(floor)}.",
            f"It is the coordinator's word that this noise is added in {_listed(by_coordinator)}, "
            f"that {_least(floor)}, and that nobody looks at the update of this device "
            "before, for the coordinator can.",
        )
    if "masked" in modes:
        # Its sums need devices and a helper, where "local" needs nobody.
        return _under_masks(floor)
    return (
        "What leaves this device carries noise that it adds itself, against the coordinator too: "
        f"each update keeps the budget that its plan names, {_promised(floor)}.",
        "It is the coordinator's word how often this device is asked: each further update costs "
        "more, and the device keeps no count of its own.",
    )


def _under_masks(floor: Floor) -> tuple[str, str]:
    return (
        "The coordinator opens no update of this device: it learns noised sums of at least "
        f"{_devices(floor)}, with {_promised(floor)} against it as against readers of the models, "
        f"and what leaves is clipped first{_clip(floor)} and carries this device's own share of "
        "the noise.",
        "It is the helper's word that it keeps the masks from the coordinator, for both together "
        "could see this device's update behind that share alone; it is the other devices' word "
        "that they add theirs, and the coordinator's that they are other people's, for it enrols "
        "them, and how often this device is asked.",
    )


def _left_with_example_privacy(modes: list[str]) -> str:
    if any(mode in _WITHOUT for mode in modes):
        why = "and the weakest mode that this floor accepts adds no noise for it"
    elif set(modes) <= {"local", "masked"}:
        why = "for it says how often this device is asked"
    else:
        why = "for it says that it adds noise to the models"
    return (
        "What many sentences together tell about this device's person is left to the "
        f"coordinator's word, {why}."
    )


def _modes_that_pass(floor: Floor) -> list[str]:
    """Return the accepted modes, sorted, that no other line of the floor refuses by itself."""
    bounds = (floor.least_noise_multiplier, floor.largest_epsilon, floor.largest_delta)
    passing = sorted(floor.modes & {"local", *_BY_COORDINATOR})
    if all(bound is None for bound in bounds):
        passing += sorted(floor.modes & set(_WITHOUT))
    if floor.sums is not None:
        passing = []
    return [*passing, *(("masked",) if floor.helpers and "masked" in floor.modes else ())]


def _promised(floor: Floor) -> str:
    terms = [
        f"{name} {bound:g}"
        for name, bound in (
            ("epsilon at most", floor.largest_epsilon),
            ("delta at most", floor.largest_delta),
            ("noise of at least z =", floor.least_noise_multiplier),
        )
        if bound is not None
    ]
    return ", ".join(terms) if terms else "an epsilon and a delta of any size"


def _clip(floor: Floor) -> str:
    norm = floor.largest_clipping_norm
    return ", to a norm that the plan chooses" if norm == "any" else f" to a norm of {norm:g}"


def _least(floor: Floor) -> str:
    return f"a round has places for at least {_devices(floor)}"


def _devices(floor: Floor) -> str:
    return "one device" if floor.least_cohort == 1 else f"{floor.least_cohort} devices"


def _listed(modes: list[str]) -> str:
    if len(modes) == 1:
        return f'mode "{modes[0]}"'
    return "modes " + ", ".join(f'"{mode}"' for mode in modes[:-1]) + f' and "{modes[-1]}"'
