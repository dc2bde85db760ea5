"""What demo and dev share: a whole Hymical on one machine, with a key, a form and a destination."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from hymical.entrypoints.bootstrap.database import migrate
from hymical.entrypoints.bootstrap.embedded import EmbeddedServer
from hymical.entrypoints.processes import child_environment, role_process
from hymical.entrypoints.up import DELIVERIES, Role, api


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSite:
    """The API's address, and the variables that every process of the site runs with."""

    api_url: str
    environment: dict[str, str]

    def create_key(self, name: str) -> str:
        made = subprocess.run(
            [sys.executable, "-m", "hymical", "keys", "create", "--name", name, "--json"],
            env=child_environment(self.environment),
            capture_output=True,
            text=True,
            check=True,
        )
        return str(json.loads(made.stdout)["key"])

    def management(self, key: str) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.api_url}/api/v1", headers={"authorization": f"Bearer {key}"}, trust_env=False
        )


@contextmanager
def local_site(
    server: EmbeddedServer,
    others: Sequence[Role] = (),
    *,
    port: int,
    show: Callable[[str, str], None],
    job_modules: Sequence[str] = (),
) -> Iterator[LocalSite]:
    """Migrates the database, then runs the API, a worker that may call loopback addresses, and the others.

    All of them know the types of jobs and the schedules in `job_modules`.

    Raises:
        ProcessEnded: one of them did not start.
    """
    environment = {
        # a .env where it is started belongs to another site
        "FORMS_ENV_FILE": os.devnull,
        "FORMS_DATABASE_URL": server.url(),
        "FORMS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8 ::1/128",
        "FORMS_JOB_MODULES": " ".join(job_modules),
    }
    migrate(server.url())
    with ExitStack() as stack:
        answering, *_ = [
            stack.enter_context(
                role_process(role.name, role.arguments, environment, ready=role.ready, show=show)
            )
            for role in (api("127.0.0.1", port), DELIVERIES, *others)
        ]
        yield LocalSite(api_url=answering.ready_line.removeprefix("Hymical API on "), environment=environment)


def created(answer: httpx.Response) -> dict[str, Any]:
    """The created resource. Raises `httpx.HTTPStatusError` with what the API said."""
    if answer.is_error:
        raise httpx.HTTPStatusError(answer.text, request=answer.request, response=answer)
    found: dict[str, Any] = answer.json()
    return found
