"""Note who leads, in which term, and which term wrote a release's files."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the table and the column; releases of before have no term."""
    op.create_table(
        "leadership",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("term", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("asked", sa.String(32)),
    )
    op.add_column("releases", sa.Column("term", sa.Integer))
