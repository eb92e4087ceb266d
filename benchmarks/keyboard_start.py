"""Say what a public start, adaptation and one's own words add to a keyboard, and for whom.

Each phone user is measured on the newest fifth of their own messages with everyone's model,
with that model adapted on their device, and with either and their own words beside it; those who
lose are counted. The start alone, the same recipe from random parameters and one learner with all
text stand beside them.

    python -m benchmarks.keyboard_start --data DATA --only keyboard-start

A stopped command goes on. Runs that are missing stand on the page as such. ``--quick`` runs the
machinery on the embedded text in a temporary folder.
"""

from benchmarks.starts.measuring import with_people
from benchmarks.starts.page import write_people
from benchmarks.starts.rows import QUICK, TABLES
from benchmarks.tables.maker import make_tables


def main() -> None:
    """Make the tables."""
    make_tables(
        "benchmarks.keyboard_start",
        str(__doc__).splitlines()[0],
        TABLES,
        QUICK,
        write=write_people,
        measure=with_people,
    )


if __name__ == "__main__":
    main()
