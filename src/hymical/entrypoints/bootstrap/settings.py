"""Settings from environment variables that start with `FORMS_`, or from `.env`."""

import base64
import logging
import os
import re
from collections.abc import Collection
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, NoDecode, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from hymical.domain.destinations import TroublePolicy, check_url
from hymical.domain.errors import InvalidValue
from hymical.domain.limits import IntakeLimits, RateLimit, RateLimits
from hymical.domain.retention import RetentionPolicy
from hymical.domain.retries import RetryPolicy
from hymical.domain.signing import Secret, is_signing_secret

_log = logging.getLogger(__name__)
_PREFIX = "FORMS_"
_OF_TESTS = f"{_PREFIX}TEST_DATABASE_URL"
_ENV_FILE = f"{_PREFIX}ENV_FILE"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LONGEST = timedelta(days=365)
_SHORTEST_OF = {
    "webhook_breaker_max_pause_seconds": "webhook_breaker_pause_seconds",
    "job_poll_max_seconds": "job_poll_min_seconds",
}
_SHORTEST_JOB_LEASE = timedelta(seconds=1)
_KEY_BYTES = 32
_MAKE_ONE = (
    "make one with: python3 -c 'import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())'"
)


class SettingsInvalid(Exception):
    """Settings that cannot work; `problems` has one sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def parse_duration(value: object) -> timedelta:
    """A duration written as seconds (`0.5`) or with a unit (`500ms`, `5s`, `5m`, `2h`, `1d`)."""
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("must be a duration such as 0.5, 30s, 5m or 2h")
    number, unit = match.groups()
    try:
        duration = timedelta(seconds=float(number) * _UNITS[unit or "s"])
    except OverflowError:
        duration = timedelta.max
    if duration > _LONGEST:
        raise ValueError("must be at most a year")
    return duration


def _durations(value: object) -> object:
    if not isinstance(value, str):
        return value
    waits = tuple(parse_duration(part) for part in re.split(r"[\s,]+", value) if part)
    if not waits or not all(waits):
        raise ValueError("must be one wait or more, each longer than 0, such as 5s 5m 1h")
    return waits


def _networks(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(ip_network(part, strict=False) for part in re.split(r"[\s,]+", value) if part)


def _words(value: object) -> object:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Wait = Annotated[timedelta, BeforeValidator(parse_duration), Field(gt=timedelta(0))]
Durations = Annotated[tuple[timedelta, ...], NoDecode, BeforeValidator(_durations)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_networks)]
Count = Annotated[int, Field(gt=0)]
Requests = Annotated[int, Field(gt=0, le=1_000_000)]


class Settings(BaseSettings):
    """Each field is the variable of that name in capitals behind `FORMS_`; defaults are fit for production."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr
    max_body_bytes: Count = 262_144
    max_fields: Count = 100
    max_field_name_length: Count = 128
    max_field_value_length: Count = 16_384
    rate_limit_enabled: bool = True
    rate_limit_ip_requests: Requests = 60
    rate_limit_ip_window_seconds: Wait = timedelta(seconds=60)
    rate_limit_form_requests: Requests = 600
    rate_limit_form_window_seconds: Wait = timedelta(seconds=60)
    trusted_proxy_hops: Annotated[int, Field(ge=0, le=100)] = 0
    duplicate_window_seconds: Duration = timedelta(seconds=10)
    webhook_connect_timeout_seconds: Wait = timedelta(seconds=5)
    webhook_read_timeout_seconds: Wait = timedelta(seconds=10)
    webhook_retry_schedule: Durations = _durations("5s 5m 30m 2h 5h 10h 14h 20h 24h")  # type: ignore[assignment]
    webhook_breaker_failures: Count = 5
    webhook_breaker_pause_seconds: Wait = timedelta(seconds=10)
    webhook_breaker_max_pause_seconds: Wait = timedelta(minutes=5)
    webhook_allowed_networks: Networks = ()
    webhook_allow_http: bool = False
    alert_webhook_url: str | None = None
    alert_webhook_secret: Annotated[SecretStr | None, Field(validate_default=True)] = None
    secret_key: Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_words)] = ()
    webhook_sender: Literal["httpx", "aiohttp"] = "aiohttp"
    worker_poll_seconds: Wait = timedelta(seconds=1)
    worker_batch_size: Annotated[int, Field(gt=0, le=1_000)] = 10
    worker_concurrency: Annotated[int, Field(gt=0, le=10_000)] = 100
    worker_lease_seconds: Wait = timedelta(seconds=60)
    job_poll_min_seconds: Wait = timedelta(seconds=0.5)
    job_poll_max_seconds: Wait = timedelta(seconds=10)
    job_batch_size: Annotated[int, Field(gt=0, le=1_000)] = 100
    job_concurrency: Annotated[int, Field(gt=0, le=1_000)] = 10
    job_lease_seconds: Wait = timedelta(seconds=60)
    job_drain_seconds: Duration = timedelta(seconds=30)
    job_max_retries: Annotated[int, Field(ge=0, le=100)] = 3
    replay_ask_above: Annotated[int, Field(ge=0)] = 1_000
    submission_retention_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    history_retention_days: Annotated[int, Field(ge=0, le=36_500)] = 90
    export_retention_hours: Annotated[int, Field(gt=0, le=8_760)] = 24
    job_modules: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must start with postgresql://")
        url = value.get_secret_value().replace("postgres://", "postgresql://", 1)
        try:
            make_url(url)
            conninfo_to_dict(url)
        except (ArgumentError, ValueError, ProgrammingError):
            # what went wrong may quote the password
            raise ValueError(
                "cannot be read as a URL: its port must be a number, its options those of PostgreSQL, and special"
                " characters in a user name or password percent-encoded"
            ) from None
        return SecretStr(url)

    @field_validator("webhook_breaker_max_pause_seconds", "job_poll_max_seconds")
    @classmethod
    def _is_no_shorter_than_the_first(cls, longest: timedelta, info: ValidationInfo) -> timedelta:
        shortest = _SHORTEST_OF[info.field_name or ""]
        first = info.data.get(shortest)
        if first is not None and longest < first:
            raise ValueError(
                f"is {_seconds(longest)}, less than the first pause, {_PREFIX}{shortest.upper()},"
                f" of {_seconds(first)}: lengthen it, or shorten that one"
            )
        return longest

    @field_validator("job_lease_seconds")
    @classmethod
    def _outlives_its_heartbeats(cls, lease: timedelta) -> timedelta:
        if lease < _SHORTEST_JOB_LEASE:
            raise ValueError(
                f"is {_seconds(lease)}, and is renewed each third of it: set it to"
                f" {_seconds(_SHORTEST_JOB_LEASE)} or more"
            )
        return lease

    @field_validator("alert_webhook_url")
    @classmethod
    def _can_be_called(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                check_url(value)
            except InvalidValue as error:
                raise ValueError(error.rule) from None
        return value

    @field_validator("alert_webhook_secret")
    @classmethod
    def _signs(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if "alert_webhook_url" in info.data and (value is None) != (info.data["alert_webhook_url"] is None):
            raise ValueError(f"and {_PREFIX}ALERT_WEBHOOK_URL go together: set both, or neither")
        if value is not None and not is_signing_secret(Secret(value.get_secret_value())):
            raise ValueError("must be whsec_ and 24 to 64 bytes in base64")
        return value

    @field_validator("secret_key")
    @classmethod
    def _are_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in value:
            try:
                holds = len(base64.urlsafe_b64decode(key.get_secret_value()))
            except ValueError:
                holds = 0
            if holds != _KEY_BYTES:
                raise ValueError(f"must be URL-safe base64 of 32 random bytes, the newest first; {_MAKE_ONE}")
        return value

    @field_validator("worker_lease_seconds")
    @classmethod
    def _outlives_an_attempt(cls, lease: timedelta, info: ValidationInfo) -> timedelta:
        connect = info.data.get("webhook_connect_timeout_seconds")
        read = info.data.get("webhook_read_timeout_seconds")
        if connect is None or read is None:
            return lease
        deadline = connect + read
        shortest = deadline + max(timedelta(seconds=2), deadline * 0.2)
        if lease < shortest:
            raise ValueError(
                f"is {_seconds(lease)}, but one attempt may take {_seconds(deadline)}"
                f" ({_PREFIX}WEBHOOK_CONNECT_TIMEOUT_SECONDS plus {_PREFIX}WEBHOOK_READ_TIMEOUT_SECONDS):"
                f" set it to {_seconds(shortest)} or more, or shorten those two"
            )
        return lease

    @property
    def attempt_deadline(self) -> timedelta:
        """The longest that one attempt takes, whatever the receiver does."""
        return self.webhook_connect_timeout_seconds + self.webhook_read_timeout_seconds

    @property
    def intake_limits(self) -> IntakeLimits:
        return IntakeLimits(
            max_body_bytes=self.max_body_bytes,
            max_fields=self.max_fields,
            max_field_name_length=self.max_field_name_length,
            max_field_value_length=self.max_field_value_length,
        )

    @property
    def rate_limits(self) -> RateLimits:
        if not self.rate_limit_enabled:
            return RateLimits()
        return RateLimits(
            source=RateLimit(requests=self.rate_limit_ip_requests, window=self.rate_limit_ip_window_seconds),
            form=RateLimit(
                requests=self.rate_limit_form_requests, window=self.rate_limit_form_window_seconds
            ),
        )

    @property
    def retention_policy(self) -> RetentionPolicy:
        def days(count: int) -> timedelta | None:
            return timedelta(days=count) if count else None

        return RetentionPolicy(
            submissions=days(self.submission_retention_days), history=days(self.history_retention_days)
        )

    @property
    def export_retention(self) -> timedelta:
        return timedelta(hours=self.export_retention_hours)

    @property
    def trouble_policy(self) -> TroublePolicy:
        return TroublePolicy(
            opens_after=self.webhook_breaker_failures,
            first_pause=self.webhook_breaker_pause_seconds,
            longest_pause=self.webhook_breaker_max_pause_seconds,
        )

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(waits=self.webhook_retry_schedule)


def load_settings() -> Settings:
    """Warns of variables that are no settings. Raises `SettingsInvalid` with every problem at once."""
    for sentence in unknown_variables():
        _log.warning("%s", sentence)
    return read_settings()


def read_settings() -> Settings:
    """Raises `SettingsInvalid` with every problem at once."""
    try:
        return Settings(_env_file=_env_file())  # type: ignore[call-arg]  # it gives the rest
    except ValidationError as error:
        raise SettingsInvalid([_sentence(problem) for problem in error.errors()]) from None


def _env_file() -> str:
    return os.environ.get(_ENV_FILE) or ".env"


def unknown_variables() -> list[str]:
    """A sentence for each variable that begins as a setting does, and is none."""
    known = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields} | {_ENV_FILE}
    read = DotEnvSettingsSource(Settings, env_file=_env_file()).env_vars
    given = {name.upper() for name in (*read, *os.environ)} - known - {_OF_TESTS}
    return [
        f"{name} is not a setting, and is ignored{_hint(name, known)}"
        for name in sorted(given)
        if name.startswith(_PREFIX)
    ]


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


_WORDS = {
    "missing": "is not set: it names the database, such as postgresql://user:password@host/database",
    "int_parsing": "must be a whole number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be greater than 0",
    "greater_than_equal": "must be at least {ge:,}",
    "less_than_equal": "must be at most {le:,}",
    "literal_error": "must be {expected}",
}


def _sentence(problem: object) -> str:
    assert isinstance(problem, dict)  # noqa: S101  what pydantic says
    name = _PREFIX + ".".join(str(part) for part in problem["loc"][:1]).upper()
    if words := _WORDS.get(problem["type"]):
        return f"{name} {words.format(**problem.get('ctx', {}))}."
    message = problem["msg"].removeprefix("Value error, ")
    return f"{name} {message[0].lower()}{message[1:]}."


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
