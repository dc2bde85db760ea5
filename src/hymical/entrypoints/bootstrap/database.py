"""What the command line, demo and dev need of the database: its migration, and an embedded server."""

from hymical.adapters.embedded.errors import AlreadyOwned, EmbeddedServerError
from hymical.adapters.embedded.server import EmbeddedServer, discard_data, embedded_server
from hymical.adapters.postgres.schema import REVISION, migrate

__all__ = [
    "REVISION",
    "AlreadyOwned",
    "EmbeddedServer",
    "EmbeddedServerError",
    "discard_data",
    "embedded_server",
    "migrate",
]
