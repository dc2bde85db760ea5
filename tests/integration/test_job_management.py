"""Jobs and queues over HTTP and on the command line."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from click.testing import Result

from hymical.domain.jobs import AskHuman, Errored, Finished, GiveUp, Question
from tests.hands import Hands, hands_at
from tests.site import Site

NO_SUCH_JOB = "job_00000000000000000000000000"


@pytest.fixture(scope="module")
def site(shared_site: Site) -> Site:
    return shared_site


@pytest.fixture
async def hands(site: Site) -> AsyncIterator[Hands]:
    async with hands_at(site.database_url) as hands:
        yield hands


def problem(answer: httpx.Response, status: int, code: str) -> str:
    content: dict[str, Any] = answer.json()
    assert (answer.status_code, content["status"], content["code"]) == (status, status, code)
    return str(content["detail"])


async def said(site: Site, *arguments: str) -> Result:
    """A command, in a thread with an event loop of its own."""
    return await asyncio.to_thread(site.command, *arguments)


def queue_named(site: Site, name: str) -> dict[str, Any]:
    (found,) = (queue for queue in site.read("/queues")["items"] if queue["name"] == name)
    assert isinstance(found, dict)
    return found


async def test_a_job_is_shown_with_all_that_is_known_of_it(site: Site, hands: Hands) -> None:
    job_id = await hands.enqueue(queue="shown", type="report", payload={"form_id": "contact"}, unique_key="k")
    pending = site.read(f"/jobs/{job_id}")
    assert pending == {
        "id": job_id,
        "queue": "shown",
        "type": "report",
        "version": 1,
        "payload": {"form_id": "contact"},
        "priority": 3,
        "state": "pending",
        "retry_count": 0,
        "max_retries": 0,
        "run_at": pending["run_at"],
        "unique_key": "k",
        "question": None,
        "answers": {},
        "progress": None,
        "event_count": 0,
        "result": None,
        "failure_reason": None,
        "error": None,
        "created_at": pending["created_at"],
        "started_at": None,
        "finished_at": None,
    }

    job = await hands.claim("shown")
    await hands.tell(job, "read", "write", message={"rows": 3})
    await hands.end(job, Finished(result={"file": "a.csv"}))

    ended = site.read(f"/jobs/{job_id}")
    assert (ended["state"], ended["result"], ended["event_count"]) == ("completed", {"file": "a.csv"}, 2)
    assert ended["progress"] == {"step": "write", "status": "progress", "message": {"rows": 3}}
    assert ended["finished_at"] >= ended["started_at"] >= ended["created_at"]


async def test_jobs_are_listed_the_newest_first_page_by_page_and_by_what_they_are(
    site: Site, hands: Hands
) -> None:
    made = [
        await hands.enqueue(queue="listed", type="first.kind" if number < 3 else "second_kind")
        for number in range(5)
    ]
    first = site.read("/jobs", queue="listed", limit=3)
    second = site.read("/jobs", queue="listed", limit=3, cursor=first["next_cursor"])
    assert [job["id"] for job in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None

    of_type = site.read("/jobs", queue="listed", type="first.kind")["items"]
    assert [job["id"] for job in of_type] == made[2::-1]
    site.management.post(f"/jobs/{made[0]}/cancel")
    cancelled = site.read("/jobs", queue="listed", state="cancelled")["items"]
    assert [job["id"] for job in cancelled] == [made[0]]


@pytest.mark.parametrize("query", ["queue=A", "type=", "state=waiting", "limit=0", "cursor=%2F"])
def test_a_list_of_jobs_that_cannot_be_is_refused(site: Site, query: str) -> None:
    refused = site.management.get(f"/jobs?{query}")
    problem(refused, 422, "invalid_request")
    assert query.partition("=")[0] in str(refused.json()["errors"])


@pytest.mark.parametrize("verb", ["answer", "cancel", "retry"])
@pytest.mark.parametrize("job_id", [NO_SUCH_JOB, "no%20id"])
def test_a_job_that_is_not_there_is_not_found(site: Site, verb: str, job_id: str) -> None:
    problem(site.management.get(f"/jobs/{job_id}"), 404, "not_found")
    body = {"answer": "yes"} if verb == "answer" else None
    problem(site.management.post(f"/jobs/{job_id}/{verb}", json=body), 404, "not_found")


async def test_a_job_is_cancelled_once(site: Site, hands: Hands) -> None:
    job = await hands.begin("cancelled")
    cancelled = site.management.post(f"/jobs/{job.id}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert "cancelled" in problem(site.management.post(f"/jobs/{job.id}/cancel"), 409, "conflict")
    assert await hands.end(job, Finished()) == "lost"


async def test_only_a_failed_job_is_retried(site: Site, hands: Hands) -> None:
    job = await hands.begin("retried")
    assert "processing" in problem(site.management.post(f"/jobs/{job.id}/retry"), 409, "conflict")
    await hands.end(job, GiveUp(error="no paper"))
    failed = site.read(f"/jobs/{job.id}")
    assert (failed["state"], failed["failure_reason"], failed["error"]) == ("failed", "gave_up", "no paper")

    retried = site.management.post(f"/jobs/{job.id}/retry")
    assert (retried.status_code, retried.json()["state"], retried.json()["finished_at"]) == (
        200,
        "pending",
        None,
    )
    assert (await hands.claim("retried")).id == job.id


@pytest.mark.parametrize(
    "body",
    [{}, {"answer": 1}, {"answer": None}, {"answer": "yes", "by": "me"}, {"answer": ""}, {"answer": "a\0"}],
)
async def test_an_answer_that_cannot_be_one_is_refused(
    site: Site, hands: Hands, body: dict[str, object]
) -> None:
    job = await hands.begin("asking")
    await hands.end(job, AskHuman(question=Question(key="name", text="What is it called?")))
    problem(site.management.post(f"/jobs/{job.id}/answer", json=body), 422, "invalid_request")
    assert site.read(f"/jobs/{job.id}")["state"] == "paused"


async def test_an_answer_names_its_question_and_who_gave_it(site: Site, hands: Hands) -> None:
    job = await hands.begin("answered")
    question = Question(
        key="go_on", text="Go on?", choices=("yes", "no"), deadline=timedelta(hours=1), default="no"
    )
    await hands.end(job, AskHuman(question=question))
    asks = site.read(f"/jobs/{job.id}")["question"]
    assert asks == {
        "key": "go_on",
        "text": "Go on?",
        "choices": ["yes", "no"],
        "answer_by": asks["answer_by"],
        "default": "no",
    }
    path = f"/jobs/{job.id}/answer"
    other = site.management.post(path, json={"answer": "yes", "question": "other"})
    assert "go_on" in problem(other, 409, "conflict")

    answered = site.management.post(path, json={"answer": "yes", "question": "go_on"}).json()
    (given,) = answered["answers"].values()
    (key_id,) = (key for (key,) in site.query("SELECT id FROM keys WHERE name = 'tests'"))
    assert (answered["state"], given["text"], given["by"]) == ("pending", "yes", key_id)
    problem(site.management.post(path, json={"answer": "no"}), 409, "conflict")


async def test_a_queue_is_paused_and_resumed_and_one_without_a_worker_says_so(
    site: Site, hands: Hands
) -> None:
    await hands.enqueue(queue="lonely")
    await hands.enqueue(queue="lonely", run_at=datetime.now(UTC) + timedelta(days=1))
    queue = queue_named(site, "lonely")
    assert queue.pop("lag_seconds") >= 0
    assert queue == {
        "name": "lonely",
        "paused": False,
        "due": 1,
        "processing": 0,
        "workers": 0,
        "unserved": True,
    }

    paused = site.management.post("/queues/lonely/pause")
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert site.management.post("/queues/lonely/pause").json()["paused"] is True
    resumed = site.management.post("/queues/lonely/resume")
    assert (resumed.status_code, resumed.json()["paused"]) == (200, False)
    assert (await hands.claim("lonely")).queue == "lonely"
    assert queue_named(site, "lonely")["unserved"] is False


def test_a_queue_that_is_empty_can_be_paused_beforehand(site: Site) -> None:
    assert site.management.post("/queues/to-come.soon/pause").json()["paused"] is True
    assert site.management.post("/queues/to-come.soon/resume").json() == {
        "name": "to-come.soon",
        "paused": False,
        "due": 0,
        "processing": 0,
        "lag_seconds": None,
        "workers": 0,
        "unserved": False,
    }
    problem(site.management.post("/queues/No%20Name/pause"), 404, "not_found")


def test_jobs_and_queues_need_a_key(site: Site) -> None:
    for path in ("/jobs", f"/jobs/{NO_SUCH_JOB}/events", "/queues"):
        problem(site.public.get(f"/api/v1{path}"), 401, "unauthorized")


async def test_the_commands_print_what_the_api_answers(site: Site, hands: Hands) -> None:
    job = await hands.begin("commanded")
    await hands.tell(job, "a", "b", message={"rows": 1})
    await hands.end(job, Errored(error="out of paper"))

    shown = await said(site, "jobs", "show", job.id, "--json")
    listed = await said(site, "jobs", "list", "--queue", "commanded", "--json")
    watched = await said(site, "jobs", "watch", job.id, "--after", "1", "--json")
    assert json.loads(shown.stdout) == site.read(f"/jobs/{job.id}")
    assert json.loads(listed.stdout) == site.read("/jobs", queue="commanded")
    assert watched.exit_code == 1
    event, end = map(json.loads, watched.stdout.splitlines())
    assert (event["number"], event["step"], event["message"]) == (2, "b", {"rows": 1})
    assert (end["state"], end["error"]) == ("failed", "out of paper")

    assert (await said(site, "jobs", "retry", job.id)).exit_code == 0
    assert "commanded  unserved  1 due" in (await said(site, "queues", "list")).stdout
    assert (await said(site, "queues", "pause", "commanded")).stdout == "commanded is paused\n"
    queues = json.loads((await said(site, "queues", "list", "--json")).stdout)["items"]
    (commanded,) = (queue for queue in queues if queue["name"] == "commanded")
    assert commanded["paused"] is True
    assert commanded.keys() == queue_named(site, "commanded").keys()
    resumed = json.loads((await said(site, "queues", "resume", "commanded", "--json")).stdout)
    assert resumed.keys() == commanded.keys()
    assert resumed["paused"] is False
    assert (await said(site, "jobs", "cancel", job.id)).exit_code == 0
    refused = await said(site, "jobs", "cancel", job.id)
    assert (refused.exit_code, refused.stderr) == (
        1,
        "hymical: the job is cancelled; only one that has not ended can be cancelled\n",
    )
    assert (
        await said(site, "jobs", "show", NO_SUCH_JOB)
    ).stderr == f"hymical: there is no job {NO_SUCH_JOB}\n"
