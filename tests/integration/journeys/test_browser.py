"""What a real browser sends."""

import json
from html import escape

import pytest

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
        async with page.expect_navigation() as navigation:
            await page.click("button")
        answer = await navigation.value
        assert answer is not None
        assert answer.status == 202
        receipt = json.loads(await answer.text())

    by_curl = posted_by_curl(f"{site.api_url}/f/{form_id}", "--data-urlencode", FIELDS)

    shown = [site.read(f"/submissions/{one['submission_id']}")["fields"] for one in (receipt, by_curl)]
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
