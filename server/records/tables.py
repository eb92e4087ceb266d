"""The tables of the coordinator's store: what a restart needs and nothing more.

No row holds an update, a text or a key, and a client's report lives only until its round closes.
Times are seconds since 1970 UTC; digests, nonces and identifiers are raw bytes.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("run", String(32), primary_key=True),
    Column("seed", BigInteger, nullable=False),
    Column("schema_sha256", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""One row: the run that this store belongs to."""

clients = Table(
    "clients",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("enrolled_at", Float, nullable=False),
    Column("revoked_at", Float),
    Column("forgotten_at", Float),
    # Kept when a device enrols again or is forgotten: the privacy budget counts the person.
    Column("participation_count", Integer, nullable=False, server_default="0"),
    # Last released round with an update of this client: mode ftrl keeps rounds apart.
    Column("last_round", Integer),
)

certificates = Table(
    "certificates",
    metadata,
    Column("sha256", LargeBinary, primary_key=True),
    Column("client", String(64), ForeignKey("clients.name"), nullable=False, index=True),
    Column("key_use", String(16), nullable=False),
    Column("der", LargeBinary, nullable=False),
    Column("not_after", Float, nullable=False),
    Column("issued_at", Float, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_sha256", LargeBinary, primary_key=True),
    Column("client", String(64), nullable=False, index=True),
    Column("expires_at", Float, nullable=False),
    Column("used_at", Float),
    # Digest of the signing requests it was used for: repeating them gets the same answer.
    Column("requests_sha256", LargeBinary),
)

attempts = Table(
    "attempts",
    metadata,
    Column("round_number", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    # JSON list of names; null for first-come, and wiped when the attempt ends: who was drawn is
    # secret where the draw amplifies the privacy.
    Column("members", Text),
    Column("base_sha256", LargeBinary, nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    # Null for attempts that an older sotto opened.
    Column("terms_sha256", LargeBinary),
    # Digest of the attempt's entry in the ledger; null where it has none.
    Column("ledger_sha256", LargeBinary),
    Column("ended_at", Float),
    Column("reason", Text),
    CheckConstraint("state IN ('open', 'aborted', 'released')", name="attempt_state"),
)

contributions = Table(
    "contributions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("nonce", LargeBinary, nullable=False, index=True),
    Column("round_number", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("client", String(64), nullable=False, index=True),
    Column("slot", Integer, nullable=False),
    # Releases made between its lease and its round; 0 in synchronous rounds.
    Column("staleness", Integer, nullable=False, server_default="0"),
    Column("message_id", LargeBinary, nullable=False),
    Column("signing_sha256", LargeBinary, nullable=False),
    Column("blob", Text, nullable=False),
    Column("blob_bytes", BigInteger, nullable=False),
    # Wiped when the round ends.
    Column("example_count", Integer),
    Column("committed_at", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text),
    CheckConstraint("state IN ('committed', 'aggregated', 'expired')", name="contribution_state"),
)
_COUNTS = text("state <> 'expired'")
Index(
    "one_contribution_a_round",
    contributions.c.round_number,
    contributions.c.client,
    unique=True,
    sqlite_where=_COUNTS,
    postgresql_where=_COUNTS,
)
Index(
    "one_contribution_a_slot",
    contributions.c.round_number,
    contributions.c.slot,
    unique=True,
    sqlite_where=_COUNTS,
    postgresql_where=_COUNTS,
)

releases = Table(
    "releases",
    metadata,
    Column("round_number", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("parameters_sha256", LargeBinary, nullable=False),
    Column("previous_sha256", LargeBinary, nullable=False),
    # Null where secret coins drew the cohort.
    Column("contribution_count", Integer),
    Column("duration_s", Float, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("recorded_at", Float, nullable=False),
    Column("published_at", Float),
    # Head of the ledger with the release's entry, then with that of its evaluation; null for the
    # initial parameters, and for what an older sotto released.
    Column("ledger_sha256", LargeBinary),
    # Term of the coordinator that wrote the files; null where one coordinator alone can serve.
    Column("term", Integer),
)

ledger = Table(
    "ledger",
    metadata,
    # The fields of ``privacy.accounting.ledger_chain.LedgerEntry``, by name; rows are never
    # changed.
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("round_number", Integer, nullable=False),
    Column("event", LargeBinary, nullable=False),
    Column("recorded_ms", BigInteger, nullable=False),
    Column("clock_set_back_ms", BigInteger, nullable=False),
    Column("previous_sha256", LargeBinary, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
)

noise_keys = Table(
    "noise_keys",
    metadata,
    Column("name", String(32), primary_key=True),
    # Sealed under a key in the coordinator's folder; see ``server.records.tree_keys``.
    Column("sealed", LargeBinary, nullable=False),
)

leadership = Table(
    "leadership",
    metadata,
    # One row at most, its key 1; no row where one coordinator alone can serve.
    Column("only", Integer, primary_key=True, autoincrement=False),
    Column("term", Integer, nullable=False),
    # Host name of who leads, or led last.
    Column("holder", String(255), nullable=False),
    Column("since", Float, nullable=False),
    # A word that a coordinator that stands by asks the leader to write into the shared folder.
    Column("asked", String(32)),
)
