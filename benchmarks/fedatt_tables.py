"""Make the results tables of attentive aggregation, run by run; a stopped command goes on.

Unigram and interpolated bigram, fitted on the same training split, and the same model trained
centrally stand in every table.

    python -m benchmarks.fedatt_tables --data DATA --only fedatt-ptb

``--list`` shows the tables with their estimated time; ``--quick`` runs the machinery on the
embedded text in a temporary folder.
"""

from benchmarks.tables.attention import QUICK, TABLES
from benchmarks.tables.maker import make_tables


def main() -> None:
    """Make the tables."""
    make_tables("benchmarks.fedatt_tables", str(__doc__).splitlines()[0], TABLES, QUICK)


if __name__ == "__main__":
    main()
