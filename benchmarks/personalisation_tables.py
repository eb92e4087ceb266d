"""Make the results tables of personalisation, run by run; a stopped command goes on.

Every method on the same clients, rounds and local training, scored on each client's own test
examples with the client's own model.

    python -m benchmarks.personalisation_tables --only fedtp-digits

``--list`` shows the tables with their estimated time; ``--quick`` runs the machinery on the
embedded digits in a temporary folder.
"""

from benchmarks.tables.maker import make_tables
from benchmarks.tables.personalisation import QUICK, TABLES


def main() -> None:
    """Make the tables."""
    make_tables("benchmarks.personalisation_tables", str(__doc__).splitlines()[0], TABLES, QUICK)


if __name__ == "__main__":
    main()
