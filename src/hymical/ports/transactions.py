"""One transaction around several calls."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Transactions(Protocol):
    def begin(self) -> AbstractAsyncContextManager[None]:
        """What is done inside happens together at a clean exit, or not at all at an exception.

        Every port called in the block takes part without being told; outside a block each call is a
        transaction of its own. The block belongs to one task, and is never open across HTTP.

        Raises:
            StorageUnavailable: the database did not answer; after a failed commit the outcome is unknown.
        """
        ...
