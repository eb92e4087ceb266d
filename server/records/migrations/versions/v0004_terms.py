"""Note the terms an attempt was opened under, so that a restart sees whether they still hold."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; attempts that were opened before have none and go on as they did."""
    op.add_column("attempts", sa.Column("terms_sha256", sa.LargeBinary))
