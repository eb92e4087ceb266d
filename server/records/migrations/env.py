"""Run migrations on the connection that ``server.records.store`` hands over."""

from alembic import context

from server.records.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
