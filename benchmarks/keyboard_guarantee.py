"""Make the table of the keyboard under a guarantee: what epsilon costs in recall and keys.

The preset ``keyboard-central`` from the public start, at epsilon 1, 2 and 8 for 10,000 and 100,000
people, and from random parameters at one of them. The noise is that of cohorts of thousands, added
to the mean of the few people at hand: populations are extrapolated, and the page says how.

    python -m benchmarks.keyboard_guarantee --data DATA

``--quick`` runs the machinery on the embedded text in a temporary folder.
"""

from benchmarks.guarantee.page import write_guarantee
from benchmarks.guarantee.rows import quick_table, table
from benchmarks.guarantee.started import with_start
from benchmarks.tables.maker import make_tables


def main() -> None:
    """Make the table."""
    make_tables(
        "benchmarks.keyboard_guarantee",
        str(__doc__).splitlines()[0],
        {"keyboard-guarantee": table()},
        {"quick": quick_table()},
        write=write_guarantee,
        measure=with_start,
    )


if __name__ == "__main__":
    main()
