"""Identifiers, secrets and dice: everything that must not be predicted or repeated."""

from typing import Protocol

from hymical.domain.ids import DeliveryId, DestinationId, JobId, KeyId, MessageId, SubmissionId, WorkerId


class Ids(Protocol):
    """Each call gives what was never given before; ids sort by the time they were made."""

    def submission(self) -> SubmissionId: ...

    def message(self) -> MessageId: ...

    def destination(self) -> DestinationId: ...

    def delivery(self) -> DeliveryId: ...

    def key(self) -> KeyId: ...

    def worker(self) -> WorkerId: ...

    def job(self) -> JobId: ...

    def secret_bytes(self) -> bytes:
        """32 bytes from the system's cryptographic source."""
        ...

    def dice(self) -> float:
        """A number in [0, 1), to spread what would otherwise happen all at once."""
        ...
