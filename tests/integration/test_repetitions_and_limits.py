"""Repetitions, spam and rate limits over HTTP, with several API processes on one database."""

import asyncio

import httpx

from tests.receivers import Receiver, answer
from tests.site import Site, until

ORIGIN = "https://www.example.com"


async def posted(urls: list[str], count: int, **options: object) -> list[httpx.Response]:
    """So many posts at once, in turn to each of the processes."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        posts = (client.post(f"{urls[n % len(urls)]}/f/contact", **options) for n in range(count))  # type: ignore[arg-type]
        return await asyncio.gather(*posts)


def two_processes(site: Site, **settings: str) -> list[str]:
    site.configure(**settings)
    urls = list[str]()
    for _ in range(2):
        site.start_api()
        urls.append(site.api_url)
    return urls


async def test_a_double_click_on_two_processes_is_one_submission_and_one_webhook(site: Site) -> None:
    urls = two_processes(site, duplicate_window_seconds="10")
    site.start_worker()
    async with Receiver(answer(200)) as receiver:
        site.make_form(receiver.url())
        answers = await posted(urls, 6, data={"email": "zoe@example.com"})
        other = await posted(urls, 1, data={"email": "zoe@example.com"}, headers={"user-agent": "another"})
        await until(lambda: site.states() == {"delivered": 2}, "both are delivered")

        assert {one.status_code for one in (*answers, *other)} == {202}
        assert sorted(one.json()["duplicate"] for one in answers) == [False] + [True] * 5
        assert len({one.json()["submission_id"] for one in answers}) == 1
        assert not other[0].json()["duplicate"]
        assert len(receiver.requests) == 2


async def test_one_idempotency_key_on_two_processes_is_one_submission(site: Site) -> None:
    urls = two_processes(site)
    site.make_form()
    key = {"idempotency-key": "order-4711"}

    answers = await posted(urls, 6, data={"order": "4711"}, headers=key)
    (conflict,) = await posted(urls, 1, data={"order": "4712"}, headers=key)
    (unusable,) = await posted(urls, 1, data={"order": "4711"}, headers={"idempotency-key": "a b"})

    assert sorted(one.json()["duplicate"] for one in answers) == [False] + [True] * 5
    assert len({one.json()["submission_id"] for one in answers}) == 1
    assert (conflict.status_code, conflict.json()["code"]) == (409, "idempotency_conflict")
    assert (unusable.status_code, unusable.json()["code"]) == (422, "invalid_idempotency_key")
    assert site.count("submissions") == 1


async def test_the_limit_of_a_source_is_shared_by_all_processes_and_its_retry_after_is_true(
    site: Site,
) -> None:
    urls = two_processes(
        site, rate_limit_enabled="true", rate_limit_ip_requests="5", rate_limit_ip_window_seconds="5"
    )
    site.make_form()
    site.management.patch("/forms/contact", json={"allowed_origins": [ORIGIN]})
    headers = {"origin": ORIGIN}

    answers = await posted(urls, 12, data={"a": "1"}, headers=headers)

    refused = [one for one in answers if one.status_code == 429]
    assert len(refused) in {6, 7}  # one more may have come in while they were posted
    assert {one.json()["code"] for one in refused} == {"rate_limited"}
    assert {one.headers["access-control-allow-origin"] for one in refused} == {ORIGIN}
    waits = {int(one.headers["retry-after"]) for one in refused}
    assert waits <= {1, 2}
    assert site.count("submissions") == 12 - len(refused)
    accepted = next(one for one in answers if one.status_code == 202)
    assert accepted.headers["ratelimit-limit"] == "5"
    await asyncio.sleep(max(waits))  # what the answer asks for is what is tested
    (again,) = await posted(urls, 1, data={"a": "1"}, headers=headers)
    assert again.status_code == 202


async def test_posts_that_are_refused_spend_the_source_s_budget_and_proxies_are_counted_from_the_right(
    site: Site,
) -> None:
    site.configure(
        rate_limit_enabled="true",
        rate_limit_ip_requests="2",
        rate_limit_ip_window_seconds="1h",
        trusted_proxy_hops="1",
    )
    site.start_api()
    site.make_form()

    def post(forwarded: str, **content: object) -> httpx.Response:
        headers = {"x-forwarded-for": forwarded, "content-type": "application/json"}
        return site.public.post("/f/contact", headers=headers, **content)  # type: ignore[arg-type]

    assert post("203.0.113.7", content=b"not json").status_code == 400
    assert post("made up, 203.0.113.7", json={}).status_code == 422
    assert post("198.51.100.1, 203.0.113.7", json={"a": "1"}).status_code == 429
    assert post("203.0.113.7, 198.51.100.1", json={"a": "1"}).status_code == 202
    keys = site.query("SELECT key FROM rate_limits")
    assert len(keys) == 3  # two sources and the form
    assert not any(b"203.0.113.7" in key or b"\xcb\x00\x71\x07" in key for (key,) in keys)


async def test_every_refusal_that_spent_of_the_budget_says_what_is_left_of_it(site: Site) -> None:
    site.configure(rate_limit_enabled="true", rate_limit_ip_requests="7", rate_limit_ip_window_seconds="7h")
    site.configure(max_body_bytes="100")
    site.start_api()
    site.make_form()
    site.make_form(form_id="closed", is_active=False)
    site.make_form(form_id="guarded")
    site.management.patch("/forms/guarded", json={"allowed_origins": [ORIGIN]})
    urlencoded = {"content-type": "application/x-www-form-urlencoded"}

    answers = [
        site.public.post("/f/nowhere", data={"a": "1"}),
        site.public.post("/f/closed", data={"a": "1"}),
        site.public.post("/f/guarded", data={"a": "1"}, headers={"origin": "https://elsewhere.example"}),
        site.public.post("/f/contact", content=b"a" * 101, headers=urlencoded),
        site.public.post("/f/contact", content=b"a", headers={"content-type": "text/plain"}),
        site.public.post("/f/contact", content=b"a=%FF", headers={**urlencoded, "accept": "text/html"}),
        site.public.post("/f/contact", data={"_next": "1"}),
        site.public.post("/f/contact", data={"a": "1"}, headers={"accept": "text/html"}),
    ]

    assert [one.status_code for one in answers] == [404, 409, 403, 413, 415, 400, 422, 429]
    assert [one.headers["ratelimit-remaining"] for one in answers] == [*"6543210", "0"]
    assert {one.headers["ratelimit-limit"] for one in answers} == {"7"}
    # the bucket is full again after as many hours as posts were made, and the wait is a share of it
    assert all(
        0 <= 3600 * n - int(one.headers["ratelimit-reset"]) < 60 for n, one in enumerate(answers[:7], 1)
    )
    assert f"Please wait {answers[7].headers['retry-after']} seconds" in answers[7].text
    assert 3540 < int(answers[7].headers["retry-after"]) <= 3600
    assert "ratelimit-limit" not in site.public.get("/f/contact").headers


async def test_a_bot_is_answered_like_anybody_and_its_post_is_delivered_once_it_is_marked_good(
    site: Site,
) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver(answer(200)) as receiver:
        site.make_form(receiver.url())
        clean = site.public.post("/f/contact", data={"email": "a@example.com", "_gotcha": ""})
        spam = site.public.post("/f/contact", data={"email": "b@example.com", "_gotcha": "x"})
        await until(lambda: site.states() == {"delivered": 1}, "the clean one is delivered")

        assert clean.status_code == spam.status_code == 202
        assert clean.json().keys() == spam.json().keys()
        assert spam.json()["field_count"] == 1
        listed = [one["id"] for one in site.read("/submissions")["items"]]
        kept = [one["id"] for one in site.read("/submissions", spam="true")["items"]]
        assert (listed, kept) == ([clean.json()["submission_id"]], [spam.json()["submission_id"]])

        path = f"/submissions/{kept[0]}/not-spam"
        assert site.management.post(path).json()["is_spam"] is False
        assert site.management.post(path).status_code == 409
        await until(lambda: site.states() == {"delivered": 2}, "the other one is delivered too")
        assert len(receiver.requests) == 2
