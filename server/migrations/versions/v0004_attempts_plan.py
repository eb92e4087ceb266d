"""Note which plan an attempt was opened with, so that a restart sees whether it still holds."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; attempts that were opened before have none and go on as they did."""
    op.add_column("attempts", sa.Column("plan_sha256", sa.LargeBinary))
