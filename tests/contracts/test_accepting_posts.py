"""What becomes of posts: repetitions, spam, origins, and forms that change; on both kinds of adapters."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hymical.application.forms import AcceptPosts, ChangeForm, DeleteForm, MarkGood
from hymical.domain.errors import (
    EmptySubmission,
    FieldValueTooLong,
    FormNotEmpty,
    FormNotFound,
    IdempotencyConflict,
    InvalidIdempotencyKey,
    InvalidValue,
    MalformedBody,
    NotFound,
    NotSpam,
    OriginNotAllowed,
    PostRefused,
    RateLimited,
    TooManyFields,
)
from hymical.domain.forms import PostedForm, Receipt
from hymical.domain.ids import FormId
from hymical.domain.limits import FormLimits, IntakeLimits, RateLimit, RateLimits, tightened
from hymical.ports.forms import Arrival, SubmissionFilter
from tests.builders import LEASE, a_new_form, a_submission, ids
from tests.worlds import World

CONTACT = FormId("contact")
POST = PostedForm(
    form_id=CONTACT, pairs=(("email", "zoe@example.com"), ("topic", "api")), visitor=b"somebody"
)


async def accept(
    world: World, *posts: PostedForm, rate_limits: RateLimits | None = None
) -> Sequence[Receipt | PostRefused]:
    accept_posts = AcceptPosts(
        forms=world.forms,
        submissions=world.submissions,
        ids=ids,
        limiter=world.limiter,
        limits=IntakeLimits(),
        rate_limits=rate_limits or RateLimits(),
        duplicate_window=timedelta(seconds=10),
    )
    return await accept_posts(posts)


async def accepted(world: World, *posts: PostedForm) -> list[Receipt]:
    answers = await accept(world, *posts)
    assert all(isinstance(answer, Receipt) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Receipt)]


async def stored(world: World, *, spam: bool = False) -> int:
    page = await world.submissions.page(SubmissionFilter(spam=spam), behind=None, limit=100, looks=100)
    return len(page.submissions)


async def owed(world: World) -> int:
    return len((await world.queue.claim(limit=100, lease=LEASE)).deliveries)


async def change(world: World, **changes: Any) -> None:
    await ChangeForm(forms=world.forms, transactions=world.transactions, limits=IntakeLimits())(
        CONTACT, changes
    )


def with_key(key: str, post: PostedForm = POST) -> PostedForm:
    return replace(post, idempotency_key=key)


async def test_a_double_click_is_one_submission_and_one_delivery(world: World) -> None:
    await world.destination()
    (first,) = await accepted(world, POST)
    world.clock.move(timedelta(seconds=9))

    (second,) = await accepted(world, POST)

    assert not first.duplicate
    assert second == replace(first, duplicate=True)
    assert (await stored(world), await owed(world)) == (1, 1)


async def test_the_same_text_later_is_another_submission(world: World) -> None:
    await world.destination()
    (first,) = await accepted(world, POST)
    world.clock.move(timedelta(seconds=10))

    (second,) = await accepted(world, POST)

    assert second.submission_id != first.submission_id
    assert (await stored(world), await owed(world)) == (2, 2)


@pytest.mark.parametrize(
    "other",
    [
        replace(POST, visitor=b"somebody else"),
        replace(POST, pairs=(("email", "zoe@example.com"), ("topic", "API"))),
        replace(POST, pairs=(("topic", "api"), ("email", "zoe@example.com"))),
        with_key("k"),
    ],
)
async def test_what_differs_in_content_or_source_is_no_double_click(world: World, other: PostedForm) -> None:
    await world.destination()

    one, two = await accepted(world, POST, other)

    assert not one.duplicate
    assert not two.duplicate
    assert await stored(world) == 2


async def test_without_a_source_nothing_is_taken_for_a_double_click(world: World) -> None:
    await world.destination()
    anonymous = replace(POST, visitor=None)

    await accepted(world, anonymous, anonymous)

    assert await stored(world) == 2


async def test_a_double_click_within_one_batch_is_one_too(world: World) -> None:
    await world.destination()

    one, two, three = await accepted(world, POST, POST, POST)

    assert [answer.duplicate for answer in (one, two, three)] == [False, True, True]
    assert {answer.submission_id for answer in (one, two, three)} == {one.submission_id}
    assert (await stored(world), await owed(world)) == (1, 1)


async def test_simultaneous_double_clicks_in_separate_transactions_are_one(world: World) -> None:
    await world.destination()

    answers = await asyncio.gather(*(accepted(world, POST) for _ in range(6)))

    assert sorted(answer.duplicate for (answer,) in answers) == [False] + [True] * 5
    assert (await stored(world), await owed(world)) == (1, 1)


async def test_a_form_has_a_window_of_its_own_and_can_switch_it_off(world: World) -> None:
    await world.destination()
    await change(world, duplicate_window=timedelta(0))
    await accepted(world, POST, POST)
    assert await stored(world) == 2

    await change(world, duplicate_window=timedelta(hours=1))
    await accepted(world, POST)
    world.clock.move(timedelta(minutes=59))
    (again,) = await accepted(world, POST)
    assert again.duplicate


async def test_an_idempotency_key_gives_the_first_answer_whenever_it_comes_again(world: World) -> None:
    await world.destination()
    (first,) = await accepted(world, with_key("order-1"))
    world.clock.move(timedelta(days=30))

    (second,) = await accepted(world, with_key("order-1"))

    assert second == replace(first, duplicate=True)
    assert (await stored(world), await owed(world)) == (1, 1)


async def test_other_content_under_the_same_key_is_a_conflict_and_changes_nothing(world: World) -> None:
    await world.destination()
    other = replace(POST, pairs=(("email", "else@example.com"),))
    await accepted(world, with_key("order-1"))

    (refused,) = await accept(world, with_key("order-1", other))
    _, also_refused = await accept(world, with_key("order-2"), with_key("order-2", other))

    assert isinstance(refused, IdempotencyConflict)
    assert isinstance(also_refused, IdempotencyConflict)
    assert await stored(world) == 2


async def test_an_idempotency_key_never_crosses_forms(world: World) -> None:
    await world.destination()
    await world.forms.add(a_new_form("other"))
    elsewhere = replace(with_key("order-1"), form_id=FormId("other"))

    one, two = await accepted(world, with_key("order-1"), elsewhere)

    assert not two.duplicate
    assert one.submission_id != two.submission_id


async def test_simultaneous_posts_with_one_key_are_one_submission(world: World) -> None:
    await world.destination()

    answers = await asyncio.gather(*(accepted(world, with_key("order-1")) for _ in range(6)))

    assert sorted(answer.duplicate for (answer,) in answers) == [False] + [True] * 5
    assert len({answer.submission_id for (answer,) in answers}) == 1
    assert (await stored(world), await owed(world)) == (1, 1)


@pytest.mark.parametrize("key", ["", "with space", "ü", "x" * 256, "a\tb"])
async def test_an_unusable_idempotency_key_is_refused_by_name(world: World, key: str) -> None:
    await world.destination()
    (refused,) = await accept(world, with_key(key))
    assert isinstance(refused, InvalidIdempotencyKey)


# Rate limits


async def test_a_source_that_posts_too_much_is_refused_and_others_are_not(world: World) -> None:
    await world.destination()
    limits = RateLimits(source=RateLimit(requests=3, window=timedelta(seconds=60)))
    busy = [replace(POST, pairs=(("n", str(n)),), source=b"busy") for n in range(5)]
    calm = replace(POST, source=b"calm")

    answers = await accept(world, *busy, calm, rate_limits=limits)

    assert [isinstance(answer, RateLimited) for answer in answers] == [False] * 3 + [True] * 2 + [False]
    assert await stored(world) == 4
    refused = answers[4]
    assert isinstance(refused, RateLimited)
    world.clock.move(refused.retry_after)
    (again,) = await accept(world, busy[4], rate_limits=limits)
    assert isinstance(again, Receipt)


async def test_a_post_that_is_refused_spends_its_source_s_budget_too(world: World) -> None:
    await world.destination()
    limits = RateLimits(source=RateLimit(requests=2, window=timedelta(seconds=60)))
    unreadable = replace(POST, pairs=(), source=b"bot", refusal=MalformedBody("it breaks off"))
    empty = replace(POST, pairs=(), source=b"bot")

    one, two, three = await accept(world, unreadable, empty, replace(POST, source=b"bot"), rate_limits=limits)

    assert isinstance(one, MalformedBody)
    assert isinstance(two, EmptySubmission)
    assert isinstance(three, RateLimited)


async def test_a_form_has_a_limit_over_all_its_sources(world: World) -> None:
    await world.destination()
    await world.forms.add(a_new_form("other"))
    limits = RateLimits(form=RateLimit(requests=2, window=timedelta(seconds=60)))
    posts = [replace(POST, pairs=(("n", str(n)),), source=bytes([n])) for n in range(3)]

    answers = await accept(world, *posts, replace(POST, form_id=FormId("other")), rate_limits=limits)

    assert [isinstance(answer, RateLimited) for answer in answers] == [False, False, True, False]


# Spam


@pytest.mark.parametrize("trap", ["_gotcha", "website"])
async def test_a_filled_honeypot_is_kept_as_spam_and_not_delivered(world: World, trap: str) -> None:
    await world.destination()
    await change(world, honeypot_field="website")
    caught = replace(POST, pairs=(*POST.pairs, (trap, "http://spam.example")))

    clean, spam = await accepted(world, POST, replace(caught, visitor=b"a bot"))

    assert spam == replace(clean, submission_id=spam.submission_id)
    assert (await stored(world), await stored(world, spam=True), await owed(world)) == (1, 1, 1)
    kept = await world.submissions.get(spam.submission_id)
    assert dict(kept.fields) == {"email": ("zoe@example.com",), "topic": ("api",)}


async def test_an_empty_honeypot_is_a_clean_post_without_it(world: World) -> None:
    await world.destination()
    (clean,) = await accepted(world, replace(POST, pairs=(*POST.pairs, ("_gotcha", ""))))
    assert clean.field_count == 2
    assert await stored(world) == 1


async def test_spam_that_is_marked_good_is_delivered_once(world: World) -> None:
    destination = await world.destination()
    (spam,) = await accepted(world, replace(POST, pairs=(*POST.pairs, ("_gotcha", "x"))))
    mark_good = MarkGood(
        forms=world.forms,
        submissions=world.submissions,
        queue=world.queue,
        transactions=world.transactions,
        ids=ids,
    )

    good = await mark_good(spam.submission_id)
    with pytest.raises(NotSpam):
        await mark_good(spam.submission_id)

    assert not good.is_spam
    (claimed,) = (await world.queue.claim(limit=10, lease=LEASE)).deliveries
    assert (claimed.destination.id, claimed.message.submission_id) == (destination.id, spam.submission_id)
    assert (await stored(world), await stored(world, spam=True)) == (1, 0)


# Origins, and where to go on


async def test_with_a_list_set_other_origins_are_refused_and_missing_ones_are_not(world: World) -> None:
    await world.destination()
    await change(world, allowed_origins=("https://example.com",))
    origins = ("https://example.com", None, "null", "https://example.org", "http://example.com")

    answers = await accept(world, *(replace(POST, origin=origin, visitor=None) for origin in origins))

    assert [isinstance(answer, OriginNotAllowed) for answer in answers] == [False, False, False, True, True]
    assert await stored(world) == 3


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [
        (None, "https://example.com/thanks"),
        ("https://example.com/other?x=1#y", "https://example.com/other?x=1#y"),
        ("https://shop.example:8443/", "https://shop.example:8443/"),
        ("https://shop.example/", "https://example.com/thanks"),
        ("http://example.com/", "https://example.com/thanks"),
        ("//evil.example/", "https://example.com/thanks"),
        ("https://example.com@evil.example/", "https://example.com/thanks"),
        ("https://example.com\\@evil.example/", "https://example.com/thanks"),
        ("https:/\\evil.example", "https://example.com/thanks"),
        ("javascript:alert(1)", "https://example.com/thanks"),
        ("/relative", "https://example.com/thanks"),
        ("https://example.com/\r\nset-cookie: a=b", "https://example.com/thanks"),
        (" https://evil.example/", "https://example.com/thanks"),
        ("https://example.com.evil.example/", "https://example.com/thanks"),
    ],
)
async def test_next_leads_only_to_allowed_places_and_is_never_stored(
    world: World, wanted: str | None, leads_to: str
) -> None:
    await world.destination()
    await change(
        world, redirect_url="https://example.com/thanks", allowed_origins=("https://shop.example:8443",)
    )
    pairs = POST.pairs if wanted is None else (*POST.pairs, ("_next", wanted), ("_nextstep", "kept"))

    (receipt,) = await accepted(world, replace(POST, pairs=pairs))

    assert receipt.continue_at == leads_to
    names = [name for name, _ in (await world.submissions.get(receipt.submission_id)).fields]
    assert names == ["email", "topic"] + ([] if wanted is None else ["_nextstep"])


# Forms


async def test_a_form_is_changed_field_by_field(world: World) -> None:
    await world.destination()
    before = await world.forms.get(CONTACT)

    await change(world, name="New", is_active=False)

    assert await world.forms.get(CONTACT) == replace(before, name="New", is_active=False)
    with pytest.raises(InvalidValue):
        await change(world, allowed_origins=("https://example.com/path",))
    with pytest.raises(InvalidValue):
        await change(world, redirect_url="javascript:alert(1)")
    assert (await world.forms.get(CONTACT)).name == "New"


async def test_a_form_that_holds_submissions_is_not_deleted_and_an_empty_one_is(world: World) -> None:
    destination = await world.destination()
    delete = DeleteForm(forms=world.forms, transactions=world.transactions)
    (receipt,) = await accepted(world, POST)
    with pytest.raises(FormNotEmpty):
        await delete(CONTACT)
    assert (await world.destinations.get(destination.id)).id == destination.id

    async with world.transactions.begin():
        await world.queue.withdraw_submission(receipt.submission_id)
        await world.submissions.erase(receipt.submission_id)
    await delete(CONTACT)

    with pytest.raises(NotFound):
        await world.forms.get(CONTACT)
    with pytest.raises(NotFound):
        await world.destinations.get(destination.id)
    with pytest.raises(NotFound):
        await delete(CONTACT)


async def test_a_post_whose_form_is_deleted_before_it_is_stored_is_told_that_there_is_none(
    world: World,
) -> None:
    await world.forms.add(a_new_form())
    await world.forms.delete(CONTACT)
    post = a_submission(CONTACT)

    with pytest.raises(FormNotFound):
        await world.submissions.receive([Arrival(submission=post, repeats_since=post.received_at)])


ONE_AN_HOUR = RateLimit(requests=1, window=timedelta(hours=1))
FOUR_AN_HOUR = RateLimit(requests=4, window=timedelta(hours=1))


async def test_whatever_a_post_is_refused_for_it_is_told_what_is_left_of_its_limit(world: World) -> None:
    await world.forms.add(replace(a_new_form(), allowed_origins=("https://example.com",)))
    await accept(world, with_key("taken"))
    posts = [
        replace(POST, form_id=FormId("nowhere")),
        replace(POST, refusal=MalformedBody("a flaw")),
        replace(POST, pairs=()),
        replace(POST, origin="https://example.org"),
        replace(with_key("taken"), pairs=(("other", "content"),)),
        POST,
        POST,
    ]

    answers = await accept(
        world,
        *(replace(post, source=b"s" * 32) for post in posts),
        rate_limits=RateLimits(source=RateLimit(requests=6, window=timedelta(hours=1))),
    )

    assert [isinstance(answer, Receipt) for answer in answers] == [False] * 5 + [True, False]
    standings = [answer.standing for answer in answers]
    assert [one and (one.remaining, one.allowed) for one in standings] == [
        *((left, True) for left in (5, 4, 3, 2, 1, 0)),
        (0, False),
    ]
    assert isinstance(answers[6], RateLimited)
    assert standings[6]
    assert answers[6].retry_after == standings[6].retry_after


async def test_a_post_that_its_form_s_limit_refuses_is_told_of_that_one(world: World) -> None:
    await world.forms.add(a_new_form())
    limits = RateLimits(source=FOUR_AN_HOUR, form=ONE_AN_HOUR)
    post = replace(POST, source=b"s" * 32)

    accepted_one, refused = await accept(world, post, with_key("k", post), rate_limits=limits)

    assert accepted_one.standing
    assert (accepted_one.standing.limit, accepted_one.standing.remaining) == (FOUR_AN_HOUR, 3)
    assert refused.standing
    assert (refused.standing.limit, refused.standing.retry_after) == (ONE_AN_HOUR, timedelta(hours=1))


async def test_without_limits_nothing_is_told_of_them(world: World) -> None:
    await world.forms.add(a_new_form())

    answers = await accept(world, POST, replace(POST, pairs=()))

    assert [answer.standing for answer in answers] == [None, None]


@pytest.mark.parametrize("own", [ONE_AN_HOUR, FOUR_AN_HOUR])
async def test_a_form_s_own_rate_limit_takes_the_place_of_the_operator_s_wider_or_tighter(
    world: World, own: RateLimit
) -> None:
    await world.forms.add(replace(a_new_form(), limits=FormLimits(rate_limit=own)))
    operators = RateLimits(form=RateLimit(requests=2, window=timedelta(hours=1)))

    answers = await accept(world, *(with_key(f"{n}") for n in range(6)), rate_limits=operators)

    assert sum(isinstance(answer, Receipt) for answer in answers) == own.requests


async def test_where_limits_are_switched_off_a_form_s_own_is_too(world: World) -> None:
    await world.forms.add(replace(a_new_form(), limits=FormLimits(rate_limit=ONE_AN_HOUR)))

    assert len(await accepted(world, *(with_key(f"{n}") for n in range(6)))) == 6


async def test_a_limit_that_was_widened_is_not_held_shut_by_what_was_spent_of_the_narrow_one(
    world: World,
) -> None:
    a_day = RateLimit(requests=1, window=timedelta(days=1))
    a_second = RateLimit(requests=1, window=timedelta(seconds=1))
    operators = RateLimits(source=a_day, form=a_day)
    post = replace(POST, source=b"s" * 32)
    await world.forms.add(a_new_form())
    await accept(world, post, rate_limits=operators)

    await change(world, limits=FormLimits(rate_limit=a_second))
    (answer,) = await accept(world, post, rate_limits=RateLimits(source=a_second, form=a_day))

    assert isinstance(answer, Receipt)


async def test_a_form_s_limits_hold_its_posts_though_the_operator_s_became_tighter(world: World) -> None:
    await world.forms.add(replace(a_new_form(), limits=FormLimits(max_fields=90, max_field_value_length=3)))
    long, many = (("a", "four"),), tuple(("a", "b") for _ in range(91))

    answers = await accept(world, replace(POST, pairs=long), replace(POST, pairs=many))

    assert [type(answer) for answer in answers] == [FieldValueTooLong, TooManyFields]
    limits = tightened(IntakeLimits(max_fields=50), FormLimits(max_fields=90))
    assert limits == IntakeLimits(max_fields=50)


async def test_a_form_is_renamed_although_its_limits_are_wider_than_the_operator_s_by_now(
    world: World,
) -> None:
    await world.forms.add(replace(a_new_form(), limits=FormLimits(max_fields=1_000)))

    await change(world, name="Renamed")
    with pytest.raises(InvalidValue):
        await change(world, limits=FormLimits(max_fields=999))

    form = await world.forms.get(CONTACT)
    assert (form.name, form.limits.max_fields) == ("Renamed", 1_000)
