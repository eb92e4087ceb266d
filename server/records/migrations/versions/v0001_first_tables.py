"""Create the first tables; a released migration is never edited, each change has a new file."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    _create_runs_and_clients()
    _create_rounds()
    _create_contributions()


def _create_runs_and_clients() -> None:
    op.create_table(
        "runs",
        sa.Column("run", sa.String(32), primary_key=True),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("schema_sha256", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "clients",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("enrolled_at", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float),
        sa.Column("forgotten_at", sa.Float),
        sa.Column("participation_count", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_table(
        "certificates",
        sa.Column("sha256", sa.LargeBinary, primary_key=True),
        sa.Column(
            "client", sa.String(64), sa.ForeignKey("clients.name"), nullable=False, index=True
        ),
        sa.Column("key_use", sa.String(16), nullable=False),
        sa.Column("der", sa.LargeBinary, nullable=False),
        sa.Column("not_after", sa.Float, nullable=False),
        sa.Column("issued_at", sa.Float, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("token_sha256", sa.LargeBinary, primary_key=True),
        sa.Column("client", sa.String(64), nullable=False, index=True),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("used_at", sa.Float),
        sa.Column("requests_sha256", sa.LargeBinary),
    )


def _create_rounds() -> None:
    op.create_table(
        "attempts",
        sa.Column("round_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("members", sa.Text),
        sa.Column("base_sha256", sa.LargeBinary, nullable=False),
        sa.Column("opened_at", sa.Float, nullable=False),
        sa.Column("deadline_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.Float),
        sa.Column("reason", sa.Text),
        sa.CheckConstraint("state IN ('open', 'aborted', 'released')", name="attempt_state"),
    )
    op.create_table(
        "releases",
        sa.Column("round_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("parameters_sha256", sa.LargeBinary, nullable=False),
        sa.Column("previous_sha256", sa.LargeBinary, nullable=False),
        sa.Column("contribution_count", sa.Integer, nullable=False),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("recorded_at", sa.Float, nullable=False),
        sa.Column("published_at", sa.Float),
    )


def _create_contributions() -> None:
    op.create_table(
        "contributions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("nonce", sa.LargeBinary, nullable=False, index=True),
        sa.Column("round_number", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("client", sa.String(64), nullable=False, index=True),
        sa.Column("slot", sa.Integer, nullable=False),
        sa.Column("message_id", sa.LargeBinary, nullable=False),
        sa.Column("signing_sha256", sa.LargeBinary, nullable=False),
        sa.Column("blob", sa.Text, nullable=False),
        sa.Column("blob_bytes", sa.BigInteger, nullable=False),
        sa.Column("example_count", sa.Integer),
        sa.Column("committed_at", sa.Float, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.CheckConstraint(
            "state IN ('committed', 'aggregated', 'expired')", name="contribution_state"
        ),
    )
    counts = sa.text("state <> 'expired'")
    for name, column in (
        ("one_contribution_a_round", "client"),
        ("one_contribution_a_slot", "slot"),
    ):
        op.create_index(
            name,
            "contributions",
            ["round_number", column],
            unique=True,
            sqlite_where=counts,
            postgresql_where=counts,
        )
