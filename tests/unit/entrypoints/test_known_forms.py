"""Forms as last seen: no statement more than needed, and an answer while the database is away."""

import asyncio
from contextlib import suppress

import pytest

from hymical.adapters.memory.forms import MemoryFormRepository
from hymical.adapters.memory.store import MemoryStore
from hymical.application.forms import ShowForm
from hymical.domain.errors import StorageUnavailable
from hymical.domain.forms import Form
from hymical.domain.ids import FormId
from hymical.entrypoints.api.known_forms import KnownForms
from tests.builders import a_new_form
from tests.clocks import StoppedClock

CONTACT = FormId("contact")
LONG = 3_600.0


class CountingForms(MemoryFormRepository):
    """Counts what it is asked; `away` is a database that does not answer, `held` one that is slow."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), StoppedClock())
        self.asked: list[FormId] = []
        self.reached = asyncio.Event()
        self.away = False
        self.held: asyncio.Event | None = None

    async def get(self, form_id: FormId) -> Form:
        self.asked.append(form_id)
        self.reached.set()
        if self.held is not None:
            await self.held.wait()
        if self.away:
            raise StorageUnavailable
        return await super().get(form_id)


@pytest.fixture
async def forms() -> CountingForms:
    forms = CountingForms()
    await forms.add(a_new_form())
    return forms


@pytest.fixture
def known(forms: CountingForms) -> KnownForms:
    return KnownForms(ShowForm(forms=forms), size=2)


async def test_a_form_is_looked_for_once_within_its_age(forms: CountingForms, known: KnownForms) -> None:
    found = [await known.find(CONTACT, max_age=LONG) for _ in range(3)]

    assert [form.id if form else None for form in found] == [CONTACT] * 3
    assert forms.asked == [CONTACT]


async def test_an_age_of_zero_looks_every_time(forms: CountingForms, known: KnownForms) -> None:
    for _ in range(3):
        await known.find(CONTACT, max_age=0)

    assert len(forms.asked) == 3


async def test_those_who_ask_at_once_share_a_look(forms: CountingForms, known: KnownForms) -> None:
    found = await asyncio.gather(*(known.find(CONTACT, max_age=0) for _ in range(50)))

    assert len(forms.asked) == 1
    assert all(found)


async def test_one_who_gives_up_does_not_take_the_look_from_others(
    forms: CountingForms, known: KnownForms
) -> None:
    forms.held = asyncio.Event()
    first, second = (asyncio.create_task(known.find(CONTACT, max_age=0)) for _ in range(2))
    await forms.reached.wait()
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    forms.held.set()

    assert await second


async def test_the_last_seen_form_serves_while_the_database_is_away(
    forms: CountingForms, known: KnownForms
) -> None:
    seen = await known.find(CONTACT, max_age=0)
    forms.away = True

    assert await known.find(CONTACT, max_age=0) == seen
    assert known.last(CONTACT) == seen


async def test_a_form_that_was_never_seen_cannot_be_told_while_the_database_is_away(
    forms: CountingForms, known: KnownForms
) -> None:
    forms.away = True

    with pytest.raises(StorageUnavailable):
        await known.find(CONTACT, max_age=LONG)
    assert known.last(CONTACT) is None


async def test_a_database_that_does_not_answer_is_waited_for_no_longer_than_agreed(
    forms: CountingForms,
) -> None:
    known = KnownForms(ShowForm(forms=forms), patience=0)
    forms.held = asyncio.Event()

    with pytest.raises(StorageUnavailable):
        await known.find(CONTACT, max_age=LONG)


async def test_a_form_that_is_not_there_is_looked_for_again(forms: CountingForms, known: KnownForms) -> None:
    later = FormId("later")
    assert await known.find(later, max_age=LONG) is None
    await forms.add(a_new_form("later"))

    assert await known.find(later, max_age=LONG) is not None


async def test_a_form_that_was_deleted_is_not_known_any_more(known: KnownForms) -> None:
    await known.find(CONTACT, max_age=LONG)
    known.forget(CONTACT)

    assert known.last(CONTACT) is None


async def test_the_form_seen_longest_ago_makes_room(forms: CountingForms, known: KnownForms) -> None:
    for form_id in ("second", "third"):
        await forms.add(a_new_form(form_id))
    for form_id in (CONTACT, FormId("second"), FormId("third")):
        await known.find(form_id, max_age=LONG)

    assert known.last(CONTACT) is None
    assert known.last(FormId("third")) is not None


async def test_closing_waits_for_the_looks_under_way(forms: CountingForms, known: KnownForms) -> None:
    forms.held = asyncio.Event()
    asked = asyncio.create_task(known.find(CONTACT, max_age=0))
    await forms.reached.wait()
    closing = asyncio.create_task(known.close())
    await asyncio.sleep(0)
    assert not closing.done()
    forms.held.set()
    await closing

    assert await asked
