"""Posts are judged one by one and stored all together."""

from datetime import timedelta

import pytest

from hymical.application.forms import (
    AcceptPosts,
    CreateForm,
    ListForms,
    ListSubmissions,
    ShowForm,
    ShowSubmission,
)
from hymical.domain.errors import (
    AlreadyExists,
    EmptySubmission,
    FormClosed,
    FormNotFound,
    NotFound,
    PostRefused,
)
from hymical.domain.forms import PostedForm, Receipt
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import IntakeLimits, RateLimits
from hymical.ports.forms import SubmissionFilter
from tests.builders import LEASE, a_new_destination, a_new_form, ids
from tests.clocks import START
from tests.worlds import World, memory_world


def accept_posts_of(world: World) -> AcceptPosts:
    return AcceptPosts(
        forms=world.forms,
        submissions=world.submissions,
        ids=ids,
        limiter=world.limiter,
        limits=IntakeLimits(),
        rate_limits=RateLimits(),
        duplicate_window=timedelta(0),
    )


def a_post(form_id: str = "contact", *values: str) -> PostedForm:
    return PostedForm(form_id=FormId(form_id), pairs=[("value", value) for value in values])


async def stored_values(world: World) -> list[str]:
    """Of all submissions, the newest last."""
    page = await world.submissions.page(SubmissionFilter(), behind=None, limit=100, looks=100)
    return [submission.fields[0][1][0] for submission in reversed(page.submissions)]


async def test_one_post_becomes_a_submission_and_a_delivery_to_each_destination() -> None:
    world = memory_world()
    destinations = {(await world.destination()).id, (await world.destination()).id}

    (receipt,) = await accept_posts_of(world)([a_post("contact", "1", "2")])

    assert isinstance(receipt, Receipt)
    assert (receipt.form_id, receipt.received_at, receipt.field_count) == ("contact", START, 1)
    submission = await world.submissions.get(receipt.submission_id)
    assert submission.fields == (("value", ("1", "2")),)
    claimed = (await world.queue.claim(limit=10, lease=LEASE)).deliveries
    assert {one.destination.id for one in claimed} == destinations
    assert len({one.message.id for one in claimed}) == 1
    assert {one.message.submission_id for one in claimed} == {receipt.submission_id}


async def test_each_post_of_a_mixed_batch_gets_its_own_answer_in_order() -> None:
    world = memory_world()
    await world.destination()
    await world.forms.add(a_new_form("closed", is_active=False))

    answers = await accept_posts_of(world)(
        [
            a_post("contact", "first"),
            a_post("nowhere", "lost"),
            a_post("closed", "late"),
            a_post("contact"),
            a_post("contact", "second"),
        ]
    )

    first, unknown, closed, empty, second = answers
    assert isinstance(unknown, FormNotFound)
    assert unknown.form_id == "nowhere"
    assert isinstance(closed, FormClosed)
    assert closed.form_id == "closed"
    assert isinstance(empty, EmptySubmission)
    assert await stored_values(world) == ["first", "second"]
    kept = await world.submissions.page(SubmissionFilter(), behind=None, limit=10, looks=100)
    assert [answer.submission_id for answer in (second, first) if isinstance(answer, Receipt)] == [
        submission.id for submission in kept.submissions
    ]
    assert len((await world.queue.claim(limit=10, lease=LEASE)).deliveries) == 2


async def test_nothing_is_stored_for_a_batch_of_refused_posts() -> None:
    world = memory_world()
    await world.destination()
    async with world.wakeups.deliveries() as bell:
        answers = await accept_posts_of(world)([a_post("nowhere", "1"), a_post("contact")])

        assert all(isinstance(answer, PostRefused) for answer in answers)
        assert await stored_values(world) == []
        assert not (await world.queue.claim(limit=10, lease=LEASE)).deliveries
        assert not await bell.wait(0)


async def test_an_empty_batch_has_no_answers() -> None:
    assert await accept_posts_of(memory_world())([]) == []


async def test_a_form_without_destinations_keeps_its_submissions() -> None:
    world = memory_world()
    await world.forms.add(a_new_form())

    await accept_posts_of(world)([a_post("contact", "1")])

    assert await stored_values(world) == ["1"]


async def test_posts_to_several_forms_go_to_their_own_destinations() -> None:
    world = memory_world()
    for form_id in ("one", "two"):
        await world.forms.add(a_new_form(form_id))
        await world.destinations.add(a_new_destination(form_id, f"https://example.com/{form_id}"))

    await accept_posts_of(world)([a_post("two", "2"), a_post("one", "1")])

    claimed = (await world.queue.claim(limit=10, lease=LEASE)).deliveries
    assert {(one.message.form_id, one.destination.url) for one in claimed} == {
        ("one", "https://example.com/one"),
        ("two", "https://example.com/two"),
    }


async def test_the_workers_are_woken_once_it_is_stored() -> None:
    world = memory_world()
    await world.destination()
    async with world.wakeups.deliveries() as bell:
        await accept_posts_of(world)([a_post("contact", "1")])

        assert await bell.wait(0)


async def test_a_form_is_created_once() -> None:
    world = memory_world()
    create = CreateForm(forms=world.forms, limits=IntakeLimits())

    form = await create(a_new_form())

    assert (form.id, form.is_active, form.created_at) == ("contact", True, START)
    assert await ShowForm(forms=world.forms)(form.id) == form
    assert await ListForms(forms=world.forms)(after=None, limit=10) == [form]
    with pytest.raises(AlreadyExists):
        await create(a_new_form())


async def test_submissions_are_listed_the_newest_first() -> None:
    world = memory_world()
    await world.forms.add(a_new_form())
    answers = await accept_posts_of(world)([a_post("contact", "1"), a_post("contact", "2")])
    listed = await ListSubmissions(submissions=world.submissions)(
        SubmissionFilter(form_id=FormId("contact")), behind=None, limit=1
    )

    (newest,) = listed.submissions
    assert newest == await ShowSubmission(submissions=world.submissions)(newest.id)
    assert isinstance(answers[1], Receipt)
    assert newest.id == answers[1].submission_id
    with pytest.raises(NotFound):
        await ShowSubmission(submissions=world.submissions)(SubmissionId("sub_0"))
