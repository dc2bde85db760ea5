"""What the database says about itself."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class DatabaseInspection(Protocol):
    async def now(self) -> datetime: ...

    async def missing_rights(self) -> Sequence[str]:
        """What the role that is connected may not do although Hymical does it, as `DELETE on jobs`."""
        ...
