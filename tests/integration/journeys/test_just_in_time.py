"""A delivery is claimed when it can be sent, and not before."""

from tests.receivers import Receiver, hang
from tests.site import Site, until

COUNT = 25


async def test_no_lease_runs_out_before_its_own_request_starts_however_slow_the_receiver_is(
    site: Site,
) -> None:
    # each request takes its whole deadline, a second; five at a time, the last wait longer than a lease holds
    site.configure(
        webhook_connect_timeout_seconds="300ms",
        webhook_read_timeout_seconds="700ms",
        webhook_retry_schedule="1h",
        webhook_breaker_failures="1000",
        worker_lease_seconds="3",
        worker_concurrency="5",
        worker_batch_size="25",
    )
    site.start_api()
    async with Receiver(hang) as receiver:
        site.make_form(receiver.url(), max_in_flight=COUNT)
        await site.accept(COUNT)
        worker = site.start_worker()
        await until(lambda: site.count("attempts") == COUNT, "each was tried once", 60)

        assert len(receiver.requests) == COUNT
    assert site.count("attempts", "outcome = 'timeout' AND number = 1") == COUNT
    assert worker.complaints() == []
