"""Forms as this process last saw them, for what must not cost a statement of its own."""

import asyncio
import time
from dataclasses import dataclass

from hymical.application.forms import ShowForm
from hymical.domain.errors import NotFound, StorageUnavailable
from hymical.domain.forms import Form
from hymical.domain.ids import FormId


@dataclass(frozen=True, slots=True)
class _Seen:
    form: Form
    at: float


class KnownForms:
    """At most `size` forms. A look takes `patience` seconds at most, and only `looks` are under way at once."""

    def __init__(
        self, show_form: ShowForm, *, size: int = 1_024, looks: int = 2, patience: float = 2.0
    ) -> None:
        self._show_form = show_form
        self._size = size
        self._patience = patience
        self._turns = asyncio.Semaphore(looks)
        self._seen: dict[FormId, _Seen] = {}
        self._looking: dict[FormId, asyncio.Task[Form | None]] = {}

    async def find(self, form_id: FormId, *, max_age: float) -> Form | None:
        """The form as it was at most `max_age` seconds ago, or as last seen while the database is away.

        None when there is no such form. Raises `StorageUnavailable` when it was never seen here and cannot be now.
        """
        seen = self._seen.get(form_id)
        if seen is not None and time.monotonic() - seen.at < max_age:
            return seen.form
        look = self._looking.get(form_id)
        if look is None:
            look = self._looking[form_id] = asyncio.create_task(self._look(form_id))
            look.add_done_callback(lambda done: self._looked(form_id, done))
        # others may be waiting for the same look when this caller goes away
        return await asyncio.shield(look)

    def last(self, form_id: FormId) -> Form | None:
        """The form as it was seen last, however long ago; None when it was not seen."""
        seen = self._seen.get(form_id)
        return None if seen is None else seen.form

    def forget(self, form_id: FormId) -> None:
        """For those who have just changed it."""
        self._seen.pop(form_id, None)

    async def close(self) -> None:
        """Returns when no look is under way any more."""
        if self._looking:
            await asyncio.wait(set(self._looking.values()))

    async def _look(self, form_id: FormId) -> Form | None:
        seen = self._seen.get(form_id)
        try:
            async with asyncio.timeout(self._patience), self._turns:
                form = await self._show_form(form_id)
        except NotFound:
            self.forget(form_id)
            return None
        except (StorageUnavailable, TimeoutError) as error:
            if seen is None:
                raise StorageUnavailable from error
            form = seen.form
        self._seen.pop(form_id, None)
        self._seen[form_id] = _Seen(form, time.monotonic())
        if len(self._seen) > self._size:
            del self._seen[next(iter(self._seen))]
        return form

    def _looked(self, form_id: FormId, done: asyncio.Task[Form | None]) -> None:
        del self._looking[form_id]
        if not done.cancelled():
            # seen as retrieved, also when nobody waits for it any more
            done.exception()
