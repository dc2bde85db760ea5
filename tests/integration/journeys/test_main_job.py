"""From a posted form to a signed webhook, with one part or another missing for a while."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.receivers import Receiver
from tests.site import Site, until, verified

FIELDS: dict[str, list[str]] = {
    "name": ["Zoë Müller"],
    "名前": ['ゾーイ "Z" & 100 % + 1'],
    "topics": ["billing", "api"],
    "message": ["こんにちは 👋\nTwo lines."],
    "empty": [""],
}
BOUNDARY = "----WebKitFormBoundaryePkpFF7tjBAqx29L"


def as_chromium_writes_it(fields: dict[str, list[str]]) -> bytes:
    """The body of a `multipart/form-data` post, with an empty file input at its end."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.replace(
            "\nTwo", "\r\nTwo"
        )
        for name, values in fields.items()
        for value in values
    ]
    no_file = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="photo"; filename=""\r\n'
        "Content-Type: application/octet-stream\r\n\r\n\r\n"
    )
    return "".join([*parts, no_file, f"--{BOUNDARY}--\r\n"]).encode()


async def test_a_posted_form_arrives_as_a_signed_webhook_and_reads_back_as_delivered(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver() as receiver:
        (secret,) = site.make_form(receiver.url("/hook?from=hymical"))
        answer = site.public.post("/f/contact", data=FIELDS)
        receipt = answer.json()
        delivery = await site.ended_delivery_of(receipt["submission_id"])
        (webhook,) = receiver.requests

    assert answer.status_code == 202
    assert receipt == {
        "submission_id": receipt["submission_id"],
        "form_id": "contact",
        "received_at": receipt["received_at"],
        "field_count": 5,
        "duplicate": False,
    }
    assert webhook.target == "/hook?from=hymical"
    assert verified(webhook, secret) == {
        "type": "submission.received",
        "timestamp": receipt["received_at"],
        "data": {
            "submission_id": receipt["submission_id"],
            "form_id": "contact",
            "received_at": receipt["received_at"],
            "fields": FIELDS,
        },
    }
    assert list(json.loads(webhook.body)["data"]["fields"]) == list(FIELDS)
    assert webhook.header("content-type") == ["application/json"]
    assert webhook.header("webhook-id") == [delivery["message_id"]]
    assert webhook.header("hymical-delivery") == [delivery["id"]]
    assert webhook.header("hymical-attempt") == ["1"]
    assert delivery["state"] == "delivered"
    assert [attempt["outcome"] for attempt in delivery["attempts"]] == ["succeeded"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("option", ["-d", "--data-urlencode"])
def test_a_browsers_multipart_post_and_curls_urlencoded_one_are_stored_equal(
    shared_site: Site, option: str
) -> None:
    site, form_id = shared_site, f"equal{option}"
    site.make_form(form_id=form_id)
    # what -d sends is not escaped, so that these three would mean something else
    fields = {
        name: [value.replace("&", "and").replace("+", "plus").replace("%", "percent") for value in values]
        if option == "-d"
        else values
        for name, values in FIELDS.items()
    }

    by_browser = site.public.post(
        f"/f/{form_id}",
        content=as_chromium_writes_it(fields),
        headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
    )
    by_curl = posted_by_curl(f"{site.api_url}/f/{form_id}", option, fields)

    stored = [
        site.query("SELECT fields::text FROM submissions WHERE id = %s", receipt["submission_id"])
        for receipt in (by_browser.json(), by_curl)
    ]
    assert stored[0] == stored[1]
    shown = site.read(f"/submissions/{by_curl['submission_id']}")["fields"]
    assert shown == fields
    assert list(shown) == list(fields)


def posted_by_curl(url: str, option: str, fields: dict[str, list[str]]) -> dict[str, Any]:
    pairs = [(name, value) for name, values in fields.items() for value in values]
    words = [word for name, value in pairs for word in (option, f"{name}={value}")]
    command = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", *words, url]
    made = subprocess.run(command, capture_output=True, check=True, timeout=30)
    receipt: dict[str, Any] = json.loads(made.stdout)
    return receipt


async def test_without_a_worker_forms_are_accepted_and_wait_until_one_starts(site: Site) -> None:
    site.start_api()
    async with Receiver() as receiver:
        site.make_form(receiver.url())
        submissions = [site.post({"number": str(number)}) for number in range(5)]
        waiting = [site.delivery_of(one) for one in submissions]
        assert [(delivery["state"], delivery["attempt_count"]) for delivery in waiting] == [
            ("pending", 0)
        ] * 5
        assert receiver.requests == []

        await site.start_workers(1)
        delivered = [await site.ended_delivery_of(one) for one in submissions]

    assert [(delivery["state"], delivery["attempt_count"]) for delivery in delivered] == [
        ("delivered", 1)
    ] * 5


async def test_a_worker_delivers_with_the_api_down(site: Site) -> None:
    api = site.start_api()
    async with Receiver() as receiver:
        site.make_form(receiver.url())
        api.dies()
        await site.start_workers(1)
        await site.accept(3)
        await receiver.arrival(3)
        await until(lambda: site.states() == {"delivered": 3}, "everything is delivered")


async def test_every_destination_of_a_form_gets_the_same_message_signed_with_its_own_secret(
    site: Site,
) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver() as one, Receiver() as other:
        secrets = site.make_form(one.url(), other.url())
        site.post()
        await one.arrival(1)
        await other.arrival(1)
        received = [one.requests[0], other.requests[0]]
        await until(lambda: site.states() == {"delivered": 2}, "both are delivered")

    assert received[0].body == received[1].body
    assert received[0].header("webhook-id") == received[1].header("webhook-id")
    assert [verified(webhook, secret)["type"] for webhook, secret in zip(received, secrets, strict=True)] == [
        "submission.received"
    ] * 2
