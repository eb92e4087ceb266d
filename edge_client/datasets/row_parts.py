"""Cut the rows of a plugin's task as any person's examples are cut."""

from edge_client.datasets.text_set import split_in_order
from models.tasks.rows import Rows


def cut_rows(rows: Rows) -> tuple[Rows, Rows, Rows]:
    """Cut one person's rows, oldest first, by ``split_in_order``: to train on, choose by, test."""
    train, valid, _ = split_in_order(range(len(rows)))
    first, second = len(train), len(train) + len(valid)
    return rows[:first], rows[first:second], rows[second:]
