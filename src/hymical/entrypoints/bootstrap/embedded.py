"""The PostgreSQL from a wheel, for demo, dev and tests."""

from hymical.adapters.embedded.errors import AlreadyOwned, EmbeddedServerError
from hymical.adapters.embedded.server import EmbeddedServer, embedded_server, temporary_data_folder

__all__ = [
    "AlreadyOwned",
    "EmbeddedServer",
    "EmbeddedServerError",
    "embedded_server",
    "temporary_data_folder",
]
