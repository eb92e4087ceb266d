"""Make the tables of FedTP at the paper's sizes: CIFAR-10 and CIFAR-100, Table IV of the paper.

    python -m benchmarks.paper_tables --data DATA --only cifar10-50-pathological --device cuda

They want a GPU for hours and have not been run. ``--rounds`` makes shorter runs of them all, and
the table says so; ``--quick`` runs the machinery on the embedded digits in a temporary folder.
"""

from benchmarks.tables.maker import make_tables
from benchmarks.tables.personalisation import PAPER_TABLES, QUICK


def main() -> None:
    """Make the tables."""
    description = str(__doc__).splitlines()[0]
    make_tables("benchmarks.paper_tables", description, PAPER_TABLES, QUICK)


if __name__ == "__main__":
    main()
