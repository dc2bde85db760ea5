"""What the command line, demo and dev need of the database: its migration, and an embedded server."""

from hymical.adapters.embedded.errors import AlreadyOwned, EmbeddedServerError
from hymical.adapters.embedded.server import EmbeddedServer, embedded_server, temporary_data_folder
from hymical.adapters.postgres.schema import REVISION, migrate

__all__ = [
    "REVISION",
    "AlreadyOwned",
    "EmbeddedServer",
    "EmbeddedServerError",
    "embedded_server",
    "migrate",
    "temporary_data_folder",
]
