"""Addresses that a webhook can be sent to at all."""

import pytest

from hymical.domain.destinations import NewDestination, check_url
from hymical.domain.errors import InvalidValue
from hymical.domain.ids import DestinationId, FormId
from tests.builders import a_secret

LONGEST = "https://example.com/" + "x" * (2_048 - len("https://example.com/"))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "http://example.com/",
        "HTTPS://EXAMPLE.COM/Hook",
        "https://example.com:8443/hook?a=1&b=%20",
        "https://192.0.2.1/hook",
        "https://[2001:db8::1]:8443/hook",
        "https://xn--bcher-kva.example/hook",
        "https://example.com/a@b:c",
        LONGEST,
    ],
)
def test_these_addresses_are_fine(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    ("url", "because"),
    [
        ("", "https://"),
        ("example.com/hook", "https://"),
        ("//example.com/hook", "https://"),
        ("/hook", "https://"),
        ("ftp://example.com", "https://"),
        ("file:///etc/passwd", "https://"),
        ("javascript:alert(1)", "https://"),
        ("https:", "host"),
        ("https://", "host"),
        ("https:///hook", "host"),
        ("https:example.com", "host"),
        ("https://:443/hook", "host"),
        ("https://?a", "host"),
        ("https://zoe@example.com", "user name"),
        ("https://zoe:pass@example.com", "user name"),
        ("https://:pass@example.com", "user name"),
        ("https://@example.com", "user name"),
        ("https://example.com/#top", "fragment"),
        ("https://example.com:port/", "port"),
        ("https://example.com:65536/", "port"),
        ("https://example.com:-1/", "port"),
        ("https://[::1/", "host"),
        ("https://exa mple.com", "spaces"),
        (" https://example.com", "spaces"),
        ("https://example.com/\n", "printable"),
        ("https://example.com/\0", "printable"),
        ("https://example.com/\t", "printable"),
        ("https://bücher.example/", "ASCII"),
        ("https://example.com/é", "percent-encode"),
        ("https://example.com/\ud800", "ASCII"),
        (LONGEST + "x", "2048"),
    ],
)
def test_these_are_refused_with_the_rule_that_they_break(url: str, because: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        check_url(url)
    assert refusal.value.field == "url"
    assert because in refusal.value.rule


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InvalidValue) as refusal:
        check_url("https://zoe:s3cret@example.com:port/")
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__suppress_context__


def test_a_new_destination_has_such_an_address() -> None:
    with pytest.raises(InvalidValue):
        NewDestination(
            id=DestinationId("dst_1"),
            form_id=FormId("contact"),
            url="ftp://example.com",
            secrets=(a_secret(),),
        )
