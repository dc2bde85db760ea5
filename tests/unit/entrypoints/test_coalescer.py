"""Posts that arrive together are accepted together."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from hymical.application.forms import AcceptPosts
from hymical.domain.errors import FormClosed, Overloaded, PostRefused, StorageUnavailable
from hymical.domain.forms import PostedForm, Receipt, receipt
from hymical.domain.ids import FormId
from hymical.entrypoints.api.coalescer import Coalescer
from tests.builders import a_submission

Answers = Sequence[Receipt | PostRefused]


def a_post(name: str) -> PostedForm:
    return PostedForm(form_id=FormId(name), pairs=())


class ControlledAcceptPosts:
    """Keeps each batch open until it is told to go on. Answers with receipts that carry the form's id."""

    def __init__(self, *, held: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.begun = asyncio.Condition()
        self.refusals: dict[str, PostRefused] = {}
        self.faults: dict[str, Exception] = {}
        self.judging_fails: Exception | None = None
        self.running = 0
        self.most_running = 0
        self._go_on = asyncio.Semaphore(0 if held else 1_000)
        self._may_judge = asyncio.Event()
        self._may_judge.set()

    def coalescer(self, *, batch: int = 64, characters: int = 524_288, backlog: int = 2_048) -> Coalescer:
        return Coalescer(cast("AcceptPosts", self), batch=batch, characters=characters, backlog=backlog)

    async def judge(self, posts: Sequence[PostedForm]) -> list[str]:
        await self._may_judge.wait()
        if self.judging_fails is not None:
            raise self.judging_fails
        return [post.form_id for post in posts]

    async def store(self, names: list[str]) -> Answers:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        async with self.begun:
            self.batches.append([*names])
            self.begun.notify_all()
        await self._go_on.acquire()
        self.running -= 1
        for name in names:
            if name in self.faults:
                raise self.faults[name]
        return [self.refusals.get(name) or receipt(a_submission(name), None, None) for name in names]

    def hold_judging(self) -> None:
        self._may_judge.clear()

    def go_on_judging(self) -> None:
        self._may_judge.set()

    def go_on(self, batches: int = 1_000) -> None:
        for _ in range(batches):
            self._go_on.release()

    async def batch(self, number: int) -> list[str]:
        """The posts of that batch, once it has begun."""
        async with asyncio.timeout(5), self.begun:
            await self.begun.wait_for(lambda: len(self.batches) >= number)
        return self.batches[number - 1]


class Callers:
    """Several who post, each in a task of its own."""

    def __init__(self, coalescer: Coalescer) -> None:
        self._coalescer = coalescer
        self._tasks: dict[str, asyncio.Task[Receipt]] = {}

    async def post(self, *names: str) -> None:
        """Returns when each of them waits for its answer."""
        for name in names:
            self._tasks[name] = asyncio.create_task(self._coalescer.accept(a_post(name)))
        await asyncio.sleep(0)

    def leave(self, name: str) -> None:
        self._tasks[name].cancel()

    async def answer(self, name: str) -> Receipt:
        async with asyncio.timeout(5):
            return await self._tasks[name]

    async def answers(self, *names: str) -> list[str]:
        return [(await self.answer(name)).form_id for name in names]


async def accepted(coalescer: Coalescer, name: str) -> str:
    async with asyncio.timeout(5):
        return (await coalescer.accept(a_post(name))).form_id


async def test_alone_a_post_waits_for_nobody() -> None:
    accept_posts = ControlledAcceptPosts(held=False)

    assert await accepted(accept_posts.coalescer(), "one") == "one"
    assert accept_posts.batches == [["one"]]


async def test_a_post_right_behind_the_last_answer_is_not_left_waiting() -> None:
    accept_posts = ControlledAcceptPosts(held=False)
    coalescer = accept_posts.coalescer()

    for name in ("one", "two"):
        assert await accepted(coalescer, name) == name

    assert accept_posts.batches == [["one"], ["two"]]


async def test_those_that_come_while_a_batch_is_stored_go_together_into_the_next() -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer())
    await callers.post("one")
    assert await accept_posts.batch(1) == ["one"]

    await callers.post("two", "three", "four")
    assert accept_posts.batches == [["one"]]
    accept_posts.go_on()

    assert await callers.answers("one", "two", "three", "four") == ["one", "two", "three", "four"]
    assert accept_posts.batches == [["one"], ["two", "three", "four"]]


async def test_a_batch_holds_no_more_than_it_may() -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer(batch=2))
    await callers.post("one")
    await accept_posts.batch(1)

    await callers.post("two", "three", "four", "five", "six")
    accept_posts.go_on()

    await callers.answers("one", "two", "three", "four", "five", "six")
    assert accept_posts.batches == [["one"], ["two", "three"], ["four", "five"], ["six"]]


async def test_large_posts_do_not_all_go_into_one_statement() -> None:
    accept_posts = ControlledAcceptPosts(held=False)
    coalescer = accept_posts.coalescer(characters=10)
    sizes = {"largest": 25, "large": 8, "small": 1, "other": 1, "last": 1}

    await asyncio.gather(
        *(coalescer.accept(replace(a_post(name), pairs=[("", "x" * size)])) for name, size in sizes.items())
    )

    assert accept_posts.batches == [["largest"], ["large", "small", "other"], ["last"]]


async def test_one_batch_is_stored_after_the_other() -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer(batch=1))
    await callers.post("one", "two", "three", "four")

    accept_posts.go_on()

    await callers.answers("one", "two", "three", "four")
    assert accept_posts.most_running == 1


async def test_a_post_is_answered_when_its_own_batch_is_stored_and_not_before() -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer())
    await callers.post("one")
    await accept_posts.batch(1)
    await callers.post("two")

    accept_posts.go_on(1)

    assert await callers.answers("one") == ["one"]
    assert await accept_posts.batch(2) == ["two"]
    callers.leave("two")
    with pytest.raises(asyncio.CancelledError):
        await callers.answer("two")
    accept_posts.go_on()


async def test_more_than_the_backlog_holds_are_turned_away_at_once() -> None:
    accept_posts = ControlledAcceptPosts()
    coalescer = accept_posts.coalescer(backlog=2)
    callers = Callers(coalescer)
    await callers.post("one")
    await accept_posts.batch(1)
    await callers.post("two", "three")

    with pytest.raises(Overloaded):
        await accepted(coalescer, "four")

    accept_posts.go_on()
    assert await callers.answers("one", "two", "three") == ["one", "two", "three"]
    assert await accepted(coalescer, "five") == "five"


async def test_a_refusal_reaches_the_one_who_earned_it_and_nobody_else() -> None:
    accept_posts = ControlledAcceptPosts()
    accept_posts.refusals["two"] = FormClosed("two")
    callers = Callers(accept_posts.coalescer())
    await callers.post("one", "two", "three")
    accept_posts.go_on()

    with pytest.raises(FormClosed):
        await callers.answer("two")
    assert await callers.answers("one", "three") == ["one", "three"]
    assert accept_posts.batches == [["one", "two", "three"]]


async def test_storage_that_is_away_is_told_to_each_and_not_tried_again_for_each() -> None:
    accept_posts = ControlledAcceptPosts()
    accept_posts.faults["two"] = StorageUnavailable()
    coalescer = accept_posts.coalescer()
    callers = Callers(coalescer)
    await callers.post("one", "two", "three")
    accept_posts.go_on()

    for name in ("one", "two", "three"):
        with pytest.raises(StorageUnavailable):
            await callers.answer(name)
    assert accept_posts.batches == [["one", "two", "three"]]
    assert await accepted(coalescer, "four") == "four"


async def test_an_unexpected_error_is_narrowed_down_to_the_guilty_one() -> None:
    accept_posts = ControlledAcceptPosts()
    accept_posts.faults["two"] = ZeroDivisionError()
    callers = Callers(accept_posts.coalescer())
    await callers.post("one", "two", "three")
    accept_posts.go_on()

    with pytest.raises(ZeroDivisionError):
        await callers.answer("two")
    assert await callers.answers("one", "three") == ["one", "three"]


async def test_after_an_unexpected_error_the_next_are_accepted() -> None:
    accept_posts = ControlledAcceptPosts(held=False)
    accept_posts.faults["one"] = ZeroDivisionError()
    coalescer = accept_posts.coalescer()

    with pytest.raises(ZeroDivisionError):
        await accepted(coalescer, "one")

    assert await accepted(coalescer, "two") == "two"


@pytest.mark.parametrize("leaver", ["one", "two"])
async def test_a_caller_who_leaves_harms_nobody(leaver: str) -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer())
    await callers.post("one")
    await accept_posts.batch(1)
    await callers.post("two", "three")

    callers.leave(leaver)
    accept_posts.go_on()

    with pytest.raises(asyncio.CancelledError):
        await callers.answer(leaver)
    others = [name for name in ("one", "two", "three") if name != leaver]
    assert await callers.answers(*others) == others


@pytest.mark.parametrize("fault", [StorageUnavailable(), ZeroDivisionError()])
async def test_one_who_left_is_not_told_of_an_error(fault: Exception) -> None:
    accept_posts = ControlledAcceptPosts()
    accept_posts.faults["one"] = fault
    coalescer = accept_posts.coalescer()
    callers = Callers(coalescer)
    await callers.post("one")
    await accept_posts.batch(1)

    callers.leave("one")
    accept_posts.go_on()
    await coalescer.close()

    with pytest.raises(asyncio.CancelledError):
        await callers.answer("one")


async def test_the_next_batch_is_sent_before_those_of_the_last_are_told() -> None:
    accept_posts = ControlledAcceptPosts()
    coalescer = accept_posts.coalescer()
    sent_when_told = list[int]()

    async def post(name: str) -> None:
        await coalescer.accept(a_post(name))
        sent_when_told.append(len(accept_posts.batches))

    async with asyncio.timeout(5), asyncio.TaskGroup() as callers:
        callers.create_task(post("one"))
        await accept_posts.batch(1)
        callers.create_task(post("two"))
        await asyncio.sleep(0)
        accept_posts.go_on(1)
        await accept_posts.batch(2)
        accept_posts.go_on()

    assert sent_when_told == [2, 2]


async def test_whoever_is_stored_is_told_while_the_next_batch_cannot_be_judged() -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer())
    await callers.post("one")
    await accept_posts.batch(1)
    await callers.post("two")
    accept_posts.hold_judging()
    accept_posts.go_on()

    assert await callers.answers("one") == ["one"]
    assert accept_posts.batches == [["one"]]
    accept_posts.go_on_judging()
    assert await callers.answers("two") == ["two"]


@pytest.mark.parametrize("fault", [StorageUnavailable(), ZeroDivisionError()])
async def test_whoever_is_stored_is_told_when_the_next_batch_cannot_be_judged(fault: Exception) -> None:
    accept_posts = ControlledAcceptPosts()
    callers = Callers(accept_posts.coalescer())
    await callers.post("one")
    await accept_posts.batch(1)
    accept_posts.judging_fails = fault
    await callers.post("two", "three")
    accept_posts.go_on()

    assert await callers.answers("one") == ["one"]
    for name in ("two", "three"):
        with pytest.raises(type(fault)):
            await callers.answer(name)


async def test_closing_waits_until_everyone_has_an_answer() -> None:
    accept_posts = ControlledAcceptPosts()
    coalescer = accept_posts.coalescer()
    callers = Callers(coalescer)
    await callers.post("one")
    await accept_posts.batch(1)
    await callers.post("two")

    closing = asyncio.create_task(coalescer.close())
    accept_posts.go_on(1)
    await accept_posts.batch(2)
    assert not closing.done()
    accept_posts.go_on()

    assert await callers.answers("one", "two") == ["one", "two"]
    async with asyncio.timeout(5):
        await closing


async def test_closing_what_is_idle_returns_at_once() -> None:
    async with asyncio.timeout(5):
        await ControlledAcceptPosts().coalescer().close()
