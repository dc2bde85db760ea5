"""A whole Hymical for tests: real processes on a test's database, and a client of its API."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import httpx
import psycopg
from click.testing import CliRunner, Result
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook

from hymical.domain.forms import PostedForm, Receipt
from hymical.domain.ids import FormId, KeyId
from hymical.domain.keys import key_digest, new_key_text
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.cli.main import main
from hymical.entrypoints.processes import RoleProcess, role_process
from tests.builders import ids
from tests.receivers import Received

PATIENCE_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.02
_BATCH = 100


async def until(
    condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = PATIENCE_SECONDS
) -> None:
    """Returns once the condition holds; fails after a bound, saying what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < deadline, f"still not after {seconds:g} s: {what}"
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def verified(received: Received, secret: str) -> dict[str, Any]:
    """What a webhook says. Raises `WebhookVerificationError` when the `standardwebhooks` package rejects it."""
    headers = {name.lower(): value for name, value in received.headers}
    content: dict[str, Any] = Webhook(secret).verify(received.body, headers)
    return content


@dataclass(slots=True, kw_only=True)
class Running:
    """A process of Hymical's, and the lines it has said."""

    said: list[str]
    process: subprocess.Popen[str]
    ready_line: str

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def send(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)

    def dies(self) -> None:
        """SIGKILL: it has no chance to do anything more."""
        self.process.kill()
        self.process.wait()

    async def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code, once it has ended by itself."""
        await until(lambda: not self.lives, "the process ends", seconds)
        return self.process.wait()

    def says(self, words: str) -> bool:
        return any(words in line for line in self.said)

    def complaints(self) -> list[str]:
        return [line for line in self.said if " WARNING " in line or " ERROR " in line or "Traceback" in line]


@dataclass(slots=True)
class _Processes:
    """Started ones; all of them end with the site, even those that a test has stopped."""

    running: list[Running] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    def start(self, arguments: tuple[str, ...], environment: dict[str, str], ready: str) -> Running:
        said: list[str] = []
        role: RoleProcess = self.stack.enter_context(
            role_process(
                arguments[0], arguments, environment, ready=ready, show=lambda _, line: said.append(line)
            )
        )
        started = Running(said=said, process=role.process, ready_line=role.ready_line)
        self.running.append(started)
        return started

    def end(self) -> None:
        for one in self.running:
            if one.lives:
                one.send(signal.SIGTERM)
                one.send(signal.SIGCONT)
        self.stack.close()


class Site:
    """Open it as a context manager. Settings are named as in `Settings` and given as in the environment.

    Workers look again after 0.1 s unless told otherwise; only loopback may be called.
    """

    def __init__(self, database_url: str, **settings: str) -> None:
        self.database_url = database_url
        self.api_url = ""
        self._environment = {
            "FORMS_DATABASE_URL": database_url,
            "FORMS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
            "FORMS_WORKER_POLL_SECONDS": "0.1",
            # tests post much, the same again, and all of it from one address
            "FORMS_RATE_LIMIT_ENABLED": "false",
            "FORMS_DUPLICATE_WINDOW_SECONDS": "0",
            **_variables(settings),
        }
        self._processes = _Processes()
        self._clients = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clients.close()
        self._processes.end()

    def configure(self, **settings: str) -> None:
        """For whatever is started from now on."""
        self._environment |= _variables(settings)

    def start_api(self, **settings: str) -> Running:
        started = self._processes.start(
            ("serve", "--port", "0"), self._environment | _variables(settings), "Hymical API on "
        )
        self.api_url = started.ready_line.removeprefix("Hymical API on ")
        return started

    def start_worker(self, *queues: str, **settings: str) -> Running:
        """One that delivers, or that runs the jobs of these queues."""
        return self._processes.start(
            ("worker", *(word for queue in queues for word in ("--queue", queue))),
            self._environment | _variables(settings),
            "INFO hymical.entrypoints.worker.run: worker ready",
        )

    def start_everything(self, **settings: str) -> Running:
        """`hymical up`."""
        started = self._processes.start(
            ("up", "--port", "0"), self._environment | _variables(settings), "scheduler ready"
        )
        announced = "Hymical API on "
        (line,) = (line for line in started.said if announced in line)
        self.api_url = line.partition(announced)[2]
        return started

    async def start_workers(self, count: int, **settings: str) -> list[Running]:
        """All at once, while this process goes on receiving webhooks."""
        starts = [asyncio.to_thread(self.start_worker, **settings) for _ in range(count)]
        return await asyncio.gather(*starts)

    def start_scheduler(self, **settings: str) -> Running:
        return self._processes.start(
            ("scheduler",),
            self._environment | _variables(settings),
            "INFO hymical.entrypoints.scheduler.run: scheduler ready",
        )

    def start_watching(self, job_id: str, ready: str) -> Running:
        """`hymical jobs watch`, once it has said that."""
        return self._processes.start(("jobs", "watch", job_id), self._environment, ready)

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return run_hymical(*arguments, environment=self._environment | _variables(settings))

    def command(self, *arguments: str, **settings: str) -> Result:
        """The same in this process, which is faster; not from within an event loop."""
        given = self._environment | _variables(settings)
        return CliRunner().invoke(main, arguments, env=given, catch_exceptions=False)

    @cached_property
    def key(self) -> str:
        """A key to the API, made without starting a process."""
        text = new_key_text(ids.secret_bytes())
        key_id: KeyId = ids.key()
        self.execute(
            "INSERT INTO keys (id, name, digest, created_at) VALUES (%s, 'tests', %s, now())",
            key_id,
            key_digest(text),
        )
        return text.reveal()

    @cached_property
    def management(self) -> httpx.Client:
        return self._clients.enter_context(
            httpx.Client(
                base_url=f"{self.api_url}/api/v1",
                headers={"authorization": f"Bearer {self.key}"},
                trust_env=False,
                timeout=PATIENCE_SECONDS,
            )
        )

    @cached_property
    def public(self) -> httpx.Client:
        return self._clients.enter_context(
            httpx.Client(base_url=self.api_url, trust_env=False, timeout=PATIENCE_SECONDS)
        )

    def make_form(
        self, *urls: str, form_id: str = "contact", is_active: bool = True, max_in_flight: int = 10
    ) -> list[str]:
        """Makes a form with destinations; the secret of each."""
        self.create("/forms", {"id": form_id, "name": "Contact", "is_active": is_active})
        path, asked = f"/forms/{form_id}/destinations", {"max_in_flight": max_in_flight}
        return [self.create(path, {"url": url, **asked})["secret"] for url in urls]

    def create(self, path: str, content: dict[str, object]) -> dict[str, Any]:
        answer = self.management.post(path, json=content)
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def read(self, path: str, **parameters: str | int) -> dict[str, Any]:
        answer = self.management.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def post(self, fields: dict[str, str | list[str]] | None = None, form_id: str = "contact") -> str:
        """Posts a form that is to be accepted; the submission's id."""
        answer = self.public.post(f"/f/{form_id}", data=fields or {"email": "zoe@example.com"})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["submission_id"])

    def delivery_of(self, submission_id: str) -> dict[str, Any]:
        """The one delivery of a submission, with its attempts."""
        (found,) = self.read("/deliveries", submission_id=submission_id)["items"]
        return self.read(f"/deliveries/{found['id']}")

    async def ended_delivery_of(self, submission_id: str) -> dict[str, Any]:
        """The same, once it is delivered or failed."""
        await until(
            lambda: self.delivery_of(submission_id)["completed_at"] is not None,
            f"the delivery of {submission_id} ends",
        )
        return self.delivery_of(submission_id)

    async def accept(self, count: int, form_id: str = "contact") -> list[str]:
        """Stores submissions past HTTP, in this process; their ids."""
        settings = Settings(
            database_url=SecretStr(self.database_url),
            rate_limit_enabled=False,
            duplicate_window_seconds=timedelta(0),
        )
        accepted: list[str] = []
        async with open_container(settings, Role.API) as container:
            accept_posts = container.accept_posts()
            for start in range(0, count, _BATCH):
                posts = [
                    PostedForm(form_id=FormId(form_id), pairs=[("number", str(number))])
                    for number in range(start, min(start + _BATCH, count))
                ]
                for receipt in await accept_posts(posts):
                    assert isinstance(receipt, Receipt)
                    accepted.append(receipt.submission_id)
        return accepted

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def execute(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters)

    def count(self, table: str, where: str = "true") -> int:
        return int(self.query(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])  # noqa: S608  # the test's own words

    def states(self) -> dict[str, int]:
        """How many deliveries are in each state."""
        return dict(self.query("SELECT state, count(*) FROM deliveries GROUP BY state"))


def run_hymical(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command, to its end, with nothing of `FORMS_` but what is given, nor of a checkout's own .env."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FORMS_")}
    return subprocess.run(
        [sys.executable, "-m", "hymical", *arguments],
        env=inherited | {"FORMS_ENV_FILE": os.devnull} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@contextmanager
def stopped(process: Running) -> Iterator[None]:
    """Stands still for as long as the block is open."""
    process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


def _variables(settings: dict[str, str]) -> dict[str, str]:
    return {f"FORMS_{name.upper()}": value for name, value in settings.items()}
