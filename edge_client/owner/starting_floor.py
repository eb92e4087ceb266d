"""Write the floor that a newly enrolled device starts from, a comment to each line."""

from pathlib import Path

from privacy.foundation.atomic_files import write_atomically

_GUARANTEED = """\
# Noise modes it takes part in: those that bound what a reader of the models can learn about this
# device's text. To lower that, add "none", "paper" or "paper-server", which promise nothing, and
# take away the next four lines that are set.
modes = ["central", "ftrl", "local", "masked"]

# Largest clipping norm of an update; "any" also accepts plans that do not clip.
largest_clipping_norm = 100.0

# Least noise multiplier, also of what a device counts on held-out text, and the largest epsilon and
# delta that a plan may name for the whole run, against the coordinator, too, in mode "masked".
# Without all three lines plans without calibrated noise are accepted, too. A device adds the noise
# itself in mode "local", and its share of it in "masked"; in "central" and "ftrl" it has the
# coordinator's word.
least_noise_multiplier = 0.3
largest_epsilon = 10.0
largest_delta = 1e-3
"""
_ANY_MODE = """\
# Noise modes it takes part in. The last three promise nothing: whoever reads the models may learn
# phrases of this device's text. To raise that, take them away.
modes = ["central", "ftrl", "local", "masked", "none", "paper", "paper-server"]

# Largest clipping norm of an update; "any" also accepts plans that do not clip.
largest_clipping_norm = "any"

# Least noise multiplier, also of what a device counts on held-out text, and the largest epsilon and
# delta that a plan may name for the whole run, against the coordinator, too, in mode "masked". With
# any of these lines plans without calibrated noise are refused. A device adds the noise itself in
# mode "local", and its share of it in "masked"; in "central" and "ftrl" it has the coordinator's
# word.
# least_noise_multiplier = 0.3
# largest_epsilon = 10.0
# largest_delta = 1e-3
"""
_STARTING_FLOOR = """\
# What this device accepts at the least. A plan below it is refused and counted.

{modes}

# Kinds of plan that it takes: to train on the text; to count how a model does on it, which leaves
# without noise only where no mode has any; to fit an embedding, which is sent, or tensors, which
# are not.
kinds = ["train", "evaluate", "fit_embedding", "fit_personal"]

# Fewest devices that a round is drawn for, and closes with: without a guarantee that rests on the
# drawn places (modes "central" and "ftrl") a model of fewer shows what each of them learnt. In mode
# "masked" also the fewest devices of a sum that the coordinator may learn.
least_cohort = 2

# Helpers that may hold this device's masks, by the SHA-256 of their certificate, as the invite and
# `sotto-helper admit` tell it. Under mode "masked" the coordinator learns noised sums and opens no
# update, as long as it and the helper do not join; so the helper should be somebody else. Without
# the line no plan of that mode is taken.
{helpers}

# Take part only under masks: then every other plan with which anything leaves is refused.
# sums = "masked"

# Model families it trains.
model_families = [
  "gru_lm", "transformer_lm", "vit", "convnet", "char_lstm", "char_transformer", "seq2seq",
  "transformer_tts", "vocoder",
]

# Packages with models, tasks and methods of others that this device imports, each with its version.
# What it names can read all that this device can: name only what you trust. Without the line, none.
# plugins = ["package==1.0.0"]

# Personalisation methods it takes part in; without the line, any.
# methods = ["global", "fedtp"]

# Folders that the data may lie in; without the line, wherever --data points.
# data_folders = ["/home/me/texts"]

# Fingerprints of the authorities that may certify the coordinator; without the line, the one that
# this device enrolled with and those that it names as its successors.
# authorities = ["..."]

# Bytes moved a day, up and down together; without the line, any number.
# bytes_a_day = 200_000_000

# Only train where the plan hides each sentence in this device's own update (example_privacy), and
# stop before all rounds together pass this epsilon; nothing else that is made from the text may
# leave, so plans to evaluate or to fit an embedding are refused. Needs sotto[dp-sgd].
# [example_privacy]
# epsilon = 8.0
# delta = 1e-5
"""


def write_starting_floor(
    path: Path, *, accepts_no_guarantee: bool = False, helper: str | None = None
) -> None:
    """Write a floor, owner-only, unless one is there; with modes of no guarantee if asked for.

    ``helper`` is the digest of the certificate of the helper that the invite names, 64 hex digits;
    None if it names none.
    """
    if path.exists():
        return
    text = _STARTING_FLOOR.format(
        modes=_ANY_MODE if accepts_no_guarantee else _GUARANTEED,
        helpers='# helpers = ["..."]' if helper is None else f'helpers = ["{helper}"]',
    )
    write_atomically(path, text.encode())
