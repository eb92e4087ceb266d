"""``sotto-privacy``: work out budgets and make keys, without coordinator or device."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from privacy.accounting.accountant import AccountantsDisagreeError
from privacy.accounting.ledger_chain import LedgerError
from privacy.commands import budget as budget_commands
from privacy.commands.answer import Answer
from privacy.commands.budget_flags import Epsilon, Explain, Noise, Sensitivity
from privacy.commands.explain import explain
from privacy.commands.federation_file import read_tables
from privacy.commands.sums_in_words import sensitivity_of_sums
from privacy.foundation.command_exit import command, failed
from privacy.foundation.flags import Flag, Printed, command_line, read_arguments
from privacy.foundation.installation import InstallationError, check_installation
from privacy.identities.keys import KeyFileError, read_passphrase
from privacy.identities.party import Identity

# A ValueError here is a value that cannot be used, told by its name.
_FAILURES = (
    AccountantsDisagreeError,
    InstallationError,
    KeyFileError,
    LedgerError,
    OSError,
    ValueError,
)


class Audit(Printed, frozen=True, kw_only=True):
    """Scores of canaries and the claim they are held against.

    Attributes:
        scores: CSV with the header canary,score,included: a line a canary and round, included being
            1 or 0 as a fair coin fell.
        noise_multiplier: Z that the ledger names (no unit); left out where nothing is claimed.
    """

    scores: Annotated[Path, Flag("FILE")]
    noise_multiplier: float | None = None


class Keygen(msgspec.Struct, frozen=True, kw_only=True):
    """Keys to make.

    Attributes:
        out: New identity folder.
        bits: Size of the wrapping and signing keys in bits.
        passphrase_file: Owner-only file whose first line encrypts the key files.
    """

    out: Annotated[Path, Flag("DIR")]
    bits: Literal[3072, 4096] = 3072
    passphrase_file: Annotated[Path | None, Flag("FILE")] = None


@command("sotto-privacy")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    parser = command_line(
        "sotto-privacy",
        "Work out what privacy costs, audit noise and make keys; neither a coordinator nor a "
        "device is needed.",
        (_epsilon, _noise, _sensitivity, _explain, _audit, _keygen),
        allow_abbrev=False,
    )
    arguments = read_arguments(parser, argv)
    try:
        check_installation()
        arguments.handler(arguments.settings)
    except ModuleNotFoundError as error:
        # A device has no accountant, and needs none.
        print(f"sotto-privacy: {error.name} is missing; install sotto[server]", file=sys.stderr)
        return 1
    except _FAILURES as error:
        return failed("sotto-privacy", error)
    return 0


def _epsilon(asked: Epsilon) -> None:
    """Compute what a plan, a setting or a ledger costs.

    Compute epsilon of one enrolled person over a whole run, evaluations by devices included, with
    two accountants, and refuse where they differ by more than max(0.02, 1 %). Ask about a
    federation's file, about a setting given by flags, or about a ledger. --json has epsilon,
    epsilon_pld, epsilon_prv, rho and delta, all against readers of releases, and
    coordinator_epsilon; null if one does not apply or has no bound.
    """
    _tell(budget_commands.epsilon_of(asked), as_json=asked.json)


def _noise(asked: Noise) -> None:
    """Find the least noise for a target epsilon.

    Find the least noise multiplier that keeps a run within epsilon at delta; with --mode ftrl that
    of each node of the tree, with --mechanism blt that of each round, and the buffers to write.
    """
    _tell(budget_commands.noise_for(asked), as_json=asked.json)


def _sensitivity(asked: Sensitivity) -> None:
    """Compute how far one person moves the attentive aggregate.

    Compute the L2 sensitivity of the step under attentive aggregation, in parameter units, and what
    attention adds to the noise of equal weights; with --noise-on sums that of the two sums, and
    what noise on them puts on the step.
    """
    of_sums = asked.noise_on == "sums"
    answer = sensitivity_of_sums(asked) if of_sums else budget_commands.sensitivity_of(asked)
    _tell(answer, as_json=asked.json)


def _explain(asked: Explain) -> None:
    """Say in plain words what a plan promises.

    Say in plain words what a federation's file promises: the unit of privacy, neighbours, the draw,
    epsilon of a round and of the run, what the noise comes to, and what evaluations by devices cost
    and how far their noise moves a perplexity.
    """
    _tell(explain(read_tables(asked.plan)), as_json=asked.json)


def _audit(asked: Audit) -> None:
    """Measure the true noise from scores of canaries.

    Estimate the noise multiplier and bound epsilon from below. Exits with 1 where that contradicts
    the claim. sotto-simulate audit makes canaries for a preset.
    """
    # Here, so that keys are made without scipy.
    from privacy.auditing.scores import AuditError
    from privacy.commands.audit import audit_scores

    answer, faults = audit_scores(asked.scores, claimed=asked.noise_multiplier)
    _tell(answer, as_json=asked.json)
    if faults:
        raise AuditError("; ".join(faults))


def _keygen(asked: Keygen) -> None:
    """Make a device's three keys ahead of its enrolment.

    Make the TLS, wrapping and signing keys of one party in a folder that only its owner can read.
    An enrolment into that folder uses them instead of new ones.
    """
    folder, file = asked.out, asked.passphrase_file
    if folder.exists() and any(folder.iterdir()):
        raise KeyFileError(f"{folder} must be empty or absent: keys in use are never overwritten")
    passphrase = None if file is None else read_passphrase(file)
    Identity.create_requests(folder, "device", bits=asked.bits, passphrase=passphrase)
    kept = "plain" if passphrase is None else "encrypted"
    print(
        f"TLS (P-256), wrapping and signing (RSA-{asked.bits}) keys, {kept}: {folder / 'pending'}"
    )
    print("An enrolment into this identity folder uses them.")


def _tell(answer: Answer, *, as_json: bool) -> None:
    print(json.dumps(answer.figures, allow_nan=False) if as_json else "\n".join(answer.lines))


if __name__ == "__main__":
    sys.exit(main())
