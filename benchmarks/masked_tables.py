"""Make the tables of noised sums: recall and perplexity at the same noise multiplier.

Noise of the coordinator on the mean, or on the sums that it is divided from, or of the devices
under masks; and epsilon against readers of releases and against the coordinator.

    python -m benchmarks.masked_tables --data DATA --only masked-sms

``--list`` shows the tables with their estimated time; ``--quick`` runs the machinery on the
embedded text in a temporary folder.
"""

from benchmarks.tables.maker import make_tables
from benchmarks.tables.masked import QUICK, TABLES
from benchmarks.tables.onlookers import write_masked


def main() -> None:
    """Make the tables."""
    make_tables(
        "benchmarks.masked_tables",
        str(__doc__).splitlines()[0],
        TABLES,
        QUICK,
        write=write_masked,
    )


if __name__ == "__main__":
    main()
