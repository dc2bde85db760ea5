"""Addresses and headers that a webhook can have at all, secrets in turn, and how well a destination does."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from hymical.domain.destinations import (
    DestinationChange,
    DestinationEvent,
    Headers,
    NewDestination,
    Observation,
    Seen,
    Trouble,
    TroublePolicy,
    check_headers,
    check_max_in_flight,
    check_url,
    headers_from,
    observe,
    rotated,
)
from hymical.domain.errors import InvalidValue
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import Secret, SigningSecret
from tests.builders import a_secret
from tests.clocks import START

DAY = timedelta(days=1)
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


# Headers

OURS = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "webhook-any",
    "hymical-delivery",
    "hymical-attempt",
    "hymical-any",
    "proxy-authorization",
    "proxy-connection",
]


def a_header(name: str, value: str = "value") -> Headers:
    return ((name, Secret(value)),)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        a_header("Authorization", "Bearer abc=="),
        a_header("x-" + "y" * 98, "z" * 1_024),
        a_header("!#$%&'*+.^_`|~-09az", ""),
        tuple((f"x-{number}", Secret("1")) for number in range(20)),
        a_header("webhook"),
        a_header("x-webhook-id"),
    ],
)
def test_these_headers_are_fine(headers: Headers) -> None:
    check_headers(headers)


@pytest.mark.parametrize("name", OURS)
def test_headers_that_are_ours_cannot_be_set_in_any_case(name: str) -> None:
    for written in (name, name.upper(), name.title(), name.swapcase()):
        with pytest.raises(InvalidValue) as refusal:
            check_headers(a_header(written))
        assert refusal.value.field == "headers"
        assert name in refusal.value.rule


@pytest.mark.parametrize(
    "name", ["", "x y", "x:", "x\r\ny", "x\n", "é", "x\0", "x/y", "(x)", "x" * 101, "\ud800", "webhook-id\n"]
)
def test_names_that_cannot_be_sent_are_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="names"):
        check_headers(a_header(name))


@pytest.mark.parametrize(
    "value",
    [
        "s3cret\r\nhost: x",
        "s3cret\n",
        "s3cret\r",
        "s3cret\0",
        "s3crét",
        "s3cret\t",
        " s3cret",
        "s3cret ",
        "s3cret" * 171,
    ],
)
def test_values_that_cannot_be_sent_are_refused_without_being_shown(value: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        check_headers(a_header("x-key", value))
    assert "x-key" in refusal.value.rule
    assert "s3cr" not in str(refusal.value) + repr(refusal.value)


def test_a_header_is_set_once_whatever_its_case() -> None:
    with pytest.raises(InvalidValue, match="twice"):
        check_headers((*a_header("X-Key"), *a_header("x-kEY")))


def test_there_are_at_most_20_headers() -> None:
    with pytest.raises(InvalidValue, match="20"):
        check_headers(tuple((f"x-{number}", Secret("1")) for number in range(21)))


def test_headers_keep_their_order_and_hide_their_values() -> None:
    headers = headers_from({"x-b": "s3cret", "x-a": "2"})

    assert [(name, value.reveal()) for name, value in headers] == [("x-b", "s3cret"), ("x-a", "2")]
    assert "s3cret" not in repr(headers)


@pytest.mark.parametrize("number", [-1, 0, 1_001])
def test_what_may_be_in_flight_is_1_to_1000(number: int) -> None:
    check_max_in_flight(1)
    check_max_in_flight(1_000)
    with pytest.raises(InvalidValue):
        DestinationChange(max_in_flight=number)


def test_a_change_is_held_to_the_same_rules() -> None:
    for change in ({"url": "ftp://example.com"}, {"headers": a_header("host")}):
        with pytest.raises(InvalidValue):
            DestinationChange(**change)


# Rotation


def test_a_rotation_gives_earlier_secrets_an_end_and_the_new_one_none() -> None:
    old, new = a_secret(), a_secret().value

    assert rotated([old], new, previous_valid_until=START + DAY, now=START) == (
        replace(old, valid_until=START + DAY),
        SigningSecret(value=new),
    )


@pytest.mark.parametrize("end", [START + timedelta(hours=1), START + 9 * DAY])
def test_a_secret_that_has_an_end_keeps_it(end: datetime) -> None:
    ending, new = replace(a_secret(), valid_until=end), a_secret().value

    secrets = rotated([ending], new, previous_valid_until=START + DAY, now=START)

    assert secrets == (ending, SigningSecret(value=new))


@pytest.mark.parametrize("end", [START, START - timedelta(microseconds=1)])
def test_a_secret_that_has_ended_is_dropped(end: datetime) -> None:
    ended, current, new = replace(a_secret(), valid_until=end), a_secret(), a_secret().value

    assert rotated([ended, current], new, previous_valid_until=end, now=START) == (SigningSecret(value=new),)


# How well it does

SECOND, MINUTE, DAY_AND_A_BIT = timedelta(seconds=1), timedelta(minutes=1), DAY + timedelta(hours=1)
POLICY = TroublePolicy()
FAILING = Trouble(failing_since=START, failures_in_a_row=1)
OPEN = replace(FAILING, failures_in_a_row=5, openings=1, held_until=START + 10 * SECOND)
WARNED = replace(OPEN, warned=True)


def observed(
    trouble: Trouble | None, seen: Seen, *, after: timedelta = timedelta(0), dice: float = 0.5
) -> Observation:
    return observe(trouble, seen, now=START + after, policy=POLICY, dice=dice)


@pytest.mark.parametrize(
    ("trouble", "seen", "after", "left"),
    [
        (None, Seen(), MINUTE, None),
        (OPEN, Seen(), MINUTE, OPEN),
        (None, Seen(succeeded=1), MINUTE, None),
        (OPEN, Seen(succeeded=1, failed=9), MINUTE, None),
        (None, Seen(failed=1), timedelta(0), FAILING),
        (None, Seen(failed=4), timedelta(0), replace(FAILING, failures_in_a_row=4)),
        (None, Seen(failed=5), timedelta(0), OPEN),
        (
            replace(FAILING, failures_in_a_row=3),
            Seen(failed=1),
            MINUTE,
            replace(FAILING, failures_in_a_row=4),
        ),
        (
            replace(FAILING, failures_in_a_row=4),
            Seen(failed=1),
            MINUTE,
            replace(OPEN, held_until=START + MINUTE + 10 * SECOND),
        ),
        # on its way when the breaker opened
        (OPEN, Seen(failed=3), 9 * SECOND, replace(OPEN, failures_in_a_row=8)),
        # the one that was let through to try
        (
            OPEN,
            Seen(failed=1),
            10 * SECOND,
            replace(OPEN, failures_in_a_row=6, openings=2, held_until=START + 30 * SECOND),
        ),
    ],
)
def test_the_breaker_after_an_observation(
    trouble: Trouble | None, seen: Seen, after: timedelta, left: Trouble | None
) -> None:
    assert observed(trouble, seen, after=after) == Observation(trouble=left)


def pauses(times: int, dice: float) -> list[float]:
    trouble, now, found = replace(FAILING, failures_in_a_row=4), START, list[float]()
    for _ in range(times):
        left = observe(trouble, Seen(failed=1), now=now, policy=POLICY, dice=dice).trouble
        assert left is not None
        assert left.held_until is not None
        found.append((left.held_until - now).total_seconds())
        trouble, now = left, left.held_until
    return found


def test_pauses_double_up_to_five_minutes() -> None:
    assert pauses(8, 0.5) == [10, 20, 40, 80, 160, 300, 300, 300]


def test_pauses_are_spread_by_a_fifth_either_way() -> None:
    assert pauses(6, 0.0) == pytest.approx([8, 16, 32, 64, 128, 240])
    assert pauses(6, 0.999_999) == pytest.approx([12, 24, 48, 96, 192, 360], abs=0.01)


def test_however_often_it_opened_a_pause_can_be_reckoned() -> None:
    left = observed(replace(OPEN, openings=10**6), Seen(failed=1), after=MINUTE).trouble

    assert left is not None
    assert left.held_until == START + MINUTE + POLICY.longest_pause


def test_half_open_lets_one_try_until_one_succeeds() -> None:
    assert OPEN.probing
    assert not FAILING.probing
    assert observed(OPEN, Seen(succeeded=1), after=MINUTE).trouble is None


def test_the_operator_is_warned_once_after_24_hours() -> None:
    before = observed(OPEN, Seen(failed=1), after=DAY - timedelta(microseconds=1))
    at = observed(OPEN, Seen(failed=1), after=DAY)

    assert before.events == ()
    assert at.events == (DestinationEvent.FAILING,)
    assert at.trouble is not None
    assert at.trouble.warned
    assert observed(at.trouble, Seen(failed=1), after=DAY_AND_A_BIT).events == ()


def test_only_a_recovery_that_was_warned_of_is_told() -> None:
    assert observed(OPEN, Seen(succeeded=1), after=4 * DAY).events == ()
    assert observed(WARNED, Seen(succeeded=1), after=4 * DAY) == Observation(
        trouble=None, events=(DestinationEvent.RECOVERED,)
    )


def test_after_five_days_it_is_disabled() -> None:
    assert not observed(WARNED, Seen(failed=1), after=5 * DAY - timedelta(microseconds=1)).disables
    assert observed(WARNED, Seen(failed=1), after=5 * DAY) == Observation(
        trouble=None, events=(DestinationEvent.DISABLED,), disables=True
    )


@pytest.mark.parametrize("seen", [Seen(), Seen(succeeded=1), Seen(succeeded=1, failed=100)])
def test_a_success_on_the_last_attempt_never_disables(seen: Seen) -> None:
    for after in (5 * DAY, 50 * DAY):
        assert not observed(WARNED, seen, after=after).disables
        assert not observed(OPEN, seen, after=after).disables


@pytest.mark.parametrize("trouble", [None, FAILING, OPEN, WARNED])
@pytest.mark.parametrize("seen", [Seen(failed=1, gone=True), Seen(succeeded=1, failed=1, gone=True)])
def test_gone_disables_at_once(trouble: Trouble | None, seen: Seen) -> None:
    assert observed(trouble, seen) == Observation(
        trouble=None, events=(DestinationEvent.DISABLED,), disables=True
    )
