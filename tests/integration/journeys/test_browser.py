"""What a real browser sends, and what a person sees of it."""

import json
from contextlib import AbstractContextManager
from html import escape
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect

from hymical.entrypoints.receiver import Receiver, receiving
from tests.browser import needs_chromium, open_page
from tests.integration.journeys.test_main_job import posted_by_curl
from tests.site import Site

FIELDS = {
    "name": ["Zoë Müller"],
    "名前": ["日本 café 😀"],
    "topics": ["billing", "api"],
    "a[b]": ['100% & more = "quoted" + plus'],
    "message": ["Two lines,\nthe second one."],
}


@needs_chromium
@pytest.mark.parametrize("encoding", ["multipart/form-data", "application/x-www-form-urlencoded"])
async def test_what_chromium_posts_and_what_curl_posts_are_stored_equal(
    shared_site: Site, encoding: str
) -> None:
    site, form_id = shared_site, f"browser-{len(encoding)}"
    site.make_form(form_id=form_id)
    async with open_page() as page:
        await page.goto(f"{site.api_url}/health")
        await page.set_content(a_form(f"{site.api_url}/f/{form_id}", encoding))
        await page.click("button")
        await page.wait_for_url(f"{site.api_url}/f/{form_id}/thanks")
    (by_browser,) = site.read("/submissions", form_id=form_id)["items"]

    by_curl = posted_by_curl(f"{site.api_url}/f/{form_id}", "--data-urlencode", FIELDS)

    ids = (by_browser["id"], by_curl["submission_id"])
    shown = [site.read(f"/submissions/{one}")["fields"] for one in ids]
    assert shown == [FIELDS, FIELDS]
    assert [list(fields) for fields in shown] == [list(FIELDS), list(FIELDS)]


def a_form(address: str, encoding: str) -> str:
    """A page with a form that holds `FIELDS` already, as a person would have typed them."""
    inputs = "".join(
        f'<textarea name="{escape(name)}">\n{escape(value)}</textarea>'
        for name, values in FIELDS.items()
        for value in values
    )
    return (
        f'<!doctype html><meta charset="utf-8"><form method="post" action="{address}" enctype="{encoding}">'
        f"{inputs}<button>Send</button></form>"
    )


@needs_chromium
@pytest.mark.parametrize("javascript", [True, False], ids=["with-script", "without-script"])
async def test_a_person_who_sends_a_form_is_thanked_and_may_reload(
    shared_site: Site, *, javascript: bool
) -> None:
    site, form_id = shared_site, f"person-{javascript}".lower()
    site.make_form(form_id=form_id)
    site.management.patch(f"/forms/{form_id}", json={"duplicate_window_seconds": 10})
    thanks = f"{site.api_url}/f/{form_id}/thanks"
    with serving(to_fill_in(f"{site.api_url}/f/{form_id}")) as elsewhere:
        async with open_page(javascript=javascript) as page:
            await page.goto(elsewhere.url)
            await page.fill("[name=name]", "Zoë 😀")
            await page.fill("[name=message]", "Two lines,\nthe second one.")
            await page.check("[value=billing]")
            await page.check("[value=api]")
            await page.dblclick("button")
            # the second click ends the way that the first had begun; only where they arrive counts
            await expect(page).to_have_url(thanks)
            await expect(page.locator("h1")).to_have_text("Thank you")

            for _ in range(2):
                answer = await page.reload()
                assert answer is not None
                assert (answer.status, answer.request.method, page.url) == (200, "GET", thanks)

    (stored,) = site.read("/submissions", form_id=form_id)["items"]
    assert site.read(f"/submissions/{stored['id']}")["fields"] == {
        "name": ["Zoë 😀"],
        "message": ["Two lines,\nthe second one."],
        "topics": ["billing", "api"],
    }


@needs_chromium
@pytest.mark.parametrize("javascript", [True, False], ids=["with-script", "without-script"])
async def test_a_person_whose_form_is_refused_reads_why_and_goes_back_to_what_was_typed(
    shared_site: Site, *, javascript: bool
) -> None:
    site, form_id = shared_site, f"refused-{javascript}".lower()
    site.make_form(form_id=form_id)
    with serving(to_fill_in(f"{site.api_url}/f/{form_id}")) as elsewhere:
        async with open_page(javascript=javascript) as page:
            await page.goto(elsewhere.url)
            await page.fill("[name=name]", "Zoë 😀")
            await page.fill("[name=message]", "x" * 16_385)
            async with page.expect_navigation() as navigation:
                await page.click("button")
            answer = await navigation.value
            assert answer is not None
            assert answer.status == 422
            assert await page.text_content("code") == "field_value_too_long"
            assert await page.text_content("li strong") == "message"

            await page.go_back()
            assert await page.input_value("[name=name]") == "Zoë 😀"
            await page.fill("[name=message]", "short")
            await page.click("button")
            await page.wait_for_url(f"{site.api_url}/f/{form_id}/thanks")

    (stored,) = site.read("/submissions", form_id=form_id)["items"]
    assert site.read(f"/submissions/{stored['id']}")["fields"] == {"name": ["Zoë 😀"], "message": ["short"]}


@needs_chromium
async def test_a_page_on_another_origin_posts_with_fetch_and_reads_the_answer(shared_site: Site) -> None:
    site = shared_site
    with serving(EMPTY) as elsewhere:
        listed: dict[str, object] = {"allowed_origins": [elsewhere.url]}
        site.create("/forms", {"id": "fetch-open", "name": "Open"})
        site.create("/forms", {"id": "fetch-listed", "name": "Listed", **listed})
        async with open_page() as page:
            await page.goto(elsewhere.url)
            for form_id in ("fetch-open", "fetch-listed"):
                address = f"{site.api_url}/f/{form_id}"
                sent = await fetched(page, address, {"name": "Zoë 😀"})
                assert (sent["status"], sent["content"]["form_id"]) == (202, form_id)

                refused = await fetched(page, address, {"name": None})
                assert (refused["status"], refused["content"]["code"]) == (422, "invalid_field_value")

            nowhere = await fetched(page, f"{site.api_url}/f/fetch-nowhere", {"name": "Zoë 😀"})
            assert (nowhere["status"], nowhere["content"]["code"]) == (404, "form_not_found")

    (stored,) = site.read("/submissions", form_id="fetch-listed")["items"]
    assert site.read(f"/submissions/{stored['id']}")["fields"] == {"name": ["Zoë 😀"]}


@needs_chromium
async def test_a_page_of_an_origin_that_is_not_listed_stores_nothing_and_reads_nothing(
    shared_site: Site,
) -> None:
    site = shared_site
    listed: dict[str, object] = {"allowed_origins": ["https://www.example.com"]}
    site.create("/forms", {"id": "fetch-others", "name": "Listed", **listed})
    with serving(EMPTY) as elsewhere:
        async with open_page() as page:
            await page.goto(elsewhere.url)
            address = f"{site.api_url}/f/fetch-others"
            assert "TypeError" in (await fetched(page, address, {"name": "Zoë 😀"}))["error"]

            # without a preflight: the browser sends it, and keeps the answer from the page
            assert "TypeError" in (await fetched(page, address, "name=Zo%C3%AB"))["error"]

    assert site.read("/submissions", form_id="fetch-others")["items"] == []


EMPTY = "<!doctype html><title>Elsewhere</title>"


def serving(page: str) -> AbstractContextManager[Receiver]:
    """A page of another origin."""
    return receiving(Receiver(lambda _: None, page=lambda: page))


def to_fill_in(address: str) -> str:
    return (
        f'<!doctype html><meta charset="utf-8"><form method="post" action="{address}"'
        ' enctype="multipart/form-data"><input name="name"><textarea name="message"></textarea>'
        '<input type="checkbox" name="topics" value="billing"><input type="checkbox" name="topics" value="other">'
        '<input type="checkbox" name="topics" value="api"><input type="file" name="attachment">'
        "<button>Send</button></form>"
    )


async def fetched(page: Page, address: str, content: dict[str, str | None] | str) -> dict[str, Any]:
    """The status and the content of the answer as the page reads them, or the error that it gets instead."""
    plain = isinstance(content, str)
    answer: dict[str, Any] = await page.evaluate(
        """async ([address, body, headers]) => {
            try {
                const answer = await fetch(address, {method: "POST", body, headers})
                return {status: answer.status, content: await answer.json()}
            } catch (error) {
                return {error: String(error)}
            }
        }""",
        [
            address,
            content if plain else json.dumps(content),
            {"content-type": "application/x-www-form-urlencoded"}
            if plain
            else {"content-type": "application/json", "idempotency-key": str(uuid4())},
        ],
    )
    return answer
