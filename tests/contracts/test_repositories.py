"""What the repositories of forms, submissions, destinations and keys promise, and transactions over them."""

from datetime import timedelta

import pytest

from hymical.domain.errors import AlreadyExists, NotFound
from hymical.domain.ids import DestinationId, FormId, KeyId, SubmissionId
from hymical.domain.keys import NewKey
from tests.builders import a_new_destination, a_new_form, a_submission, ids
from tests.worlds import World


async def test_a_form_is_kept(world: World) -> None:
    form = await world.forms.add(a_new_form("contact", is_active=False))

    assert (form.id, form.name, form.is_active) == ("contact", "Contact", False)
    assert form.created_at == world.clock.now()
    assert await world.forms.get(FormId("contact")) == form


async def test_a_form_s_id_is_taken_once(world: World) -> None:
    await world.forms.add(a_new_form())
    with pytest.raises(AlreadyExists) as refused:
        await world.forms.add(a_new_form())
    assert (refused.value.kind, refused.value.id) == ("form", "contact")


async def test_what_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        await world.forms.get(FormId("missing"))
    with pytest.raises(NotFound):
        await world.submissions.get(SubmissionId("sub_missing"))
    with pytest.raises(NotFound):
        await world.destinations.get(DestinationId("dst_missing"))
    with pytest.raises(NotFound):
        await world.destinations.page(FormId("missing"), after=None, limit=1)
    with pytest.raises(NotFound):
        await world.destinations.add(a_new_destination("missing"))
    with pytest.raises(NotFound):
        await world.keys.revoke(KeyId("key_missing"))


async def test_forms_are_listed_by_id(world: World) -> None:
    for form_id in ("zebra", "apple", "a-b", "a_b", "mango"):
        await world.forms.add(a_new_form(form_id))

    first = await world.forms.page(after=None, limit=3)
    rest = await world.forms.page(after=first[-1].id, limit=3)

    assert [form.id for form in (*first, *rest)] == ["a-b", "a_b", "apple", "mango", "zebra"]


async def test_the_intake_knows_forms_with_their_destinations(world: World) -> None:
    await world.forms.add(a_new_form("one"))
    await world.forms.add(a_new_form("two"))
    here = await world.destinations.add(a_new_destination("one", "https://example.com/1"))
    there = await world.destinations.add(a_new_destination("one", "https://example.com/2"))

    desk = await world.forms.intake({FormId("one"), FormId("two"), FormId("missing")}, {1, 2})

    assert desk.now == world.clock.now()
    assert desk.intakes.keys() == {"one", "two"}
    assert desk.intakes[FormId("one")].destinations == (here, there)
    assert desk.intakes[FormId("two")].destinations == ()
    assert (await world.forms.intake({FormId("missing")}, ())).intakes == {}


async def test_submissions_are_listed_the_newest_first(world: World) -> None:
    await world.forms.add(a_new_form("one"))
    await world.forms.add(a_new_form("two"))
    new = [a_submission("one"), a_submission("two"), a_submission("one")]
    await world.submissions.add(new)

    everything = await world.submissions.page(form_id=None, spam=False, before=None, limit=10)
    of_one = await world.submissions.page(form_id=FormId("one"), spam=False, before=new[2].id, limit=10)

    assert list(everything) == new[::-1]
    assert list(of_one) == [new[0]]


async def test_fields_keep_their_order_and_every_character(world: World) -> None:
    await world.forms.add(a_new_form())
    fields = (("z", ("1",)), ("a", ("2", "", "2")), ("名前", ('Zoë 👋\u2028\\ "quoted" \n',)), ("id", ("x",)))
    submission = a_submission(fields=fields)

    await world.submissions.add([submission])

    assert (await world.submissions.get(submission.id)).fields == fields


async def test_destinations_keep_their_secrets_and_are_listed_by_id(world: World) -> None:
    first, second = (
        await world.destination("https://example.com/1"),
        await world.destination("https://example.com/2"),
    )

    page = await world.destinations.page(FormId("contact"), after=None, limit=10)

    assert list(page) == sorted((first, second), key=lambda destination: destination.id)
    assert (await world.destinations.get(first.id)).secrets == first.secrets
    assert list(await world.destinations.page(FormId("contact"), after=page[0].id, limit=10)) == [page[1]]
    assert list(await world.destinations.page(FormId("contact"), after=page[1].id, limit=10)) == []


async def test_a_key_is_found_by_its_digest_and_revoked_once(world: World) -> None:
    key = await world.keys.add(NewKey(id=ids.key(), name="ops", digest=b"\x01" * 32))
    assert await world.keys.find(b"\x01" * 32) == key
    assert await world.keys.find(b"\x02" * 32) is None

    revoked = await world.keys.revoke(key.id)
    world.clock.move(timedelta(hours=1))

    assert revoked.revoked_at is not None
    assert await world.keys.revoke(key.id) == revoked
    assert list(await world.keys.all()) == [revoked]


async def test_a_transaction_within_a_transaction_is_a_mistake(world: World) -> None:
    async with world.transactions.begin():
        with pytest.raises(RuntimeError, match="open in this task"):
            async with world.transactions.begin():
                pass


async def test_a_transaction_keeps_all_or_nothing(world: World) -> None:
    class Broken(Exception):
        pass

    with pytest.raises(Broken):
        async with world.transactions.begin():
            await world.forms.add(a_new_form())
            raise Broken
    with pytest.raises(NotFound):
        await world.forms.get(FormId("contact"))

    async with world.transactions.begin():
        await world.forms.add(a_new_form())
    assert (await world.forms.get(FormId("contact"))).id == "contact"
