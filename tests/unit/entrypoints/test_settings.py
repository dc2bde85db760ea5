"""Settings as they are documented, and every problem with them at once."""

import base64
import os
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from hymical.domain.destinations import TroublePolicy
from hymical.domain.limits import IntakeLimits, RateLimit, RateLimits
from hymical.domain.retries import RetryPolicy
from hymical.entrypoints.bootstrap.settings import SettingsInvalid, load_settings, parse_duration

URL = "postgresql://zoe:s3cret@localhost/hymical"
LEASE, CONNECT, READ = (
    "FORMS_WORKER_LEASE_SECONDS",
    "FORMS_WEBHOOK_CONNECT_TIMEOUT_SECONDS",
    "FORMS_WEBHOOK_READ_TIMEOUT_SECONDS",
)

BREAKER_RULE = (
    "is 5 s, less than the first pause, FORMS_WEBHOOK_BREAKER_PAUSE_SECONDS, of 10 s:"
    " lengthen it, or shorten that one"
)
ALERT_URL, ALERT_SECRET = "FORMS_ALERT_WEBHOOK_URL", "FORMS_ALERT_WEBHOOK_SECRET"
SIGNING_SECRET = "whsec_" + base64.b64encode(b"s3cret" * 5).decode()
KEYS = tuple(base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (251, 252))


@pytest.fixture(autouse=True)
def _only_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith("FORMS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FORMS_ENV_FILE", os.devnull)
    monkeypatch.setenv("FORMS_DATABASE_URL", URL)


def problems_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsInvalid) as refusal:
        load_settings()
    return refusal.value.problems


def seconds(*numbers: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=number) for number in numbers)


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load_settings()

    assert settings.database_url.get_secret_value() == URL
    assert settings.worker_poll_seconds == timedelta(seconds=1)
    assert settings.worker_batch_size == 10
    assert settings.worker_concurrency == 100
    assert settings.worker_lease_seconds == timedelta(seconds=60)
    assert settings.webhook_connect_timeout_seconds == timedelta(seconds=5)
    assert settings.webhook_read_timeout_seconds == timedelta(seconds=10)
    assert settings.webhook_allowed_networks == ()
    assert settings.webhook_allow_http is False
    assert settings.attempt_deadline == timedelta(seconds=15)
    assert settings.intake_limits == IntakeLimits(
        max_body_bytes=262_144, max_fields=100, max_field_name_length=128, max_field_value_length=16_384
    )
    assert settings.intake_limits == IntakeLimits()
    minute = timedelta(seconds=60)
    assert settings.rate_limits == RateLimits(
        source=RateLimit(requests=60, window=minute), form=RateLimit(requests=600, window=minute)
    )
    assert settings.trusted_proxy_hops == 0
    assert settings.webhook_sender == "aiohttp"
    assert settings.trouble_policy == TroublePolicy()
    assert (settings.alert_webhook_url, settings.alert_webhook_secret, settings.secret_key) == (
        None,
        None,
        (),
    )
    assert (settings.job_poll_min_seconds, settings.job_poll_max_seconds) == seconds(0.5, 10)
    assert (settings.job_batch_size, settings.job_concurrency, settings.job_max_retries) == (100, 10, 3)
    assert (settings.job_lease_seconds, settings.job_drain_seconds) == seconds(60, 30)
    assert settings.job_modules == ()
    hours = (2, 5, 10, 14, 20, 24)
    assert settings.retry_policy == RetryPolicy(
        waits=seconds(5, 300, 1_800, *(hour * 3_600 for hour in hours))
    )


def test_each_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "FORMS_WORKER_POLL_SECONDS": "0.25",
        "FORMS_WORKER_BATCH_SIZE": "7",
        "FORMS_WORKER_CONCURRENCY": "8",
        LEASE: "2m",
        CONNECT: "500ms",
        READ: "3s",
        "FORMS_WEBHOOK_RETRY_SCHEDULE": " 1s  2m\t3h ",
        "FORMS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8, ::1 10.1.2.3/8",
        "FORMS_WEBHOOK_ALLOW_HTTP": "true",
        "FORMS_WEBHOOK_SENDER": "httpx",
        "FORMS_WEBHOOK_BREAKER_FAILURES": "3",
        "FORMS_WEBHOOK_BREAKER_PAUSE_SECONDS": "2s",
        "FORMS_WEBHOOK_BREAKER_MAX_PAUSE_SECONDS": "1h",
        ALERT_URL: "https://example.com/alerts",
        ALERT_SECRET: SIGNING_SECRET,
        "FORMS_SECRET_KEY": f"{KEYS[0]}, {KEYS[1]}",
        "FORMS_MAX_BODY_BYTES": "1000",
        "FORMS_MAX_FIELDS": "2",
        "FORMS_MAX_FIELD_NAME_LENGTH": "3",
        "FORMS_MAX_FIELD_VALUE_LENGTH": "4",
        "FORMS_RATE_LIMIT_IP_REQUESTS": "5",
        "FORMS_RATE_LIMIT_IP_WINDOW_SECONDS": "6",
        "FORMS_RATE_LIMIT_FORM_REQUESTS": "7",
        "FORMS_RATE_LIMIT_FORM_WINDOW_SECONDS": "8m",
        "FORMS_TRUSTED_PROXY_HOPS": "2",
        "FORMS_JOB_POLL_MIN_SECONDS": "250ms",
        "FORMS_JOB_POLL_MAX_SECONDS": "1m",
        "FORMS_JOB_BATCH_SIZE": "11",
        "FORMS_JOB_CONCURRENCY": "12",
        "FORMS_JOB_LEASE_SECONDS": "13",
        "FORMS_JOB_DRAIN_SECONDS": "0",
        "FORMS_JOB_MAX_RETRIES": "0",
        "FORMS_JOB_MODULES": "acme.jobs, acme.more_jobs",
    }.items():
        monkeypatch.setenv(name, value)

    settings = load_settings()

    assert settings.worker_poll_seconds == timedelta(milliseconds=250)
    assert (settings.worker_batch_size, settings.worker_concurrency) == (7, 8)
    assert settings.worker_lease_seconds == timedelta(minutes=2)
    assert settings.attempt_deadline == timedelta(seconds=3.5)
    assert settings.retry_policy.waits == seconds(1, 120, 10_800)
    assert settings.webhook_allowed_networks == (
        ip_network("127.0.0.0/8"),
        ip_network("::1/128"),
        ip_network("10.0.0.0/8"),
    )
    assert settings.webhook_allow_http is True
    assert settings.webhook_sender == "httpx"
    assert settings.trouble_policy == TroublePolicy(
        opens_after=3, first_pause=timedelta(seconds=2), longest_pause=timedelta(hours=1)
    )
    assert settings.alert_webhook_url == "https://example.com/alerts"
    assert settings.alert_webhook_secret is not None
    assert settings.alert_webhook_secret.get_secret_value() == SIGNING_SECRET
    assert [key.get_secret_value() for key in settings.secret_key] == list(KEYS)
    assert settings.intake_limits == IntakeLimits(
        max_body_bytes=1_000, max_fields=2, max_field_name_length=3, max_field_value_length=4
    )
    assert settings.rate_limits == RateLimits(
        source=RateLimit(requests=5, window=timedelta(seconds=6)),
        form=RateLimit(requests=7, window=timedelta(minutes=8)),
    )
    assert settings.trusted_proxy_hops == 2
    assert (settings.job_poll_min_seconds, settings.job_poll_max_seconds) == seconds(0.25, 60)
    assert (settings.job_batch_size, settings.job_concurrency, settings.job_max_retries) == (11, 12, 0)
    assert (settings.job_lease_seconds, settings.job_drain_seconds) == seconds(13, 0)
    assert settings.job_modules == ("acme.jobs", "acme.more_jobs")


def test_limits_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMS_RATE_LIMIT_ENABLED", "false")

    assert load_settings().rate_limits == RateLimits(source=None, form=None)


def test_settings_of_jobs_that_cannot_work_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems_with(
        monkeypatch,
        FORMS_JOB_POLL_MAX_SECONDS="0.1",
        FORMS_JOB_LEASE_SECONDS="0.9",
        FORMS_JOB_MAX_RETRIES="-1",
        FORMS_JOB_CONCURRENCY="1001",
    ) == [
        (
            "FORMS_JOB_POLL_MAX_SECONDS is 0.1 s, less than the first pause, FORMS_JOB_POLL_MIN_SECONDS,"
            " of 0.5 s: lengthen it, or shorten that one."
        ),
        "FORMS_JOB_CONCURRENCY must be at most 1,000.",
        "FORMS_JOB_LEASE_SECONDS is 0.9 s, and is renewed each third of it: set it to 1 s or more.",
        "FORMS_JOB_MAX_RETRIES must be at least 0.",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FORMS_RATE_LIMIT_IP_REQUESTS", "0"),
        ("FORMS_RATE_LIMIT_IP_WINDOW_SECONDS", "0"),
        ("FORMS_RATE_LIMIT_FORM_REQUESTS", "1000001"),
        ("FORMS_RATE_LIMIT_FORM_WINDOW_SECONDS", "2y"),
        ("FORMS_TRUSTED_PROXY_HOPS", "-1"),
    ],
)
def test_a_limit_that_cannot_work_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    (problem,) = problems_with(monkeypatch, **{name: value})

    assert problem.startswith(f"{name} ")


def test_an_empty_value_is_as_if_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = load_settings()
    for name in ("FORMS_WEBHOOK_RETRY_SCHEDULE", "FORMS_MAX_FIELDS", "FORMS_WEBHOOK_ALLOW_HTTP", ALERT_URL):
        monkeypatch.setenv(name, "")

    assert load_settings() == unset


def test_a_schedule_may_have_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMS_WEBHOOK_RETRY_SCHEDULE", "1s, 2m,3h")

    assert load_settings().retry_policy.waits == seconds(1, 120, 10_800)


@pytest.mark.parametrize("schedule", [" ", ",", "0s", "5s 0"])
def test_a_schedule_without_a_wait_or_with_none_at_all_is_refused(
    monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    assert problems_with(monkeypatch, FORMS_WEBHOOK_RETRY_SCHEDULE=schedule) == [
        "FORMS_WEBHOOK_RETRY_SCHEDULE must be one wait or more, each longer than 0, such as 5s 5m 1h."
    ]


def test_a_variable_that_is_no_setting_is_warned_of_and_the_nearest_one_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "env"
    file.write_text("FORMS_MAX_FIELD=3\nOTHER=1\n", encoding="utf-8")
    monkeypatch.setenv("FORMS_ENV_FILE", str(file))
    monkeypatch.setenv("FORMS_WORKER_BATCHSIZE", "3")
    monkeypatch.setenv("FORMS_TEST_DATABASE_URL", URL)

    load_settings()

    assert caplog.messages == [
        "FORMS_MAX_FIELD is not a setting, and is ignored; did you mean FORMS_MAX_FIELDS?",
        "FORMS_WORKER_BATCHSIZE is not a setting, and is ignored; did you mean FORMS_WORKER_BATCH_SIZE?",
    ]


@pytest.mark.parametrize("url", ["postgresql://localhost/x", "postgres://localhost/x"])
def test_both_ways_to_begin_a_url_are_understood(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("FORMS_DATABASE_URL", url)

    assert load_settings().database_url.get_secret_value() == "postgresql://localhost/x"


@pytest.mark.parametrize(
    ("written", "duration"),
    [
        ("0", 0.0),
        ("0.5", 0.5),
        ("5", 5.0),
        ("500ms", 0.5),
        ("5s", 5.0),
        (" 5 m ", 300.0),
        ("1.5h", 5_400.0),
        ("1d", 86_400.0),
        ("365d", 365 * 86_400.0),
        (7, 7.0),
        (0.5, 0.5),
        (timedelta(minutes=1), 60.0),
    ],
)
def test_a_duration_has_fractions_and_units(written: object, duration: float) -> None:
    assert parse_duration(written) == timedelta(seconds=duration)


@pytest.mark.parametrize(
    "written",
    ["", "s", "-1", "+1", "1e3", "5 minutes", "5M", "1h30m", ".5", "5.", "٣", "nan", "inf", None, "1w"],
)
def test_anything_else_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match="must be a duration such as"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["366d", "9" * 30, "9" * 400 + "d"])
def test_a_duration_is_at_most_a_year(written: str) -> None:
    with pytest.raises(ValueError, match="at most a year"):
        parse_duration(written)


# Problems


def test_without_a_database_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORMS_DATABASE_URL")

    assert problems_with(monkeypatch) == [
        "FORMS_DATABASE_URL is not set: it names the database, such as postgresql://user:password@host/database."
    ]


def test_every_problem_is_listed_at_once_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = problems_with(
        monkeypatch,
        FORMS_DATABASE_URL="mysql://zoe:s3cret@localhost/hymical",
        FORMS_WORKER_POLL_SECONDS="soon",
        FORMS_WORKER_BATCH_SIZE="0",
        FORMS_WEBHOOK_RETRY_SCHEDULE="5s later",
        FORMS_WEBHOOK_ALLOWED_NETWORKS="localhost",
        FORMS_WEBHOOK_ALLOW_HTTP="perhaps",
        FORMS_MAX_FIELDS="many",
    )

    assert {problem.split()[0] for problem in problems} == {
        "FORMS_DATABASE_URL",
        "FORMS_WORKER_POLL_SECONDS",
        "FORMS_WORKER_BATCH_SIZE",
        "FORMS_WEBHOOK_RETRY_SCHEDULE",
        "FORMS_WEBHOOK_ALLOWED_NETWORKS",
        "FORMS_WEBHOOK_ALLOW_HTTP",
        "FORMS_MAX_FIELDS",
    }
    assert len(problems) == 7
    assert all(problem.endswith(".") for problem in problems)
    assert "FORMS_DATABASE_URL must start with postgresql://." in problems
    assert "FORMS_WORKER_POLL_SECONDS must be a duration such as 0.5, 30s, 5m or 2h." in problems
    assert not any("s3cret" in problem for problem in problems)


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("FORMS_MAX_FIELDS", "many", "must be a whole number"),
        ("FORMS_MAX_FIELDS", "0", "must be greater than 0"),
        ("FORMS_WORKER_BATCH_SIZE", "1001", "must be at most 1,000"),
        ("FORMS_WEBHOOK_ALLOW_HTTP", "perhaps", "must be true or false"),
        ("FORMS_WEBHOOK_SENDER", "requests", "must be 'httpx' or 'aiohttp'"),
        ("FORMS_WORKER_POLL_SECONDS", "0", "must be greater than 0"),
        (
            "FORMS_WEBHOOK_BREAKER_MAX_PAUSE_SECONDS",
            "5",
            BREAKER_RULE,
        ),
    ],
)
def test_a_rule_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, rule: str
) -> None:
    assert problems_with(monkeypatch, **{variable: value}) == [f"{variable} {rule}."]


@pytest.mark.parametrize("variable", ["FORMS_WORKER_POLL_SECONDS", LEASE, CONNECT, READ])
def test_what_is_waited_for_must_take_some_time(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    (problem,) = problems_with(monkeypatch, **{variable: "0"})

    assert problem.startswith(variable)


@pytest.mark.parametrize(
    ("connect", "read", "shortest"),
    [("5", "5", "12"), ("1", "1", "4"), ("5", "15", "24"), ("0.5", "0.5", "3")],
)
def test_a_lease_outlives_an_attempt_by_2_seconds_or_a_fifth(
    monkeypatch: pytest.MonkeyPatch, connect: str, read: str, shortest: str
) -> None:
    monkeypatch.setenv(CONNECT, connect)
    monkeypatch.setenv(READ, read)
    monkeypatch.setenv(LEASE, shortest)
    assert load_settings().worker_lease_seconds == timedelta(seconds=int(shortest))

    (problem,) = problems_with(monkeypatch, **{LEASE: f"{float(shortest) - 0.001}"})

    assert all(name in problem for name in (LEASE, CONNECT, READ))
    assert f"{shortest} s or more" in problem


def test_a_lease_that_the_timeouts_outgrew_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = problems_with(monkeypatch, **{READ: "50"})

    assert all(name in problem for name in (LEASE, CONNECT, READ))


def test_timeouts_that_cannot_be_read_are_the_only_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = problems_with(monkeypatch, **{READ: "long", LEASE: "1"})

    assert problem.startswith(READ)


@pytest.mark.parametrize("given", [{ALERT_URL: "https://example.com/alerts"}, {ALERT_SECRET: SIGNING_SECRET}])
def test_where_alerts_go_and_how_they_are_signed_are_set_together(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    assert problems_with(monkeypatch, **given) == [
        f"{ALERT_SECRET} and {ALERT_URL} go together: set both, or neither."
    ]


def test_an_alert_address_that_cannot_be_called_is_the_only_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = problems_with(monkeypatch, **{ALERT_URL: "ftp://example.com", ALERT_SECRET: SIGNING_SECRET})

    assert problems == [f"{ALERT_URL} must start with https:// (or http://, where that is allowed)."]


@pytest.mark.parametrize("secret", ["s3cret", "whsec_s3cret", "whsec_"])
def test_an_alert_secret_that_cannot_sign_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    problems = problems_with(monkeypatch, **{ALERT_URL: "https://example.com", ALERT_SECRET: secret})

    assert problems == [f"{ALERT_SECRET} must be whsec_ and 24 to 64 bytes in base64."]


@pytest.mark.parametrize(
    "keys", ["s3cret", "s3cret" * 8, KEYS[0][:-2], KEYS[0] + "é", f"{KEYS[0]} s3cret", "é" * 44]
)
def test_a_key_that_seals_nothing_is_refused_and_one_is_suggested(
    monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    (problem,) = problems_with(monkeypatch, FORMS_SECRET_KEY=keys)

    assert problem.startswith(
        "FORMS_SECRET_KEY must be URL-safe base64 of 32 random bytes, the newest first;"
    )
    assert "os.urandom(32)" in problem
    assert not any(hidden in problem for hidden in ("s3cret", KEYS[0][:-2]))


def test_keys_and_the_alert_secret_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMS_SECRET_KEY", " ".join(KEYS))
    monkeypatch.setenv(ALERT_URL, "https://example.com")
    monkeypatch.setenv(ALERT_SECRET, SIGNING_SECRET)

    shown = repr(load_settings()) + load_settings().model_dump_json()

    assert not any(hidden in shown for hidden in (*KEYS, SIGNING_SECRET))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("FORMS_WEBHOOK_BREAKER_FAILURES", "0"),
        ("FORMS_WEBHOOK_BREAKER_PAUSE_SECONDS", "0"),
        ("FORMS_WEBHOOK_BREAKER_MAX_PAUSE_SECONDS", "0"),
        ("FORMS_WEBHOOK_SENDER", "requests"),
    ],
)
def test_a_breaker_that_never_closes_and_an_unknown_sender_are_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    (problem,) = problems_with(monkeypatch, **{variable: value})

    assert problem.startswith(variable)


def test_the_database_s_password_does_not_show() -> None:
    settings = load_settings()

    assert "s3cret" not in repr(settings) + str(settings) + repr(settings.model_dump())
    assert "s3cret" not in settings.model_dump_json()


def test_a_refused_url_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMS_DATABASE_URL", "s3cret")

    with pytest.raises(SettingsInvalid) as refusal:
        load_settings()

    assert "s3cret" not in str(refusal.value) + repr(refusal.value)
    assert refusal.value.__suppress_context__
    assert "s3cret" not in str(refusal.value.__context__)


def test_settings_do_not_change() -> None:
    settings = load_settings()

    with pytest.raises(ValueError, match="frozen"):
        settings.worker_batch_size = 3


def test_the_default_retries_span_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMS_DATABASE_URL", "postgresql://localhost/none")
    assert sum(load_settings().retry_policy.waits, timedelta(0)) > timedelta(hours=48)
