"""Jobs run by one process and watched through another, with a person between."""

from datetime import timedelta

import pytest

from hymical.domain.jobs import Later
from hymical.ports.jobs import SettledJob
from tests.asking_jobs import QUEUE
from tests.hands import hands_at
from tests.site import Running, Site, until
from tests.streams import Heard, following


@pytest.fixture
def site(site: Site) -> Site:
    """Nothing is found by looking for it: whatever moves was told of."""
    site.configure(
        job_modules="tests.asking_jobs",
        job_poll_min_seconds="1h",
        job_poll_max_seconds="1h",
        worker_poll_seconds="1h",
    )
    return site


async def test_a_reader_that_is_cut_off_again_and_again_misses_and_repeats_nothing_of_another_process(
    site: Site,
) -> None:
    site.start_api()
    worker = site.start_worker(QUEUE)
    async with hands_at(site.database_url) as hands:
        job_id = await hands.enqueue(queue=QUEUE, type="count_up", payload={"steps": 300})

    heard: list[Heard] = []
    async with following(site, job_id) as stream:
        heard += await stream.events(20)
    for _ in range(5):
        async with following(site, job_id, after=heard[-1].id) as stream:
            heard += await stream.events(30)
    async with following(site, job_id, after=heard[-1].id) as stream:
        *rest, end = await stream.rest()
    heard += rest

    assert [one.id for one in heard] == [str(number) for number in range(1, 301)]
    assert [one.content["message"]["number"] for one in heard] == list(range(1, 301))
    assert (end.content["state"], end.content["result"]) == ("completed", {"counted": 300})
    assert worker.complaints() == []


async def restarted(site: Site, *processes: Running) -> tuple[Running, Running]:
    for process in processes:
        process.dies()
    del site.management
    return site.start_api(), site.start_worker(QUEUE)


async def test_a_job_waits_for_a_person_while_every_process_is_restarted(site: Site) -> None:
    processes = site.start_api(), site.start_worker(QUEUE)
    async with hands_at(site.database_url) as hands:
        job_id = await hands.enqueue(queue=QUEUE, type="send_all")
    async with following(site, job_id) as stream:
        prepared, paused = await stream.events(2)
        waiting = site.read(f"/jobs/{job_id}")

        await restarted(site, *processes)
        assert await stream.rest() == []

    assert site.read(f"/jobs/{job_id}") == waiting
    assert waiting["state"] == "paused"
    assert waiting["question"] == {
        "key": "sure",
        "text": "Send all of them?",
        "choices": ["yes", "no"],
        "answer_by": None,
        "default": None,
    }
    assert (prepared.content["step"], paused.content["status"]) == ("prepare", "paused")

    maybe = site.management.post(f"/jobs/{job_id}/answer", json={"answer": "maybe"})
    assert (maybe.status_code, maybe.json()["errors"][0]["field"]) == (422, "answer")
    async with following(site, job_id, after=paused.id) as stream:
        answered = site.management.post(f"/jobs/{job_id}/answer", json={"answer": "yes", "question": "sure"})
        assert answered.status_code == 200
        sent, end = await stream.rest()
    again = site.management.post(f"/jobs/{job_id}/answer", json={"answer": "no"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")

    assert (sent.content["step"], end.content["result"]) == ("send", {"sent": True})
    ended = site.read(f"/jobs/{job_id}")
    (key_id,) = (key for (key,) in site.query("SELECT id FROM keys"))
    assert (ended["answers"]["sure"]["text"], ended["answers"]["sure"]["by"]) == ("yes", key_id)
    assert ended["question"] is None


async def test_whoever_watches_is_told_why_nothing_happens(site: Site) -> None:
    async with hands_at(site.database_url) as hands:
        job_id = await hands.enqueue(queue=QUEUE, type="send_all")
    site.run("queues", "pause", QUEUE)
    paused = f"its queue is paused; resume it with: hymical queues resume {QUEUE}"
    watching = site.start_watching(job_id, paused)

    site.run("queues", "resume", QUEUE)
    site.start_worker(QUEUE)
    asks = f"it asks: Send all of them? (yes or no); answer with: hymical jobs answer {job_id} ANSWER"
    await until(lambda: watching.says(asks), "the watcher is told")
    site.run("jobs", "answer", job_id, "no")

    assert await watching.ended() == 0
    assert watching.complaints() == []


async def test_whoever_watches_is_told_that_no_worker_is_there_and_of_runs_that_failed(site: Site) -> None:
    async with hands_at(site.database_url) as hands:
        job_id = await hands.enqueue(queue=QUEUE, type="send_all")
        unserved = f"no worker drains its queue; start one with: hymical worker --queue {QUEUE}"
        watching = site.start_watching(job_id, unserved)

        job = await hands.claim(QUEUE)
        later = Later(delay=timedelta(hours=1), spends=True, error="out of paper")
        await hands.queue.settle([SettledJob(lease=job.lease, settlement=later, event=None)])

        await until(lambda: watching.says("out of paper"), "the watcher is told")
        (line,) = (line for line in watching.said if "out of paper" in line)
        assert line.startswith("it failed, and runs again at ")


async def test_hymical_jobs_watches_answers_and_shows(site: Site) -> None:
    site.start_worker(QUEUE)
    async with hands_at(site.database_url) as hands:
        job_id = await hands.enqueue(queue=QUEUE, type="send_all")
    await until(lambda: site.count("jobs", "state = 'paused'") == 1, "the job asks")

    assert "asks: Send all of them?" in site.run("jobs", "list", "--state", "paused").stdout
    refused = site.run("jobs", "answer", job_id, "maybe")
    assert (refused.returncode, refused.stderr) == (1, "hymical: answer must be one of: yes, no\n")
    assert site.run("jobs", "answer", job_id, "no").returncode == 0
    watched = site.run("jobs", "watch", job_id)

    assert watched.returncode == 0
    assert [line.split()[2] for line in watched.stdout.splitlines()[:3]] == ["prepare", "sure", "send"]
    assert site.run("jobs", "cancel", job_id).returncode == 1
