"""Note how stale each update is, for buffered rounds."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; what was committed before is not stale."""
    op.add_column(
        "contributions", sa.Column("staleness", sa.Integer, nullable=False, server_default="0")
    )
