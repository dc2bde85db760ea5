"""Following jobs: many readers of one job cost one watch of it."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from hymical.application.progress import LOOK_AGAIN_SECONDS, JobNews, ListEvents, WatchJob
from hymical.domain.errors import NotFound, StorageUnavailable
from hymical.domain.ids import JobId
from hymical.domain.jobs import FINAL
from hymical.domain.progress import RecordedEvent
from hymical.entrypoints.api.schemas.jobs import EndOut, EventOut
from hymical.ports.jobs import JobView
from hymical.ports.wakeups import Bell

_log = logging.getLogger(__name__)

KEPT_BYTES = 262_144
"""How much of a followed job's newest events is kept, one of them in any case.

Whoever is further behind reads the rest by itself.
"""

_TOGETHER = 100
_RETRY = b"retry: 2000\n\n"
_KEEP_ALIVE = b": still here\n\n"


class JobFeed:
    """The newest events of one job as frames of a stream, and whether there will be more.

    Only bells are kept of its readers: one that does not read, or is gone, holds up nobody.
    """

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.over = job.state in FINAL
        self.watch: asyncio.Task[None] | None = None
        self._first = job.event_count + 1
        self._frames: list[bytes] = []
        self._bytes = 0
        self._bells: set[Bell] = set()

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._first + len(self._frames) - 1

    @property
    def followed(self) -> bool:
        return bool(self._bells)

    def add(self, news: JobNews) -> None:
        self.job = news.job
        for frame in map(event_frame, news.events):
            self._frames.append(frame)
            self._bytes += len(frame)
        dropped = 0
        while self._bytes > KEPT_BYTES and dropped < len(self._frames) - 1:
            self._bytes -= len(self._frames[dropped])
            dropped += 1
        del self._frames[:dropped]
        self._first += dropped
        self.ring()

    def after(self, number: int) -> Sequence[bytes] | None:
        """Some of the frames behind an event; None where they are not kept (any more)."""
        start = number + 1 - self._first
        return None if start < 0 else self._frames[start : start + _TOGETHER]

    def ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    @contextmanager
    def reader(self) -> Iterator[Bell]:
        bell = Bell()
        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)


class JobFeeds:
    """Followed jobs; each is watched once, from its first reader to its last."""

    def __init__(
        self,
        watch_job: WatchJob,
        list_events: ListEvents,
        *,
        keep_alive: float = 15.0,
        look_again: float = LOOK_AGAIN_SECONDS,
    ) -> None:
        self._watch_job = watch_job
        self._list_events = list_events
        self._keep_alive = keep_alive
        self._look_again = look_again
        self._feeds: dict[JobId, JobFeed] = {}
        self._closing = False

    async def follow(self, job: JobView, after: int) -> AsyncGenerator[bytes, None]:
        """Server-sent events: those behind the event `after`, then live, then `end` with the final state.

        Without that end it was cut off: the job was deleted, the database is away, or this process stops.
        """
        feed = self._feed(job)
        with self._reading(feed) as bell:
            yield _RETRY
            while not self._closing:
                frames = feed.after(after)
                if frames is None:
                    try:
                        events = await self._list_events(job.id, after=after, limit=_TOGETHER)
                    except (NotFound, StorageUnavailable):
                        return
                    frames = [event_frame(event) for event in events]
                if frames:
                    after += len(frames)
                    yield b"".join(frames)
                elif feed.over:
                    if feed.job.state in FINAL:
                        yield _end_frame(feed.job)
                    return
                elif not await bell.wait(self._keep_alive):
                    yield _KEEP_ALIVE

    def close(self) -> None:
        """Ends every stream; their readers come back to another process."""
        self._closing = True
        for feed in self._feeds.values():
            feed.ring()

    def _feed(self, job: JobView) -> JobFeed:
        feed = self._feeds.get(job.id)
        if feed is None:
            feed = JobFeed(job)
            if not feed.over:
                self._feeds[job.id] = feed
                feed.watch = asyncio.create_task(self._watch(feed))
        return feed

    @contextmanager
    def _reading(self, feed: JobFeed) -> Iterator[Bell]:
        try:
            with feed.reader() as bell:
                yield bell
        finally:
            if feed.watch is not None and not feed.followed:
                feed.watch.cancel()
                self._forget(feed)

    async def _watch(self, feed: JobFeed) -> None:
        try:
            while not feed.over:
                try:
                    async with aclosing(self._watch_job(feed.job.id, after=feed.last)) as watched:
                        async for news in watched:
                            feed.add(news)
                    feed.over = True
                except StorageUnavailable:
                    await asyncio.sleep(self._look_again)
        except NotFound:
            _log.debug("job %s was deleted while it was followed", feed.job.id)
        except Exception:  # noqa: BLE001  its readers are cut off, and come back
            _log.exception("job %s cannot be followed", feed.job.id)
        finally:
            feed.over = True
            self._forget(feed)
            feed.ring()

    def _forget(self, feed: JobFeed) -> None:
        # one that has ended may have made room for another: a failed job can be retried
        if self._feeds.get(feed.job.id) is feed:
            del self._feeds[feed.job.id]


def event_frame(event: RecordedEvent) -> bytes:
    return f"id: {event.number}\ndata: {_line(EventOut.of(event))}\n\n".encode()


def _end_frame(job: JobView) -> bytes:
    return f"event: end\ndata: {_line(EndOut.of(job))}\n\n".encode()


def _line(content: EventOut | EndOut) -> str:
    return json.dumps(content.model_dump(mode="json", exclude_none=True), separators=(",", ":"))
