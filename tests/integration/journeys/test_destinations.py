"""What people do with destinations, and what they and the operator see of them."""

import asyncio
import base64
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from tests.receivers import Receiver, answer, hold
from tests.site import Site, until, verified

CANARY = "canary-value-4711"


def only_destination(site: Site) -> str:
    return str(site.read("/forms/contact/destinations")["items"][0]["id"])


async def test_during_a_rotation_the_old_and_the_new_secret_verify_the_same_request(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver(answer(200)) as receiver:
        (old,) = site.make_form(receiver.url())
        rotated = site.management.post(f"/destinations/{only_destination(site)}/rotate-secret")
        assert rotated.status_code == 200
        new = rotated.json()["secret"]
        await site.ended_delivery_of(site.post())
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        ended = site.management.post(
            f"/destinations/{only_destination(site)}/rotate-secret", json={"previous_valid_until": past}
        )
        assert ended.status_code == 200
        await site.ended_delivery_of(site.post())
        during, after = receiver.requests

    assert verified(during, old) == verified(during, new)
    with pytest.raises(WebhookVerificationError):
        verified(after, new)
    # what the first rotation had given the oldest secret, the second does not take away
    assert verified(after, old)["type"] == "submission.received"


async def test_a_destination_s_headers_are_sent_and_never_shown(site: Site) -> None:
    api, worker = site.start_api(), site.start_worker()
    async with Receiver(answer(200)) as receiver:
        site.make_form()
        made = site.create(
            "/forms/contact/destinations",
            {"url": receiver.url(), "headers": {"Authorization": f"Bearer {CANARY}"}},
        )
        await site.ended_delivery_of(site.post())
        (request,) = receiver.requests
    refused = site.management.patch(
        f"/destinations/{made['id']}", json={"headers": {"Webhook-Signature": "v1,forged"}}
    )

    assert request.header("authorization") == [f"Bearer {CANARY}"]
    assert made["headers"] == ["Authorization"]
    assert CANARY not in json.dumps([made, site.read(f"/destinations/{made['id']}")])
    assert refused.status_code == 422
    assert "must not set webhook-signature" in refused.json()["detail"]
    assert not any(CANARY in line for process in (api, worker) for line in process.said)


async def test_secrets_are_sealed_at_rest_and_a_changed_key_still_opens_them(site: Site) -> None:
    first, second = (base64.urlsafe_b64encode(os.urandom(32)).decode() for _ in range(2))
    site.configure(secret_key=first)
    site.start_api()
    async with Receiver(answer(200)) as receiver:
        site.make_form()
        made = site.create(
            "/forms/contact/destinations", {"url": receiver.url(), "headers": {"x-api-key": CANARY}}
        )
        ((secrets, headers),) = site.query("SELECT secrets::text, headers::text FROM destinations")
        assert made["secret"] not in secrets
        assert CANARY not in headers

        worker = site.start_worker(secret_key=f"{second} {first}")
        await site.ended_delivery_of(site.post())
        assert verified(receiver.requests[0], made["secret"])["type"] == "submission.received"
        worker.dies()

        site.start_worker(secret_key=second)
        submission = site.post()
        await until(lambda: bool(site.delivery_of(submission)["attempts"]), "an attempt without the key", 30)
        waiting = site.delivery_of(submission)
        assert (waiting["state"], waiting["cycle_attempt_count"]) == ("pending", 0)
        assert "FORMS_SECRET_KEY" in waiting["explanation"]
        assert len(receiver.requests) == 1


async def test_paused_deliveries_wait_and_resuming_sends_them(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver(answer(200)) as receiver:
        site.make_form(receiver.url())
        destination = only_destination(site)
        assert site.management.post(f"/destinations/{destination}/pause").json()["state"] == "paused"
        submission = site.post()
        site.make_form(receiver.url("/other"), form_id="other")
        await site.ended_delivery_of(site.post(form_id="other"))
        assert [request.target for request in receiver.requests] == ["/other"]
        waiting = site.delivery_of(submission)
        assert (waiting["state"], waiting["attempt_count"]) == ("pending", 0)
        assert "paused" in waiting["explanation"]

        assert site.management.post(f"/destinations/{destination}/resume").json()["state"] == "active"
        assert (await site.ended_delivery_of(submission))["state"] == "delivered"


async def test_deleting_a_destination_with_a_request_on_its_way_ends_without_a_false_warning(
    site: Site,
) -> None:
    site.start_api()
    worker = site.start_worker()
    released = asyncio.Event()
    async with Receiver(hold(released, answer(200))) as receiver:
        site.make_form(receiver.url())
        submission = site.post()
        await receiver.arrival(1)
        deleted = site.management.delete(f"/destinations/{only_destination(site)}")
        released.set()
        await until(lambda: bool(site.delivery_of(submission)["attempts"]), "the attempt is recorded")
        ended = site.delivery_of(submission)
        replay = site.management.post(f"/deliveries/{ended['id']}/replay")

    assert deleted.status_code == 204
    assert (ended["state"], ended["failure_reason"]) == ("failed", "destination_deleted")
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["succeeded"]
    assert site.read("/forms/contact/destinations")["items"] == []
    assert replay.status_code == 409
    assert "for good" in replay.json()["detail"]
    assert worker.complaints() == []


async def test_a_test_webhook_arrives_and_a_resend_is_a_delivery_of_its_own(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver(answer(200)) as receiver:
        (secret,) = site.make_form(receiver.url())
        tested = site.management.post(f"/destinations/{only_destination(site)}/test")
        assert tested.status_code == 202
        await receiver.arrival(1)
        assert verified(receiver.requests[0], secret)["type"] == "destination.test"

        first = await site.ended_delivery_of(site.post())
        resent = site.management.post(f"/deliveries/{first['id']}/resend")
        assert resent.status_code == 202
        await receiver.arrival(3)
        original, again = receiver.requests[1:]

    assert resent.json()["id"] != first["id"]
    assert resent.json()["message_id"] == first["message_id"]
    assert (original.body, original.header("webhook-id")) == (again.body, again.header("webhook-id"))
    assert again.header("hymical-delivery") == [resent.json()["id"]]


async def test_an_erased_submission_is_nowhere_any_more(site: Site) -> None:
    site.start_api()
    async with Receiver(answer(503, body=CANARY.encode())) as receiver:
        site.make_form(receiver.url())
        submission = site.post({"email": CANARY})
        worker = site.start_worker()
        await until(lambda: bool(site.delivery_of(submission)["attempts"]), "an attempt")
        assert site.delivery_of(submission)["attempts"][0]["response_excerpt"] == CANARY

        assert site.management.delete(f"/submissions/{submission}").status_code == 204

        ended = site.delivery_of(submission)
    assert (ended["state"], ended["failure_reason"]) == ("failed", "submission_deleted")
    assert site.management.get(f"/submissions/{submission}").status_code == 404
    for table in ("submissions", "messages", "deliveries", "attempts"):
        rows = site.query(f"SELECT t::text FROM {table} AS t")  # noqa: S608  a name of our own
        assert CANARY not in str(rows)
        assert CANARY.encode().hex() not in str(rows)
    assert not any(CANARY in line for line in worker.said)


async def test_the_operator_is_told_of_what_failed_by_a_signed_webhook(site: Site) -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    async with Receiver(answer(404)) as receiver, Receiver(answer(204)) as operator:
        site.configure(alert_webhook_url=operator.url("/alerts"), alert_webhook_secret=secret)
        site.start_api()
        site.start_worker()
        site.make_form(receiver.url())
        failed = await site.ended_delivery_of(site.post({"email": CANARY}))
        await operator.arrival(1)
        event = verified(operator.requests[0], secret)

    assert event["type"] == "delivery.failed"
    assert (event["data"]["delivery_id"], event["data"]["reason"]) == (failed["id"], "rejected")
    assert CANARY.encode() not in operator.requests[0].body
    assert site.management.get("/destinations/dst_operator").status_code == 404


async def test_the_operator_s_address_is_guarded_like_any_other(site: Site) -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    async with Receiver(answer(404)) as receiver:
        site.configure(alert_webhook_url="http://10.1.2.3/alerts", alert_webhook_secret=secret)
        site.start_api()
        site.start_worker()
        site.make_form(receiver.url())
        await site.ended_delivery_of(site.post())
        blocked = "outcome = 'blocked_target' AND error LIKE '%%FORMS_WEBHOOK_ALLOWED_NETWORKS%%'"
        await until(lambda: site.count("attempts", blocked) == 1, "the event's delivery is blocked")

    # and it raises no event of its own
    assert site.states() == {"failed": 2}


async def test_gone_disables_the_destination_for_what_waits_and_what_comes(site: Site) -> None:
    site.configure(worker_concurrency="1")
    site.start_api()
    async with Receiver(answer(410), answer(200)) as receiver:
        site.make_form(receiver.url())
        submissions = [site.post() for _ in range(3)]
        site.start_worker()
        ended = [await site.ended_delivery_of(submission) for submission in submissions]
        assert sorted(one["failure_reason"] for one in ended) == [
            "destination_disabled",
            "destination_disabled",
            "gone",
        ]
        later = await site.ended_delivery_of(site.post())
        assert (later["failure_reason"], later["attempt_count"]) == ("destination_disabled", 0)

        too_soon = site.management.post(f"/deliveries/{later['id']}/replay")
        assert (too_soon.status_code, too_soon.json()["detail"]) == (
            409,
            "Its destination is disabled; resume it first.",
        )
        site.management.post(f"/destinations/{only_destination(site)}/resume")
        site.management.post(f"/deliveries/{later['id']}/replay")
        await until(lambda: site.delivery_of(later["submission_id"])["state"] == "delivered", "the replay")


async def test_the_api_lists_who_is_at_work_until_they_leave(site: Site) -> None:
    site.start_api()
    first, second = site.start_worker(), site.start_worker()
    await until(lambda: len(site.read("/workers")["items"]) == 2, "both are listed")

    listed = site.read("/workers")["items"]
    assert {one["pid"] for one in listed} == {first.pid, second.pid}
    assert all(one["live"] and one["in_flight"] == 0 for one in listed)
    first.process.terminate()
    await first.ended()
    assert [one["pid"] for one in site.read("/workers")["items"]] == [second.pid]


async def test_no_more_requests_than_max_in_flight_are_on_their_way_over_all_workers(site: Site) -> None:
    site.start_api()
    released = asyncio.Event()
    async with Receiver(hold(released, answer(200))) as receiver:
        site.make_form(receiver.url(), max_in_flight=3)
        site.create("/forms", {"id": "other", "name": "Other"})
        site.create("/forms/other/destinations", {"url": receiver.url("/other")})
        await site.start_workers(3)
        await site.accept(30)
        await receiver.arrival(3)
        # whatever came after it to another destination has passed, so all workers have looked again
        await site.accept(5, form_id="other")
        await receiver.arrival(8)

        assert [request.target for request in receiver.requests].count("/hook") == 3
        released.set()
        await until(lambda: set(site.states()) == {"delivered"}, "everything is delivered")
