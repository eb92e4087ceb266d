"""Make the tables of aggregation rules against attacks, run by run; a stopped command goes on.

    python -m benchmarks.attack_tables --only attacks-digits

``--list`` shows the tables with their estimated time; ``--quick`` runs the machinery on the
embedded digits in a temporary folder.
"""

from benchmarks.tables.maker import make_tables
from benchmarks.tables.matrix import with_heaviest_round, write_matrix
from benchmarks.tables.robustness import QUICK, TABLES


def main() -> None:
    """Make the tables."""
    make_tables(
        "benchmarks.attack_tables",
        str(__doc__).splitlines()[0],
        TABLES,
        QUICK,
        write=write_matrix,
        measure=with_heaviest_round,
    )


if __name__ == "__main__":
    main()
