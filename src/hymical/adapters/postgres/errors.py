"""From the driver's errors to the domain's, once, at this edge."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
from psycopg.errors import InsufficientPrivilege
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)

from hymical.domain.errors import HymicalError, StorageUnavailable

_AWAY = (
    OperationalError,
    InterfaceError,
    InternalError,
    DisconnectionError,
    OSError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
)
_REFUSAL = re.compile(r" failed: \S+:  (.+)")


@contextmanager
def translated(constraints: Mapping[str, HymicalError] | None = None) -> Iterator[None]:
    """Raises the domain's errors instead of the driver's.

    `constraints` says what the violation of a constraint means, by its name. A database that is away, shutting
    down, read only after a failover, out of connections, or that grants too little is `StorageUnavailable`.
    Anything else is a fault in Hymical and passes as it is.
    """
    try:
        yield
    except (IntegrityError, psycopg.IntegrityError) as error:
        meant = (constraints or {}).get(_constraint(error) or "")
        if meant is None:
            raise
        raise meant from None
    except _AWAY as error:
        raise StorageUnavailable(type(error).__name__, said=_refusal(error)) from error
    except (ProgrammingError, psycopg.ProgrammingError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if not isinstance(cause, InsufficientPrivilege):
            raise
        raise StorageUnavailable(type(error).__name__, said=cause.diag.message_primary) from error


def _refusal(error: Exception) -> str | None:
    """What follows the severity, in whatever language, where libpq quotes the server that refused a connection."""
    quoted = _REFUSAL.search(str(error.orig)) if isinstance(error, DBAPIError) else None
    return quoted[1].strip() if quoted else None


def _constraint(error: Exception) -> str | None:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None
