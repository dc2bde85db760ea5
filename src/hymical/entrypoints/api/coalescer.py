"""Posts that arrive together are accepted together; alone, a post waits for nobody."""

import asyncio
from collections import deque

from hymical.application.forms import AcceptPosts
from hymical.domain.errors import Overloaded, PostRefused, StorageUnavailable
from hymical.domain.forms import PostedForm, Receipt

_Waiting = tuple[PostedForm, asyncio.Future[Receipt | PostRefused]]
_Answer = tuple[asyncio.Future[Receipt | PostRefused], Receipt | PostRefused | Exception]

_TOLD_WITHIN_SECONDS = 0.02


class Coalescer:
    """Hands posts to `AcceptPosts`, at most `batch` at a time, and of more than one at most `characters`.

    Those that came while one batch was stored form the next one. More than `backlog` waiting posts are turned away
    with `Overloaded`. A caller is answered once its own post is committed; where a next batch waits already, that one
    is sent first, so that PostgreSQL writes while the callers are answered and post again (docs/decisions/0005).
    """

    def __init__(
        self,
        accept_posts: AcceptPosts,
        *,
        batch: int = 64,
        characters: int = 524_288,
        backlog: int = 2_048,
    ) -> None:
        self._accept_posts = accept_posts
        self._batch = batch
        # a statement's time grows with the square of its size: the driver moves up what is left after each piece sent
        self._characters = characters
        self._backlog = backlog
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[None] | None = None

    async def accept(self, post: PostedForm) -> Receipt:
        """Raises `PostRefused`, `Overloaded`, or `StorageUnavailable`."""
        if len(self._waiting) >= self._backlog:
            raise Overloaded
        answer: asyncio.Future[Receipt | PostRefused] = asyncio.get_running_loop().create_future()
        self._waiting.append((post, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        accepted = await answer
        if isinstance(accepted, PostRefused):
            raise accepted
        return accepted

    async def close(self) -> None:
        """Returns when every post that was taken in has its answer."""
        while self._running is not None and not self._running.done():
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        stored = list[_Answer]()
        while self._waiting:
            stored = await self._accept(self._next(), stored)
        _tell(stored)

    def _next(self) -> list[_Waiting]:
        together, room = list[_Waiting](), self._characters
        while self._waiting and len(together) < self._batch:
            room -= self._waiting[0][0].characters
            if together and room < 0:
                break
            together.append(self._waiting.popleft())
        return together

    async def _accept(self, together: list[_Waiting], before: list[_Answer]) -> list[_Answer]:
        """The answers to these, which nobody was told yet, and meanwhile the answers to those before are told."""
        late = asyncio.get_running_loop().call_later(_TOLD_WITHIN_SECONDS, _tell, before)
        try:
            judged = await self._accept_posts.judge([post for post, _ in together])
            storing = asyncio.create_task(self._accept_posts.store(judged))
            # whoever is told goes on behind the first step of that task, which sends the batch
            _tell(before)
            answers = await storing
        except Exception as error:  # noqa: BLE001  whatever it is, each caller is told, and the runner goes on
            _tell(before)
            if len(together) == 1 or isinstance(error, StorageUnavailable):
                return [(waiting, error) for _, waiting in together]
            # one that cannot be stored must not take its neighbours with it
            for one in together:
                _tell(await self._accept([one], []))
            return []
        finally:
            late.cancel()
        return [(waiting, answer) for (_, waiting), answer in zip(together, answers, strict=True)]


def _tell(answers: list[_Answer]) -> None:
    """Each caller, unless it has left or was told before."""
    for waiting, answer in answers:
        if waiting.done():
            continue
        if isinstance(answer, Exception) and not isinstance(answer, PostRefused):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
