"""Who is shown a page, and that a page shows text as text."""

from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import RequestFactory

from hymical.domain import errors
from hymical.entrypoints.api.browsers import HTML_HEADERS, prefers_html, problem_page, thanks_page
from hymical.entrypoints.api.problems import answer_with_problem

CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LYNX = "text/html, text/plain, text/sgml, text/css, application/xhtml+xml, */*;q=0.01"
HOSTILE = """<script>alert("1")</script> & 'more'"""
REQUESTS = RequestFactory(app=Litestar(logging_config=None, openapi_config=None))


@pytest.mark.parametrize(
    "accept",
    [
        CHROMIUM,
        FIREFOX,
        LYNX,
        "text/html",
        "TEXT/HTML",
        "text/html;charset=utf-8",
        "text/*",
        "text/html;q=0.2",
        "text/html; q=0.9, application/json; q=0.8",
        "text/html , application/json ; q = 0.999",
        "application/*;q=0, */*",
        "application/json;q=0.1, application/problem+json;q=0.1, text/html;q=0.11",
        ",, text/html ,",
    ],
)
def test_a_page_for_whoever_wants_it_more_than_json(accept: str) -> None:
    assert prefers_html(accept)


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json",
        "application/json, text/plain, */*",
        "application/json, text/html",
        "text/html, application/json",
        "application/json, text/html;q=0.9",
        "application/problem+json, text/html;q=0.9",
        "application/*, text/html;q=0.5",
        "text/html;q=0",
        "text/html;q=0, */*",
        "text/html;q=0.0, text/*",
        "text/html;q=nan",
        "text/html;q=2",
        "text/html;q=-1",
        "text/html;q=",
        "text/plain, */*;q=0.1",
        "image/png",
        "nonsense",
        ";;;,=,",
        "text/htmlx",
    ],
)
def test_json_for_everybody_else(accept: str | None) -> None:
    assert not prefers_html(accept)


def test_everything_in_a_problem_page_is_text() -> None:
    page = problem_page(
        status=422,
        code=HOSTILE,
        title=HOSTILE,
        detail=HOSTILE,
        errors=[(HOSTILE, HOSTILE)],
        retry_after=HOSTILE,
    )

    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#x27;more&#x27;") == 7


def test_a_problem_page_says_what_is_wrong_and_how_to_get_back() -> None:
    page = problem_page(
        status=422, code="field_value_too_long", title="A value is too long", detail="Shorten it.", errors=[]
    )

    for words in (
        "A value is too long",
        "Shorten it.",
        "422 <code>field_value_too_long</code>",
        "Back button",
    ):
        assert words in page


def test_each_wrong_field_is_named() -> None:
    page = problem_page(
        status=422, code="c", title="t", detail="d", errors=[("名前", "too long"), ("email", "too short")]
    )

    assert '<strong dir="auto">名前</strong>: too long' in page
    assert '<strong dir="auto">email</strong>: too short' in page


def test_how_long_to_wait_is_told() -> None:
    page = problem_page(status=429, code="c", title="t", detail="d", retry_after="17")

    assert "wait 17 seconds" in page


def test_whoever_has_posted_nothing_is_not_told_to_go_back() -> None:
    page = problem_page(status=405, code="c", title="t", detail="d", posted=False)

    assert "Back button" not in page
    assert "Open the page that holds the form" in page


@pytest.mark.parametrize(
    "page",
    [thanks_page(), problem_page(status=404, code="c", title="t", detail="d")],
    ids=["thanks", "problem"],
)
def test_pages_need_no_script_and_nothing_from_elsewhere(page: str) -> None:
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert '<meta charset="utf-8">' in page
    assert 'name="viewport"' in page
    for forbidden in ("<script", "javascript:", "http:", "https:", "src=", "href=", "@import", "url("):
        assert forbidden not in page


def answered(accept: str, path: str = "/f/contact") -> Any:
    request = REQUESTS.post(path, headers={"accept": accept})
    return answer_with_problem(request, errors.FieldValueTooLong('<b>"'))


def test_a_browser_at_the_intake_is_answered_with_a_page() -> None:
    response = answered(CHROMIUM)

    assert (response.status_code, response.media_type) == (422, "text/html")
    assert response.headers.items() >= HTML_HEADERS.items()
    assert "<code>field_value_too_long</code>" in response.content
    assert "&lt;b&gt;&quot;" in response.content
    assert "<b>" not in response.content


@pytest.mark.parametrize(("accept", "path"), [("*/*", "/f/contact"), (CHROMIUM, "/api/v1/forms")])
def test_scripts_and_the_management_are_answered_with_json(accept: str, path: str) -> None:
    response = answered(accept, path)

    assert (response.status_code, response.media_type) == (422, "application/problem+json")
    assert response.content["code"] == "field_value_too_long"


def test_a_page_keeps_the_headers_of_its_problem() -> None:
    response = answer_with_problem(
        REQUESTS.post("/f/contact", headers={"accept": FIREFOX}), errors.StorageUnavailable()
    )

    assert response.headers["retry-after"] == "5"
    assert "wait 5 seconds" in response.content
