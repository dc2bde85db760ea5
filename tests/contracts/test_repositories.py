"""What the repositories of forms, submissions, destinations and keys promise, and transactions over them."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hymical.domain.errors import AlreadyExists, NotFound
from hymical.domain.ids import DestinationId, FormId, KeyId, SubmissionId
from hymical.domain.keys import NewKey
from hymical.domain.limits import FormLimits, RateLimit
from hymical.ports.forms import SubmissionFilter, SubmissionPlace
from hymical.ports.keys import FoundKey
from tests.builders import a_new_destination, a_new_form, a_submission, ids
from tests.clocks import START
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

    desk = await world.forms.intake({FormId("one"), FormId("two"), FormId("missing")})

    assert desk.now == world.clock.now()
    assert desk.intakes.keys() == {"one", "two"}
    assert desk.intakes[FormId("one")].destinations == (here, there)
    assert desk.intakes[FormId("two")].destinations == ()
    assert (await world.forms.intake({FormId("missing")})).intakes == {}


async def test_submissions_are_listed_the_newest_first(world: World) -> None:
    await world.forms.add(a_new_form("one"))
    await world.forms.add(a_new_form("two"))
    new = [a_submission("one"), a_submission("two"), a_submission("one")]
    await world.stores(new)

    everything = await world.submissions.page(SubmissionFilter(), behind=None, limit=10, looks=10)
    of_one = await world.submissions.page(
        SubmissionFilter(form_id=FormId("one")),
        behind=SubmissionPlace(received_at=new[2].received_at, id=new[2].id),
        limit=10,
        looks=10,
    )

    assert list(everything.submissions) == new[::-1]
    assert list(of_one.submissions) == [new[0]]
    assert (everything.end, of_one.end) == (None, None)


async def test_the_order_of_submissions_is_that_of_the_database_s_time_and_not_of_ids(world: World) -> None:
    await world.forms.add(a_new_form())
    late = a_submission(at=START + timedelta(hours=1))
    early = a_submission(at=START)
    assert late.id < early.id
    await world.stores([late, early])

    page = await world.submissions.page(SubmissionFilter(), behind=None, limit=1, looks=10)

    assert list(page.submissions) == [late]
    assert page.end == SubmissionPlace(received_at=late.received_at, id=late.id)
    rest = await world.submissions.page(SubmissionFilter(), behind=page.end, limit=1, looks=10)
    assert list(rest.submissions) == [early]


async def test_submissions_are_found_by_when_they_were_received_both_ends_left_out(world: World) -> None:
    await world.forms.add(a_new_form())
    new = [a_submission(at=START + timedelta(hours=hours)) for hours in range(5)]
    await world.stores(new)

    page = await world.submissions.page(
        SubmissionFilter(received_after=START, received_before=START + timedelta(hours=4)),
        behind=None,
        limit=10,
        looks=10,
    )

    assert list(page.submissions) == new[3:0:-1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *((text, 1) for text in ("zoe", "ZOE@", "ärger", "ÄRGER", "名", "100%_", "stadt", "%", "r\nu")),
        *((text, 0) for text in ("_o", "zoe%", '", "', "\\n", "[")),
    ],
)
async def test_text_is_found_in_names_and_values_capital_or_not_and_means_itself(
    world: World, text: str, found: int
) -> None:
    await world.forms.add(a_new_form())
    fields = (("email", ("first", "Zoe@example.com")), ("Stadt", ("Ärger\nund",)), ("名前", ("100%_", "")))
    await world.stores([a_submission(fields=fields), a_submission(fields=(("other", ("x",)),))])

    page = await world.submissions.page(SubmissionFilter(text=text), behind=None, limit=10, looks=10)

    assert len(page.submissions) == found


async def test_a_page_ends_where_it_has_looked_at_enough_and_the_walk_finds_everything_once(
    world: World,
) -> None:
    await world.forms.add(a_new_form())
    new = [a_submission(fields=(("n", (f"<{number}>",)),)) for number in range(30)]
    wanted = [new[3], new[4], new[29]]
    for one in wanted:
        new[new.index(one)] = replace(one, fields=(("n", ("needle",)),))
    await world.stores(new)

    found, sizes, behind = [], [], None
    while True:
        page = await world.submissions.page(SubmissionFilter(text="Needle"), behind=behind, limit=1, looks=10)
        found += [one.id for one in page.submissions]
        sizes.append(len(page.submissions))
        behind = page.end
        if behind is None:
            break

    assert found == [one.id for one in reversed(wanted)]
    # the first has looked at ten, the second too, the third is full, and the last two look at the rest
    assert sizes == [1, 0, 1, 1]


async def test_a_flood_of_spam_is_walked_over_in_pages_that_end(world: World) -> None:
    await world.forms.add(a_new_form())
    good = a_submission()
    spam = [replace(a_submission(), is_spam=True) for _ in range(7)]
    await world.stores([good, *spam])

    first = await world.submissions.page(SubmissionFilter(), behind=None, limit=5, looks=5)
    second = await world.submissions.page(SubmissionFilter(), behind=first.end, limit=5, looks=5)

    assert (list(first.submissions), list(second.submissions), second.end) == ([], [good], None)


async def test_a_form_keeps_its_limits_and_the_intake_knows_them(world: World) -> None:
    limits = FormLimits(
        max_fields=3,
        max_field_name_length=10,
        max_field_value_length=20,
        rate_limit=RateLimit(requests=5, window=timedelta(hours=1)),
    )
    form = await world.forms.add(replace(a_new_form(), limits=limits))
    assert form.limits == limits
    assert (await world.forms.intake({form.id})).intakes[form.id].form == form

    async with world.transactions.begin():
        await world.forms.save(replace(await world.forms.lock(form.id), limits=FormLimits(max_fields=2)))

    assert (await world.forms.get(form.id)).limits == FormLimits(max_fields=2)


async def test_fields_keep_their_order_and_every_character(world: World) -> None:
    await world.forms.add(a_new_form())
    fields = (("z", ("1",)), ("a", ("2", "", "2")), ("名前", ('Zoë 👋\u2028\\ "quoted" \n',)), ("id", ("x",)))
    submission = a_submission(fields=fields)

    await world.stores([submission])

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
    assert await world.keys.find(b"\x01" * 32) == FoundKey(key=key, now=world.clock.now())
    assert await world.keys.find(b"\x02" * 32) is None

    revoked = await world.keys.revoke(key.id)
    world.clock.move(timedelta(hours=1))

    assert revoked.revoked_at is not None
    assert await world.keys.revoke(key.id) == revoked
    assert list(await world.keys.page(after=None, limit=None)) == [revoked]


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
