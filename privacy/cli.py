"""Run ``sotto-privacy``: work out budgets and make keys, without coordinator or device."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from privacy.accounting.accountant import AccountantsDisagreeError
from privacy.accounting.ledger_chain import LedgerError
from privacy.commands import budget as budget_commands
from privacy.commands import budget_flags
from privacy.commands.answer import Answer
from privacy.commands.audit_flags import add_audit_flags
from privacy.commands.explain import explain
from privacy.commands.federation_file import read_tables
from privacy.foundation.command_exit import command, failed
from privacy.foundation.installation import InstallationError, check_installation
from privacy.identities.keys import RSA_BITS, KeyFileError, read_passphrase
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


@command("sotto-privacy")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 after one line on stderr. Wrong usage exits with 2."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], None] = arguments.command
    try:
        check_installation()
        run(arguments)
    except budget_flags.UsageError as error:
        parser.error(str(error))
    except ModuleNotFoundError as error:
        # A device has no accountant, and needs none.
        print(f"sotto-privacy: {error.name} is missing; install sotto[server]", file=sys.stderr)
        return 1
    except _FAILURES as error:
        return failed("sotto-privacy", error)
    return 0


def _make_keys(arguments: argparse.Namespace) -> None:
    """Make pending keys in a new identity folder and say where they are."""
    folder: Path = arguments.out
    bits: int = arguments.bits
    passphrase_file: Path | None = arguments.passphrase_file
    if folder.exists() and any(folder.iterdir()):
        raise KeyFileError(f"{folder} must be empty or absent: keys in use are never overwritten")
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    Identity.create_requests(folder, "device", bits=bits, passphrase=passphrase)
    kept = "plain" if passphrase is None else "encrypted"
    print(f"TLS (P-256), wrapping and signing (RSA-{bits}) keys, {kept}: {folder / 'pending'}")
    print("An enrolment into this identity folder uses them.")


def _epsilon(arguments: argparse.Namespace) -> None:
    source = budget_flags.source_of(arguments)
    opinion: str = arguments.second_opinion
    if source == "ledger":
        delta: float | None = arguments.delta
        if arguments.plan is not None and delta is None:
            delta = budget_commands.delta_of_plan(arguments.plan)
        answer = budget_commands.epsilon_of_ledger(
            arguments.ledger,
            delta=delta,
            run=arguments.run,
            head=arguments.head,
            second_opinion=opinion,
        )
    elif source == "plan":
        answer = budget_commands.epsilon_of_plan(arguments.plan, second_opinion=opinion)
    elif source == "ftrl":
        answer = budget_commands.epsilon_of_trees(
            noise_multiplier=arguments.noise_multiplier,
            rounds=arguments.rounds,
            min_separation=arguments.min_separation,
            max_participation=arguments.max_participation,
            restart_rounds=arguments.restart_rounds,
            delta=arguments.delta,
        )
    else:
        answer = budget_commands.epsilon_of_sampled(
            noise_multiplier=arguments.noise_multiplier,
            rounds=arguments.rounds,
            sampling_rate=arguments.sampling_rate,
            delta=arguments.delta,
            population_size=arguments.population,
            second_opinion=opinion,
        )
    _tell(answer, as_json=arguments.json)


def _noise(arguments: argparse.Namespace) -> None:
    if budget_flags.mode_of(arguments) == "ftrl":
        answer = budget_commands.tree_noise_for(
            target_epsilon=arguments.target_epsilon,
            rounds=arguments.rounds,
            min_separation=arguments.min_separation,
            max_participation=arguments.max_participation,
            restart_rounds=arguments.restart_rounds,
            delta=arguments.delta,
        )
    else:
        answer = budget_commands.noise_for(
            target_epsilon=arguments.target_epsilon,
            rounds=arguments.rounds,
            sampling_rate=arguments.sampling_rate,
            delta=arguments.delta,
        )
    _tell(answer, as_json=arguments.json)


def _sensitivity(arguments: argparse.Namespace) -> None:
    answer = budget_commands.sensitivity_of(
        slot_count=arguments.cohort,
        attention_strength=arguments.attention_strength,
        clipping_norm=arguments.clipping_norm,
        layer_count=arguments.layers,
        adjacency=arguments.adjacency,
        server_step_size=arguments.server_step_size,
    )
    _tell(answer, as_json=arguments.json)


def _explain(arguments: argparse.Namespace) -> None:
    _tell(explain(read_tables(arguments.plan)), as_json=arguments.json)


def _audit(arguments: argparse.Namespace) -> None:
    # Here, so that keys are made without scipy.
    from privacy.auditing.scores import AuditError
    from privacy.commands.audit import audit_scores

    answer, faults = audit_scores(arguments.scores, claimed=arguments.noise_multiplier)
    _tell(answer, as_json=arguments.json)
    if faults:
        raise AuditError("; ".join(faults))


def _tell(answer: Answer, *, as_json: bool) -> None:
    print(json.dumps(answer.figures, allow_nan=False) if as_json else "\n".join(answer.lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sotto-privacy",
        description="Work out what privacy costs, audit noise and make keys; neither a coordinator "
        "nor a device is needed.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    budget_flags.add_epsilon(commands).set_defaults(command=_epsilon)
    budget_flags.add_noise(commands).set_defaults(command=_noise)
    budget_flags.add_sensitivity(commands).set_defaults(command=_sensitivity)
    budget_flags.add_explain(commands).set_defaults(command=_explain)
    audit = commands.add_parser(
        "audit",
        help="measure the true noise from scores of canaries",
        description="Estimate the noise multiplier and bound epsilon from below. Exits with 1 "
        "where that contradicts the claim. sotto-simulate audit makes canaries for a preset.",
        allow_abbrev=False,
    )
    add_audit_flags(audit)
    audit.set_defaults(command=_audit)
    keygen = commands.add_parser(
        "keygen",
        help="make a device's three keys ahead of its enrolment",
        description="Make the TLS, wrapping and signing keys of one party in a folder that only "
        "its owner can read. An enrolment into that folder uses them instead of new ones.",
        allow_abbrev=False,
    )
    keygen.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="new identity folder"
    )
    keygen.add_argument(
        "--bits",
        type=int,
        choices=RSA_BITS,
        default=RSA_BITS[0],
        help="size of the wrapping and signing keys in bits (default: %(default)s)",
    )
    keygen.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="owner-only file whose first line encrypts the key files",
    )
    keygen.set_defaults(command=_make_keys)
    return parser


if __name__ == "__main__":
    sys.exit(main())
