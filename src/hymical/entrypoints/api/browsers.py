"""What a browser without JavaScript is shown: readable pages, and the choice between them and JSON."""

import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from typing import Any

from litestar.connection import ASGIConnection

HTML_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "vary": "Accept",
}

_WEIGHT = re.compile(r"0(?:\.[0-9]*)?|1(?:\.0*)?", re.ASCII)
_JSON = ("application/json", "application/problem+json")
_GO_BACK = (
    "Go back to the form with the Back button of your browser. What you have typed is still there:"
    " change what is needed and send the form again."
)
_ELSEWHERE = "This address takes what a form sends. Open the page that holds the form and send it from there."
_WAIT = "Please wait {} seconds before you send it again."
_RECEIVED = "What you sent has been received."
_DONE = "You can close this page. Reloading it sends nothing again."

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.125rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 36rem; padding: 3rem 1.25rem;
  overflow-wrap: anywhere }}
h1 {{ font-size: 1.75rem; line-height: 1.2 }}
footer {{ font-size: .875rem; margin-top: 2rem; opacity: .75 }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""


@lru_cache(maxsize=64)
def prefers_html(accept: str | None) -> bool:
    """Whether HTML is wanted more than JSON, by the weights of RFC 9110, section 12.5.1.

    A tie, as in the `*/*` of curl and fetch or without the header, is not more.
    """
    return prefers("text/html", accept, over=_JSON)


def prefers(kind: str, accept: str | None, *, over: Iterable[str]) -> bool:
    """Whether a media type is wanted more than each of the others."""
    ranges = _weights(accept or "")
    return _weight(kind, ranges) > max(_weight(other, ranges) for other in over)


def wants_html(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """The same for a request."""
    return prefers_html(",".join(connection.headers.getall("accept", [])))


def problem_page(
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    errors: Iterable[tuple[str, str]] = (),
    retry_after: str | None = None,
    posted: bool = True,
) -> str:
    """A problem for a person. `errors` are fields with what is wrong; `retry_after` is in seconds.

    `posted` says whether there is a filled form to go back to.
    """
    fields = "".join(
        f'<li><strong dir="auto">{escape(field)}</strong>: {escape(wrong)}</li>\n' for field, wrong in errors
    )
    content = [_paragraph(detail)]
    if fields:
        content.append(f"<ul>\n{fields}</ul>")
    if retry_after:
        content.append(_paragraph(_WAIT.format(retry_after)))
    content.append(_paragraph(_GO_BACK if posted else _ELSEWHERE))
    content.append(f"<footer>Error {status} <code>{escape(code)}</code></footer>")
    return _page(title, content)


def thanks_page() -> str:
    return _page("Thank you", [_paragraph(_RECEIVED), _paragraph(_DONE)])


def _page(title: str, content: Iterable[str]) -> str:
    return _PAGE.format(title=escape(title), content="\n".join(content))


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _weights(accept: str) -> dict[str, float]:
    """The weight of each media range; ranges that cannot be read are left out."""
    found: dict[str, float] = {}
    for element in accept.split(","):
        media_range, *parameters = (part.strip().lower() for part in element.split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.rstrip() == "q":
                value = value.strip()
                weight = float(value) if _WEIGHT.fullmatch(value) else 0.0
                break
        found[media_range] = max(weight, found.get(media_range, 0.0))
    return found


def _weight(kind: str, ranges: dict[str, float]) -> float:
    """The weight of a media type, by the most specific range that holds it."""
    for media_range in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        if media_range in ranges:
            return ranges[media_range]
    return 0.0
