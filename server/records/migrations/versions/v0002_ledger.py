"""Create the ledger of privacy events, note when a client last took part, and allow secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables and the column, and let a round's count of updates be unknown."""
    op.create_table(
        "ledger",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("round_number", sa.Integer, nullable=False),
        sa.Column("event", sa.LargeBinary, nullable=False),
        sa.Column("recorded_ms", sa.BigInteger, nullable=False),
        sa.Column("clock_set_back_ms", sa.BigInteger, nullable=False),
        sa.Column("previous_sha256", sa.LargeBinary, nullable=False),
        sa.Column("sha256", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "noise_keys",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
    )
    op.add_column("clients", sa.Column("last_round", sa.Integer))
    with op.batch_alter_table("releases") as releases:
        releases.alter_column("contribution_count", existing_type=sa.Integer, nullable=True)
