"""The chaos run: a whole Hymical whose processes, database and receivers fail at random, and the count afterwards.

One API, three workers and a PostgreSQL, all real processes of this run; receivers on loopback in this process.
Waits and leases are shortened by settings. A seed decides what fails when; how the processes interleave is theirs.
"""

import asyncio
import json
import random
import secrets
import signal
import socket
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeVar, assert_never

import httpx
import psycopg
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from hymical.entrypoints.bootstrap.database import migrate
from hymical.entrypoints.bootstrap.embedded import EmbeddedServer, embedded_server, temporary_data_folder
from hymical.entrypoints.local import LocalSite, created
from hymical.entrypoints.processes import role_process
from tests.receivers import Received, Receiver, Wire, answer, drip, hang, reset

_Kind = TypeVar("_Kind")

LONGEST_SECONDS = 600.0
MOST_POSTS_PER_SECOND = 50.0

_WORKERS = 3
_LEASE_SECONDS = 4.0
_SETTINGS = {
    "FORMS_RATE_LIMIT_ENABLED": "false",
    "FORMS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "FORMS_WEBHOOK_CONNECT_TIMEOUT_SECONDS": "500ms",
    "FORMS_WEBHOOK_READ_TIMEOUT_SECONDS": "1500ms",
    "FORMS_WORKER_LEASE_SECONDS": f"{_LEASE_SECONDS:g}s",
    "FORMS_WORKER_POLL_SECONDS": "200ms",
    # more than the receivers' troubles can spend
    "FORMS_WEBHOOK_RETRY_SCHEDULE": " ".join(["200ms", "500ms", *["1s"] * 100]),
    "FORMS_WEBHOOK_BREAKER_FAILURES": "5",
    "FORMS_WEBHOOK_BREAKER_PAUSE_SECONDS": "400ms",
    "FORMS_WEBHOOK_BREAKER_MAX_PAUSE_SECONDS": "2s",
}
_TARGETS_OF = {"orders": 3, "contact": 2, "feedback": 1}

_TO_START_SECONDS = 30.0
_TO_END_SECONDS = 90.0
_LOOK_AGAIN_SECONDS = 0.2
_POST_SECONDS = 10.0
# the WAL writer flushes every 200 ms, and says itself that it may take three of them
_FORGOTTEN_SECONDS = 1.0


class Fault(StrEnum):
    """What is done to Hymical's own processes and its database."""

    WORKER_KILLED = "worker killed"
    WORKER_STOPPED = "worker stopped past its lease"
    DATABASE_RESTARTED = "PostgreSQL restarted"
    DATABASE_CRASHED = "PostgreSQL crashed"
    API_KILLED = "API killed"


class Mood(StrEnum):
    """How a receiver answers."""

    WELL = "well"
    SLOW = "slow"
    ERRS = "500"
    UNAVAILABLE = "503 with Retry-After"
    LIMITS = "429 with Retry-After"
    HANGS = "hangs"
    DRIPS = "drips"
    RESETS = "resets"
    REFUSES = "refuses connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """`choice` in [0, 1) picks one of the processes that can have it then. `at` is seconds from the start."""

    at: float
    fault: Fault
    choice: float
    lasts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMood:
    """Seconds from the start; in between a receiver is well."""

    begins: float
    ends: float
    mood: Mood


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    faults: Sequence[PlannedFault]
    moods: Sequence[Sequence[PlannedMood]]
    """Those of each receiver; all are well again after four fifths of the time."""

    @classmethod
    def of(cls, seed: int, seconds: float, targets: int) -> Self:
        dice = random.Random(seed)  # noqa: S311  repeatable, not secret
        count = max(len(Fault) + 2, round(seconds / 2.5))
        kinds = _decks([*Fault, Fault.WORKER_KILLED, Fault.WORKER_STOPPED], dice)
        faults = [
            PlannedFault(
                at=0.5 + (number + dice.random()) * 0.85 * seconds / count,
                fault=next(kinds),
                choice=dice.random(),
                lasts=_LEASE_SECONDS + dice.uniform(0.5, 2),
            )
            for number in range(count)
        ]
        moods = _decks([mood for mood in Mood if mood is not Mood.WELL], dice)
        return cls(faults=faults, moods=[_moods(moods, seconds, dice) for _ in range(targets)])


def _decks(kinds: Sequence[_Kind], dice: random.Random) -> Iterator[_Kind]:
    """All of them, shuffled, again and again: none is left out."""
    while True:
        yield from dice.sample(kinds, len(kinds))


def _moods(kinds: Iterator[Mood], seconds: float, dice: random.Random) -> Sequence[PlannedMood]:
    planned: list[PlannedMood] = []
    begins = dice.uniform(0.5, 2)
    while begins < 0.7 * seconds:
        ends = min(begins + dice.uniform(1.5, 4), 0.8 * seconds)
        planned.append(PlannedMood(begins=begins, ends=ends, mood=next(kinds)))
        begins = ends + dice.uniform(1, 4)
    return planned


# What the receivers saw


@dataclass(slots=True, kw_only=True)
class Arrival:
    """A webhook as a receiver saw it. `answered` is the status of an answer that was written to its end."""

    delivery: str
    attempt: str
    webhook_id: str
    body: bytes
    verified: bool
    answered: int | None = None
    took: float = 0.0
    """Seconds until the answer was written."""
    came_at: float = field(default_factory=time.monotonic)

    @property
    def accepted(self) -> bool:
        return self.answered is not None and 200 <= self.answered < 300


class Target:
    """A receiver with moods. Open it as an async context manager; it keeps its port while it refuses."""

    def __init__(self, form_id: str, dice: random.Random) -> None:
        self.form_id = form_id
        self.destination_id = ""
        self.secret = ""
        self.mood = Mood.WELL
        self.arrivals: list[Arrival] = []
        self._dice = dice
        self._listener: Receiver | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/hook"

    async def __aenter__(self) -> Self:
        # bound but not listening: nobody else gets the port while this one refuses
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self._port = int(self._held.getsockname()[1])
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._refuse()
        self._held.close()

    async def turn(self, mood: Mood) -> None:
        self.mood = mood
        if mood is Mood.REFUSES:
            await self._refuse()
        elif self._listener is None:
            await self._listen()

    async def _listen(self) -> None:
        async def behave(wire: Wire) -> None:
            await self._behave(listener, wire)

        listener = Receiver(behave, port=self._port)
        await listener.__aenter__()
        self._listener = listener

    async def _refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.__aexit__(None, None, None)

    async def _behave(self, listener: Receiver, wire: Wire) -> None:
        # the receiver calls this before anything else can arrive
        arrival = self._noted(listener.requests[-1])
        match self.mood:
            case Mood.WELL:
                await self._answers(wire, arrival, 200, after=self._dice.uniform(0, 0.1))
            case Mood.SLOW:
                await self._answers(wire, arrival, 202, after=self._dice.uniform(0.4, 1.2))
            case Mood.ERRS:
                await self._answers(wire, arrival, 500)
            case Mood.UNAVAILABLE:
                await self._answers(wire, arrival, 503, retry_after=1)
            case Mood.LIMITS:
                await self._answers(wire, arrival, 429, retry_after=1)
            case Mood.HANGS:
                await hang(wire)
            case Mood.DRIPS:
                # outlasts every deadline, in the head or in the body
                head = b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n"
                at_once = self._dice.choice([0, len(head)])
                await drip((head + b"." * 200)[at_once:], at_once=head[:at_once], gap=0.1)(wire)
            case Mood.RESETS | Mood.REFUSES:
                await reset(wire)
            case _:
                assert_never(self.mood)

    def _noted(self, received: Received) -> Arrival:
        arrival = Arrival(
            delivery=",".join(received.header("hymical-delivery")),
            attempt=",".join(received.header("hymical-attempt")),
            webhook_id=",".join(received.header("webhook-id")),
            body=received.body,
            verified=_verifies(received, self.secret),
        )
        self.arrivals.append(arrival)
        return arrival

    async def _answers(
        self, wire: Wire, arrival: Arrival, status: int, *, after: float = 0, retry_after: int | None = None
    ) -> None:
        began = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(wire.gone.wait(), after)
        # to whoever has hung up nothing can be answered
        if not wire.gone.is_set():
            headers = [] if retry_after is None else [("retry-after", str(retry_after))]
            await answer(status, headers, b"noted")(wire)
            arrival.answered, arrival.took = status, time.monotonic() - began


def _verifies(received: Received, secret: str) -> bool:
    try:
        Webhook(secret).verify(received.body, {name.lower(): value for name, value in received.headers})
    except (WebhookVerificationError, ValueError):
        return False
    return True


# The processes


@dataclass(slots=True, eq=False, kw_only=True)
class Child:
    role: str
    process: subprocess.Popen[str]
    ready_line: str
    said: list[str]
    stack: ExitStack
    killed: bool = False
    """Chosen to be."""
    stands_still: bool = False
    found_ended: int | None = None
    """The code with which it ended although nobody had told it to."""


class Children:
    """Hymical's processes, each started and ended here. All end with the block, those that stand still too."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.all: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start_api(self) -> Child:
        return self._start("api", ("serve", "--port", "0"), "Hymical API on ")

    def start_worker(self) -> Child:
        return self._start("worker", ("worker",), "worker ready")

    def _start(self, role: str, arguments: tuple[str, ...], ready: str) -> Child:
        said: list[str] = []
        stack = ExitStack()
        started = stack.enter_context(
            role_process(
                role, arguments, self._environment, ready=ready, show=lambda _, line: said.append(line)
            )
        )
        child = Child(
            role=role, process=started.process, ready_line=started.ready_line, said=said, stack=stack
        )
        self.all.append(child)
        return child

    def kill(self, child: Child) -> None:
        """SIGKILL: it has no chance to do anything more."""
        self._note_end(child)
        child.process.kill()
        child.process.wait()
        child.stack.close()

    def end(self) -> None:
        """SIGTERM to those that still run, one after the other."""
        for child in self.all:
            if not child.killed:
                self._note_end(child)
        for child in self.all:
            child.stack.close()

    @staticmethod
    def _note_end(child: Child) -> None:
        if child.found_ended is None:
            child.found_ended = child.process.poll()


@contextmanager
def standing_still(child: Child) -> Iterator[None]:
    child.stands_still = True
    child.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        child.process.send_signal(signal.SIGCONT)
        child.stands_still = False


# What was posted


@dataclass(slots=True, kw_only=True)
class Posts:
    """What was sent in, and what the API said. No answer, or a 503, promises nothing."""

    secret_mark: str
    """Is part of every value, and may be in no log."""
    sent: int = 0
    accepted: dict[str, tuple[str, dict[str, list[str]]]] = field(default_factory=dict)
    """The form and the fields of each submission that was answered with 202."""
    turned_away: int = 0
    unanswered: int = 0
    answered_oddly: list[str] = field(default_factory=list)


# What the database says at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDelivery:
    id: str
    state: str
    failure_reason: str | None
    leased: bool
    destination_id: str
    message_id: str
    submission_id: str | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    outcome: str
    late: bool
    duration_ms: int | None

    @property
    def lost(self) -> bool:
        return self.outcome == "lease_lost" or self.late

    def __str__(self) -> str:
        took = "" if self.duration_ms is None else f" after {self.duration_ms} ms"
        return f"{self.outcome}{took}{', late' if self.late else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    deliveries: Sequence[StoredDelivery]
    attempts: Mapping[str, Mapping[str, StoredAttempt]]
    """Of each delivery, by number as the header has it."""
    attempt_rows: int

    @classmethod
    def read(cls, database_url: str) -> Self:
        with psycopg.connect(database_url, autocommit=True) as connection:
            deliveries = connection.execute(
                """
                SELECT deliveries.id, state, failure_reason, lease_token IS NOT NULL, destination_id, message_id,
                    submission_id, body
                FROM deliveries JOIN messages ON messages.id = message_id ORDER BY deliveries.id
                """
            ).fetchall()
            rows = connection.execute(
                "SELECT delivery_id, number, outcome, late, duration_ms FROM attempts"
            ).fetchall()
        attempts = defaultdict[str, dict[str, StoredAttempt]](dict)
        for delivery_id, number, *record in rows:
            outcome, late, duration_ms = record
            attempts[delivery_id][str(number)] = StoredAttempt(
                outcome=outcome, late=late, duration_ms=duration_ms
            )
        return cls(
            deliveries=[
                StoredDelivery(
                    id=id,
                    state=state,
                    failure_reason=reason,
                    leased=leased,
                    destination_id=destination_id,
                    message_id=message_id,
                    submission_id=submission_id,
                    body=body,
                )
                for id, state, reason, leased, destination_id, message_id, submission_id, body in deliveries  # noqa: A001
            ],
            attempts=attempts,
            attempt_rows=len(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    seed: int
    seconds: float
    posts: int
    accepted: int
    turned_away: int
    unanswered: int
    deliveries: Mapping[str, int]
    """By state."""
    attempts: int
    requests: int
    duplicates: int
    """2xx beyond the first of a delivery."""
    lost_leases: int
    reported_late: int
    """Those of the lost ones whose holder lived to report."""
    given_again: int
    """Requests with a number that another request of their delivery had."""
    faults: Mapping[str, int]
    moods: Mapping[str, int]
    violations: Sequence[str]

    def __str__(self) -> str:
        answers = f"{self.accepted} with 202, {self.turned_away} with 503, {self.unanswered} unanswered"
        requests = f"{self.requests} requests seen"
        lines = [
            f"seed           {self.seed}, {self.seconds:g} s",
            f"posts          {self.posts}: {answers}",
            f"deliveries     {sum(self.deliveries.values())}: {_counts(self.deliveries)}",
            f"attempts       {self.attempts} recorded, {requests}",
            f"duplicates     {self.duplicates}",
            f"lost leases    {self.lost_leases}, {self.reported_late} of them reported late",
            f"given again    {self.given_again} numbers",
            f"faults         {_counts(self.faults)}",
            f"receivers      {_counts(self.moods)}",
            *(f"VIOLATION      {violation}" for violation in self.violations),
            f"violations     {len(self.violations)}",
        ]
        return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def run(*, seed: int, seconds: float, posts_per_second: float = 15.0) -> Report:
    """Starts everything, lets it fail for `seconds`, waits for the last delivery to end, and judges.

    Interrupted, it ends what it started. Whoever kills it leaves only a data folder: the children end with it.
    """
    if not 0 < seconds <= LONGEST_SECONDS or not 0 < posts_per_second <= MOST_POSTS_PER_SECOND:
        raise ValueError(f"at most {LONGEST_SECONDS:g} s, and {MOST_POSTS_PER_SECOND:g} posts a second")
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_data_folder("hymical-chaos-"))
        # without flushes nothing is lost: only the server crashes here, and what it wrote is the kernel's
        server = stack.enter_context(embedded_server(folder, durable=False))
        migrate(server.url())
        environment = {**_SETTINGS, "FORMS_DATABASE_URL": server.url()}
        children = stack.enter_context(Children(environment))
        return asyncio.run(_Run(seed, seconds, posts_per_second, server, children, environment).report())


class _Run:
    def __init__(
        self,
        seed: int,
        seconds: float,
        posts_per_second: float,
        server: EmbeddedServer,
        children: Children,
        environment: dict[str, str],
    ) -> None:
        self._seed, self._seconds, self._pace = seed, seconds, 1 / posts_per_second
        self._server, self._children, self._environment = server, children, environment
        self._targets = [
            Target(form_id, random.Random(f"{seed} {form_id} {number}"))  # noqa: S311  repeatable, not secret
            for form_id, count in _TARGETS_OF.items()
            for number in range(count)
        ]
        self._plan = Plan.of(seed, seconds, len(self._targets))
        self._posts = Posts(secret_mark=f"private-{secrets.token_hex(8)}")
        self._faults = Counter[str]()
        self._crashes: list[tuple[float, float]] = []
        self._moods = Counter[str]()
        # a process that starts while the database is away says so and ends, as it should
        self._database_stays = asyncio.Lock()
        self._api_url = ""

    async def report(self) -> Report:
        async with AsyncExitStack() as stack:
            for target in self._targets:
                await stack.enter_async_context(target)
            client = await stack.enter_async_context(
                httpx.AsyncClient(trust_env=False, timeout=_POST_SECONDS)
            )
            await asyncio.gather(
                self._start_api(client),
                *(asyncio.to_thread(self._children.start_worker) for _ in range(_WORKERS)),
            )
            await asyncio.to_thread(self._make_forms)
            await self._let_it_fail(client)
            await self._until_all_ended()
            # those that had been overtaken have said all that they had to say
            await asyncio.to_thread(self._children.end)
        return self._judged(Stored.read(self._server.url()))

    async def _start_api(self, client: httpx.AsyncClient) -> None:
        """Returns once it answers: it names its address before it has looked at the database."""
        started = await asyncio.to_thread(self._children.start_api)
        self._api_url = started.ready_line.removeprefix("Hymical API on ")
        deadline = time.monotonic() + _TO_START_SECONDS
        while time.monotonic() < deadline and started.process.poll() is None:
            with suppress(httpx.TransportError):
                if (await client.get(f"{self._api_url}/ready")).is_success:
                    return
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _make_forms(self) -> None:
        site = LocalSite(api_url=self._api_url, environment=self._environment)
        with site.management(site.create_key("chaos")) as management:
            for form_id in _TARGETS_OF:
                created(management.post("/forms", json={"id": form_id, "name": form_id}))
            for target in self._targets:
                made = created(
                    management.post(f"/forms/{target.form_id}/destinations", json={"url": target.url})
                )
                target.destination_id, target.secret = made["id"], made["secret"]

    async def _let_it_fail(self, client: httpx.AsyncClient) -> None:
        started = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as together:
            together.create_task(self._post_steadily(client, started, together))
            for planned in self._plan.faults:
                together.create_task(self._have_fault(planned, started, client))
            for target, moods in zip(self._targets, self._plan.moods, strict=True):
                together.create_task(self._have_moods(target, moods, started))

    async def _post_steadily(
        self, client: httpx.AsyncClient, started: float, together: asyncio.TaskGroup
    ) -> None:
        forms = sorted(_TARGETS_OF)
        for number in range(int(self._seconds / self._pace)):
            await _until(started + number * self._pace)
            together.create_task(self._post(client, number, forms[number % len(forms)]))

    async def _post(self, client: httpx.AsyncClient, number: int, form_id: str) -> None:
        fields = {"note": [f"{self._posts.secret_mark}-{number} ä€\n"], "topics": ["a b", f"{number}"]}
        self._posts.sent += 1
        url = f"{self._api_url}/f/{form_id}"
        try:
            answered = await (client.post(url, data=fields) if number % 2 else client.post(url, json=fields))
        except httpx.TransportError:
            self._posts.unanswered += 1
            return
        match answered.status_code:
            case 202:
                self._posts.accepted[answered.json()["submission_id"]] = form_id, fields
            case 503:
                self._posts.turned_away += 1
            case status:
                self._posts.answered_oddly.append(f"a post was answered with {status}: {answered.text[:200]}")

    async def _have_moods(self, target: Target, moods: Sequence[PlannedMood], started: float) -> None:
        for planned in moods:
            await _until(started + planned.begins)
            await target.turn(planned.mood)
            self._moods[planned.mood] += 1
            await _until(started + planned.ends)
            await target.turn(Mood.WELL)

    async def _have_fault(self, planned: PlannedFault, started: float, client: httpx.AsyncClient) -> None:
        await _until(started + planned.at)
        match planned.fault:
            case Fault.WORKER_KILLED:
                done = await self._kill_worker(planned)
            case Fault.WORKER_STOPPED:
                done = await self._stop_worker(planned)
            case Fault.DATABASE_RESTARTED:
                async with self._database_stays:
                    await asyncio.to_thread(self._server.restart, "fast")
                done = True
            case Fault.DATABASE_CRASHED:
                async with self._database_stays:
                    began = time.monotonic()
                    await asyncio.to_thread(self._server.restart, "immediate")
                    self._crashes.append((began, time.monotonic()))
                done = True
            case Fault.API_KILLED:
                done = await self._kill_api(client)
            case _:
                assert_never(planned.fault)
        self._faults[planned.fault] += done

    async def _kill_worker(self, planned: PlannedFault) -> bool:
        worker = self._worker(planned.choice)
        if worker is None:
            return False
        worker.killed = True
        await asyncio.to_thread(self._children.kill, worker)
        async with self._database_stays:
            await asyncio.to_thread(self._children.start_worker)
        return True

    async def _stop_worker(self, planned: PlannedFault) -> bool:
        worker = self._worker(planned.choice)
        if worker is None:
            return False
        with standing_still(worker):
            await asyncio.sleep(planned.lasts)
        return True

    async def _kill_api(self, client: httpx.AsyncClient) -> bool:
        running = [child for child in self._children.all if child.role == "api" and not child.killed]
        if not running:
            return False
        (api,) = running
        api.killed = True
        await asyncio.to_thread(self._children.kill, api)
        async with self._database_stays:
            await self._start_api(client)
        return True

    def _worker(self, choice: float) -> Child | None:
        able = [
            child
            for child in self._children.all
            if child.role == "worker" and not child.killed and not child.stands_still
        ]
        return able[int(choice * len(able))] if able else None

    async def _until_all_ended(self) -> None:
        deadline = time.monotonic() + _TO_END_SECONDS
        # what ends them happens in other processes, which signal nothing to this one
        while await asyncio.to_thread(self._open) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _open(self) -> bool:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            found = connection.execute(
                "SELECT FROM deliveries WHERE state IN ('pending', 'processing') LIMIT 1"
            )
            return found.fetchone() is not None

    def _judged(self, stored: Stored) -> Report:
        arrivals = [arrival for target in self._targets for arrival in target.arrivals]
        accepted = Counter(arrival.delivery for arrival in arrivals if arrival.accepted)
        attempts = [one for numbered in stored.attempts.values() for one in numbered.values()]
        database_log = self._server.log.read_text(errors="replace").splitlines()
        return Report(
            seed=self._seed,
            seconds=self._seconds,
            posts=self._posts.sent,
            accepted=len(self._posts.accepted),
            turned_away=self._posts.turned_away,
            unanswered=self._posts.unanswered,
            deliveries=Counter(delivery.state for delivery in stored.deliveries),
            attempts=stored.attempt_rows,
            requests=len(arrivals),
            duplicates=sum(count - 1 for count in accepted.values()),
            lost_leases=sum(one.lost for one in attempts),
            reported_late=sum(one.late for one in attempts),
            given_again=len(arrivals) - len(_by_number(arrivals)),
            faults=self._faults,
            moods=self._moods,
            violations=[
                *self._posts.answered_oddly,
                *lost_submissions(self._posts, self._targets, stored),
                *wrong_deliveries(arrivals, stored),
                *wrong_arrivals(arrivals, stored, self._crashes),
                *wrong_processes(self._children.all),
                *told_secrets(
                    self._posts.secret_mark,
                    [
                        ("postgres", database_log),
                        *((child.role, child.said) for child in self._children.all),
                    ],
                ),
            ],
        )


async def _until(instant: float) -> None:
    await asyncio.sleep(instant - asyncio.get_running_loop().time())


# The judgement


def lost_submissions(posts: Posts, targets: Sequence[Target], stored: Stored) -> Iterator[str]:
    """Every accepted submission reached each of its receivers, as it was posted."""
    owed = {(delivery.submission_id, delivery.destination_id) for delivery in stored.deliveries}
    if len(owed) != len(stored.deliveries):
        yield "a submission is owed twice to one destination"
    for target in targets:
        reached = {
            data["submission_id"]: data["fields"]
            for data in (json.loads(arrival.body)["data"] for arrival in target.arrivals if arrival.accepted)
        }
        for submission_id, (form_id, fields) in posts.accepted.items():
            if form_id != target.form_id:
                continue
            if (submission_id, target.destination_id) not in owed:
                yield f"{submission_id}: it was accepted, and nothing is owed to {target.destination_id}"
            if submission_id not in reached:
                yield f"{submission_id}: it was accepted, and never reached {target.destination_id}"
            elif reached[submission_id] != fields:
                yield f"{submission_id}: it reached {target.destination_id} with other fields than were posted"


def wrong_deliveries(arrivals: Sequence[Arrival], stored: Stored) -> Iterator[str]:
    """Every delivery ended, agrees with what its receiver saw, and a lost lease explains each 2xx too many."""
    accepted = defaultdict[str, dict[str, Arrival]](dict)
    for arrival in arrivals:
        if arrival.accepted:
            accepted[arrival.delivery][arrival.attempt] = arrival
    for delivery in stored.deliveries:
        attempts, numbers = stored.attempts.get(delivery.id, {}), accepted[delivery.id]
        history = ", ".join(f"{number} {attempts[number]}" for number in sorted(attempts, key=int))
        seen = ", ".join(f"{number} after {one.took * 1_000:.0f} ms" for number, one in numbers.items())
        for wrong in (*_wrong_end(delivery, numbers.keys()), *_wrong_history(attempts, numbers.keys())):
            yield f"{delivery.id}: {wrong}; 2xx: {seen}; history: {history}"


def _wrong_end(delivery: StoredDelivery, accepted: AbstractSet[str]) -> Iterator[str]:
    if delivery.state not in {"delivered", "failed"} or delivery.leased:
        yield f"it is stuck as {delivery.state}"
    if (delivery.state == "delivered") != bool(accepted):
        yield f"it is {delivery.state} ({delivery.failure_reason})"


def _wrong_history(attempts: Mapping[str, StoredAttempt], accepted: AbstractSet[str]) -> Iterator[str]:
    succeeded = {number for number, one in attempts.items() if one.outcome == "succeeded"}
    ended_by = {number for number in succeeded if not attempts[number].late}
    yield from (f"attempt {number} did not succeed" for number in succeeded - accepted)
    if len(ended_by) > 1:
        yield "it ended twice"
    for number in accepted - ended_by:
        if number in attempts and not attempts[number].lost:
            yield f"no lost lease explains that attempt {number} did not end it"


def wrong_arrivals(
    arrivals: Sequence[Arrival], stored: Stored, crashes: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """Every webhook verified, has the bytes that were stored, and a number of its own that the history has.

    A crash of PostgreSQL may forget a claim just made, as claim.sql says: only then is its number given again.
    """
    deliveries = {delivery.id: delivery for delivery in stored.deliveries}
    for (delivery_id, attempt), seen in _by_number(arrivals).items():
        came_at = sorted(arrival.came_at for arrival in seen)
        for earlier, later in pairwise(came_at):
            if not any(
                down - _FORGOTTEN_SECONDS < earlier < up_again and down < later for down, up_again in crashes
            ):
                yield f"{delivery_id}: {len(seen)} requests had the number {attempt}"
        if attempt not in stored.attempts.get(delivery_id, {}):
            yield f"{delivery_id}: a request had the number {attempt}, which is not in the history"
    for arrival in arrivals:
        named = f"{arrival.delivery}, attempt {arrival.attempt}"
        if not arrival.verified:
            yield f"{named}: its signature does not verify"
        delivery = deliveries.get(arrival.delivery)
        if delivery is None:
            yield f"{named}: there is no such delivery"
        elif (arrival.webhook_id, arrival.body) != (delivery.message_id, delivery.body):
            yield f"{named}: its id or its body is not the stored one"


def _by_number(arrivals: Sequence[Arrival]) -> Mapping[tuple[str, str], Sequence[Arrival]]:
    seen = defaultdict[tuple[str, str], list[Arrival]](list)
    for arrival in arrivals:
        seen[arrival.delivery, arrival.attempt].append(arrival)
    return seen


def wrong_processes(children: Sequence[Child]) -> Iterator[str]:
    """None ended before it was told to, and none but the killed ones ended with an error or spoke of one."""
    for child in children:
        named = f"{child.role} {child.process.pid}"
        if child.found_ended is not None:
            yield f"{named} ended by itself with {child.found_ended}: {' / '.join(child.said[-5:])}"
        elif child.process.returncode != (-signal.SIGKILL if child.killed else 0):
            yield f"{named} ended with {child.process.returncode}: {' / '.join(child.said[-5:])}"
        yield from (
            f"{named} said: {line}"
            for line in child.said
            # what the API answers while the database is away
            if (" ERROR " in line and "StorageUnavailable" not in line) or "Traceback" in line
        )


def told_secrets(mark: str, logs: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    for role, lines in logs:
        told = sum(mark in line for line in lines)
        if told:
            yield f"{role}: {told} lines of its log hold a submitted value"
