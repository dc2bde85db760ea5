"""`hymical up`: every role of a small site, and their common end."""

import signal

import psutil  # type: ignore[import-untyped]  # it ships no types

from hymical.entrypoints.jobs.queues import QUEUES
from tests.receivers import Receiver
from tests.site import Running, Site, until


def children(running: Running) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(running.pid).children()
    return found


def commands(running: Running) -> list[str]:
    return sorted(child.cmdline()[3] for child in children(running))


async def test_a_small_site_is_one_command(site: Site) -> None:
    site.configure(job_modules="tests.job_types")
    async with Receiver() as receiver:
        everything = site.start_everything()
        assert commands(everything) == ["scheduler", "serve", "worker", "worker"]
        site.make_form(receiver.url())
        await site.accept(1)
        await receiver.arrival(1)

    answer = site.management.post("/jobs", json={"type": "count", "payload": {"up_to": 2}})
    job_id = answer.json()["id"]
    await until(lambda: site.read(f"/jobs/{job_id}")["state"] == "completed", "the job is run")
    workers = site.read("/workers")["items"]
    assert {queue for worker in workers for queue in worker["queues"]} == {*QUEUES, "counts", "forms"}
    assert everything.complaints() == []

    started = children(everything)
    everything.send(signal.SIGTERM)
    assert await everything.ended() == 0
    assert not [child for child in started if child.is_running()]


async def test_when_one_ends_the_others_are_stopped_and_the_code_says_so(site: Site) -> None:
    everything = site.start_everything()
    started = children(everything)
    (victim,) = (child for child in started if child.cmdline()[3:] == ["worker"])
    victim.kill()

    assert await everything.ended() == 1
    assert everything.says("hymical: worker ended with code -9; the others are stopped")
    assert not [child for child in started if child.is_running()]


def test_what_does_not_start_is_told_and_nothing_is_left_running(site: Site) -> None:
    refused = site.run("up", "--port", "0", webhook_retry_schedule="soon")
    assert refused.returncode == 2
    assert "FORMS_WEBHOOK_RETRY_SCHEDULE" in refused.stderr
