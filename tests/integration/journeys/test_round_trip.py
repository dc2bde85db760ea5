"""Whatever is filled in comes back equal, from the API and in the webhook."""

import asyncio

from hypothesis import HealthCheck, example, given, settings

from tests.receivers import Receiver
from tests.site import Site, until, verified
from tests.wire import Pairs, filled_in, json_object, kept, multipart, urlencoded

EXAMPLES = 40


async def test_any_fields_come_back_equal_however_they_were_posted_from_the_api_and_in_the_webhook(
    site: Site, fuzz: int
) -> None:
    site.start_api()
    await site.start_workers(1)
    wanted: dict[str, list[tuple[str, list[str]]]] = {}

    @settings(
        max_examples=EXAMPLES * fuzz,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(filled_in)
    @example([("tag", "a"), ("other", ""), ("tag", "b"), ("tag[]", "c"), ("tag", "")])
    def posted_in_every_way(pairs: Pairs) -> None:
        for content_type, body in (urlencoded(pairs), multipart(pairs), json_object(pairs)):
            answer = site.public.post("/f/contact", content=body, headers={"content-type": content_type})
            assert answer.status_code == 202, (content_type, answer.text)
            submission_id = answer.json()["submission_id"]
            wanted[submission_id] = list(kept(pairs).items())
            assert list(site.read(f"/submissions/{submission_id}")["fields"].items()) == wanted[submission_id]

    async with Receiver() as receiver:
        (secret,) = site.make_form(receiver.url())
        # the receiver answers on this loop while another thread posts
        await asyncio.to_thread(posted_in_every_way)
        await until(lambda: set(site.states()) == {"delivered"}, "everything is delivered")

    received = [verified(request, secret)["data"] for request in receiver.requests]
    assert {one["submission_id"]: list(one["fields"].items()) for one in received} == wanted
    assert len(received) == len(wanted) > 3 * EXAMPLES / 2
