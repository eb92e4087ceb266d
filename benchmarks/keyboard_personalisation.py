"""Compare personal keyboards user by user, run by run; a stopped command goes on.

Each user trains on the older four fifths of their own messages and is scored on the newest fifth:
recall of the first one and three suggestions, and keystrokes saved, with the model of each method,
with the one that everyone shares, and with that one after the user trained it on alone. Users who
lose are counted.

    python -m benchmarks.keyboard_personalisation --data DATA

``--quick`` runs the machinery on the embedded text in a temporary folder.
"""

from benchmarks.tables.keyboard import QUICK, TABLES
from benchmarks.tables.maker import make_tables
from benchmarks.tables.own_text import with_own_text, write_own_text


def main() -> None:
    """Make the table."""
    make_tables(
        "benchmarks.keyboard_personalisation",
        str(__doc__).splitlines()[0],
        TABLES,
        QUICK,
        write=write_own_text,
        measure=with_own_text,
    )


if __name__ == "__main__":
    main()
