"""Bound what a plan may ask of a device, before anything follows from its numbers.

The coordinator writes the plan, and it may be captured: a plan of a billion layers must cost a
device no more than any other bad one. The bounds are far above what any shipped family is for, so
an honest plan never meets one; how long and how much a device works is its owner's policy.
"""

from collections.abc import Iterator, Mapping

import msgspec

from models.vector.schema import Schema

MOST_PLAN_BYTES = 64 << 10
"""Largest plan as JSON; those of the shipped presets have about two thousand bytes."""

MOST_ELEMENTS = 1 << 28
"""Most elements of a model or a hypernetwork: 1 GiB of float32."""

MOST_TOKENS = 1 << 20
"""Most target tokens of one step of training: parallel streams times the window."""

MOST_STEPS = 1 << 20
"""Most steps of one round that draws its examples."""

_LAYERS, _PASSES, _LENGTH, _COUNT = 128, 1000, 1 << 14, 1 << 31
_ANY_OTHER = 1 << 16
_LARGEST: Mapping[str, int] = {
    **dict.fromkeys(("layer_count", "encoder_layer_count", "decoder_layer_count"), _LAYERS),
    **dict.fromkeys(("block_count", "postnet_layer_count", "target_layer_count"), _LAYERS),
    **dict.fromkeys(("local_epochs", "epochs", "inner_steps", "step_count"), _PASSES),
    **dict.fromkeys(("chain_count", "evaluation_chain_count"), _PASSES),
    **dict.fromkeys(("context_size", "longest_text"), _LENGTH),
    **dict.fromkeys(("vocabulary_size", "size", "symbol_count", "segment_size"), 1 << 20),
    **dict.fromkeys(("cohort_size", "quorum", "example_cap", "token_cap"), _COUNT),
    **dict.fromkeys(("min_separation", "max_participation", "restart_rounds"), _COUNT),
    **dict.fromkeys(("round_count", "last_round"), _COUNT),
    "image_size": 1 << 12,
    "sample_rate_hz": 1 << 18,
    "seed": 1 << 64,
    # Seconds of sound.
    "longest_s": 600,
    "margin_s": 60,
}


def check_numbers(settings: msgspec.Struct) -> None:
    """Check each whole number in settings, and in those inside them, by its name.

    Raises:
        ValueError: If one is larger than any device is asked for.
    """
    for path, name, value in _numbers("", settings):
        largest = _LARGEST.get(name, _ANY_OTHER)
        is_bounded = isinstance(value, int) or name in _LARGEST
        # Written so that NaN is refused too.
        if is_bounded and not abs(value) <= largest:
            raise ValueError(f"{path} must be <= {largest}, got {_shortened(value)}")


def check_step(*, batch_size: int, bptt_steps: int) -> None:
    """Check the tokens of one step of training, or raise ValueError."""
    if batch_size * bptt_steps > MOST_TOKENS:
        raise ValueError(
            f"batch_size times bptt_steps must be <= {MOST_TOKENS}, got {batch_size * bptt_steps}"
        )


def check_drawn_steps(*, local_epochs: int, sampling_rate: float) -> None:
    """Check the steps of a round that draws its examples, or raise ValueError."""
    if not local_epochs / sampling_rate <= MOST_STEPS:
        raise ValueError(
            f"local_epochs over sampling_rate must be <= {MOST_STEPS}, the steps of a round; got "
            f"{local_epochs} and {sampling_rate}"
        )


def check_elements(schema: Schema, what: str) -> None:
    """Check the size of a model, named by ``what``, or raise ValueError."""
    if schema.element_count > MOST_ELEMENTS:
        raise ValueError(
            f"{what} must have at most {MOST_ELEMENTS} elements, got {schema.element_count}"
        )


def _numbers(path: str, value: object) -> Iterator[tuple[str, str, int | float]]:
    """Yield each number with its path and the name of its setting."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _numbers(f"{path}.{name}" if path else name, getattr(value, name))
    elif isinstance(value, dict):
        # A plugin's settings, as they were written.
        for name, item in value.items():
            yield from _numbers(f"{path}.{name}", item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _numbers(path, item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, path.rpartition(".")[2], value


def _shortened(value: float) -> str:
    """Return a number for a message; Python writes no whole number of thousands of digits."""
    return str(value) if abs(value) < 1 << 128 else "a number of more than 38 digits"
