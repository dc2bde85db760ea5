"""What the command line needs of the database beside its rows: its migration."""

from hymical.adapters.postgres.schema import REVISION, migrate

__all__ = ["REVISION", "migrate"]
