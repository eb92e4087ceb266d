"""Note the ledger's head with each release and attempt, so that entries cut off are missed."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; what was recorded before has none, but its release's own record may."""
    op.add_column("attempts", sa.Column("ledger_sha256", sa.LargeBinary))
    op.add_column("releases", sa.Column("ledger_sha256", sa.LargeBinary))
