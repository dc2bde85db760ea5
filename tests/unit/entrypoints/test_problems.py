"""Every refusal has its code and its status, and an accident shows nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from litestar import Litestar, Response
from litestar.exceptions import (
    ClientException,
    HTTPException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.testing import RequestFactory

from hymical.domain import errors
from hymical.domain.errors import HymicalError
from hymical.entrypoints.api.problems import answer_with_problem, problem_of, schema_mismatch

DOCUMENTED: tuple[tuple[HymicalError, int, str], ...] = (
    (errors.FormNotFound("contact"), 404, "form_not_found"),
    (errors.FormClosed("contact"), 409, "form_closed"),
    (errors.OriginNotAllowed("https://elsewhere.example"), 403, "origin_not_allowed"),
    (errors.InvalidIdempotencyKey(), 422, "invalid_idempotency_key"),
    (errors.IdempotencyConflict(), 409, "idempotency_conflict"),
    (errors.RateLimited(timedelta(seconds=17)), 429, "rate_limited"),
    (errors.UnsupportedMediaType("text/plain"), 415, "unsupported_media_type"),
    (errors.BodyTooLarge(262_144), 413, "body_too_large"),
    (errors.MalformedBody("it ends too early"), 400, "malformed_body"),
    (errors.UndecodableText("utf-8"), 400, "undecodable_text"),
    (errors.EmptySubmission(), 422, "empty_submission"),
    (errors.TooManyFields(100), 422, "too_many_fields"),
    (errors.FieldNameTooLong("email"), 422, "field_name_too_long"),
    (errors.FieldValueTooLong("email"), 422, "field_value_too_long"),
    (errors.InvalidFieldName("email"), 422, "invalid_field_name"),
    (errors.InvalidFieldValue("email"), 422, "invalid_field_value"),
    (errors.FileUploadNotSupported("email"), 422, "file_upload_not_supported"),
    (errors.StorageUnavailable(), 503, "storage_unavailable"),
    (errors.Overloaded(), 503, "storage_unavailable"),
    (errors.SchemaMismatch("0001", "0002"), 503, "storage_unavailable"),
    (errors.NotFound("form", "contact"), 404, "not_found"),
    (errors.AlreadyExists("form", "contact"), 409, "conflict"),
    (errors.FormNotEmpty("contact"), 409, "form_not_empty"),
    (errors.NotSpam("sub_1"), 409, "conflict"),
    (errors.NotReplayable("dlv_1", "pending"), 409, "conflict"),
    (errors.NotReplayable("dlv_1", "failed", "submission_deleted"), 409, "conflict"),
    (errors.NotReplayable("dlv_1", "failed", "destination_disabled"), 409, "conflict"),
    (errors.NotResendable("dlv_1"), 409, "conflict"),
    (errors.SecretUnreadable(), 409, "conflict"),
    (errors.InvalidValue("url", "must name a host"), 422, "invalid_request"),
    (errors.Unauthorized(), 401, "unauthorized"),
    (errors.UnknownJobType("greet"), 422, "invalid_request"),
    (errors.InvalidPayload("name: must be a text"), 422, "invalid_request"),
    (errors.JobLost("job_1"), 409, "conflict"),
    (errors.TooManyColumns(1_000), 422, "invalid_request"),
    (errors.ExportNotReady("job_1", "pending"), 409, "conflict"),
    (errors.ExportWithdrawn(), 410, "export_gone"),
    (errors.ExportGone("job_1", "erased"), 410, "export_gone"),
    (errors.ExportGone("job_1", "expired"), 410, "export_gone"),
    (errors.JobNotWaiting("job_1", "completed"), 409, "conflict"),
    (errors.JobNotWaiting("job_1", "paused", "confirm"), 409, "conflict"),
    (errors.JobEnded("job_1", "completed"), 409, "conflict"),
    (errors.JobNotFailed("job_1", "pending"), 409, "conflict"),
)
GROUPS = {errors.PostRefused, errors.FieldRefused}
REQUESTS = RequestFactory(app=Litestar(logging_config=None, openapi_config=None))


def kinds(of: type[HymicalError] = HymicalError) -> Iterator[type[HymicalError]]:
    for kind in of.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from kinds(kind)


def answered(error: Exception) -> tuple[Response[dict[str, Any]], dict[str, Any]]:
    """The response, and its body as it is sent."""
    response = answer_with_problem(REQUESTS.post("/f/contact"), error)
    return response, json.loads(json.dumps(response.content))


def test_every_refusal_is_documented() -> None:
    assert {type(error) for error, _, _ in DOCUMENTED} == set(kinds()) - GROUPS


@pytest.mark.parametrize(
    ("error", "status", "code"), DOCUMENTED, ids=[type(error).__name__ for error, _, _ in DOCUMENTED]
)
def test_a_refusal_has_its_status_and_code(error: HymicalError, status: int, code: str) -> None:
    problem = problem_of(error)

    assert (problem.status, problem.code) == (status, code)
    assert problem.title
    assert problem.detail.endswith(".")


@pytest.mark.parametrize(
    ("error", "status", "code"), DOCUMENTED, ids=[type(error).__name__ for error, _, _ in DOCUMENTED]
)
def test_an_answer_is_a_problem_by_rfc_9457(error: HymicalError, status: int, code: str) -> None:
    response, body = answered(error)

    assert response.status_code == status
    assert response.media_type == "application/problem+json"
    assert body.keys() - {"errors"} == {"type", "title", "status", "detail", "code"}
    assert (body["type"], body["status"], body["code"]) == ("about:blank", status, code)


def test_a_kind_of_refusal_yet_to_come_is_answered_like_the_one_above_it() -> None:
    class FormNotFoundToday(errors.FormNotFound):
        pass

    assert problem_of(FormNotFoundToday("contact")).code == "form_not_found"


@pytest.mark.parametrize(
    "error",
    [
        errors.FieldNameTooLong("email"),
        errors.FieldValueTooLong("email"),
        errors.InvalidFieldName("email"),
        errors.InvalidFieldValue("email"),
        errors.FileUploadNotSupported("email"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refused_field_is_named(error: errors.FieldRefused) -> None:
    _, body = answered(error)

    assert body["errors"] == [{"field": "email", "detail": body["detail"]}]


def test_a_broken_rule_names_its_field() -> None:
    _, body = answered(errors.InvalidValue("url", "must name a host"))

    assert body["detail"] == "url must name a host."
    assert body["errors"] == [{"field": "url", "detail": "must name a host."}]


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (errors.StorageUnavailable(), "retry-after", "5"),
        (errors.Overloaded(), "retry-after", "5"),
        (errors.RateLimited(timedelta(seconds=17)), "retry-after", "17"),
        (errors.RateLimited(timedelta(seconds=17.001)), "retry-after", "18"),
        (errors.RateLimited(timedelta(0)), "retry-after", "1"),
        (errors.Unauthorized(), "www-authenticate", "Bearer"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_some_answers_carry_a_header(error: HymicalError, name: str, value: str) -> None:
    response, _ = answered(error)

    assert response.headers[name] == value


@pytest.mark.parametrize(("sent", "told"), [("text/plain", "not text/plain"), ("", "names none")])
def test_a_content_type_that_is_not_supported_is_named(sent: str, told: str) -> None:
    _, body = answered(errors.UnsupportedMediaType(sent))

    assert told in body["detail"]
    assert "multipart/form-data" in body["detail"]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ("0001", "The database is at migration 0001 but this build expects 0002"),
        (None, "not migrated"),
    ],
)
def test_another_schema_is_told_with_what_to_do(found: str | None, sentence: str) -> None:
    told = schema_mismatch(errors.SchemaMismatch(found, "0002"))

    assert sentence in told
    assert "hymical migrate" in told


def test_a_newer_schema_is_not_to_be_migrated_by_this_build() -> None:
    told = schema_mismatch(errors.SchemaMismatch("0003", "0002"))

    assert told.endswith("(its newest is 0002): run the build that migrated it, or a newer one.")


# What the framework refuses


def test_an_address_without_anything_is_not_found() -> None:
    problem = problem_of(NotFoundException())

    assert (problem.status, problem.code) == (404, "not_found")


def test_a_method_that_is_not_allowed_names_those_that_are() -> None:
    response, body = answered(MethodNotAllowedException(headers={"allow": "POST"}))

    assert (body["status"], body["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


def test_a_request_that_breaks_a_rule_names_each_field() -> None:
    error = ValidationException(extra=[{"key": "name", "message": "Expected `str`"}, {"message": "?"}])

    _, body = answered(error)

    assert (body["status"], body["code"]) == (422, "invalid_request")
    assert body["errors"] == [{"field": "name", "detail": "Expected `str`"}, {"field": "", "detail": "?"}]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Input should be a valid dictionary or instance of FormIn", "must be a JSON object"),
        ("Expected `int` <= 100", "must be at most 100"),
        ("Expected `int` >= 1", "must be at least 1"),
        ("Expected `int`, got `str`", "must be a whole number"),
        ("Field required", "is required"),
        ("'data'", "is required"),
    ],
)
def test_the_framework_s_words_are_not_repeated(message: str, told: str) -> None:
    _, body = answered(ValidationException(extra=[{"key": "limit", "message": message}]))

    assert body["errors"] == [{"field": "limit", "detail": told}]


def test_a_body_that_is_not_json_is_told_with_what_to_send() -> None:
    _, body = answered(ClientException("at line 1: s3cret"))

    assert body["detail"] == "The body is not JSON; send it with content-type: application/json."


def test_whatever_else_the_framework_refuses_is_an_invalid_request() -> None:
    _, body = answered(ClientException("at line 1: s3cret"))

    assert (body["status"], body["code"]) == (400, "invalid_request")
    assert "s3cret" not in json.dumps(body)


# Accidents


class UnknownError(HymicalError):
    """Forgotten in the table."""

    def __str__(self) -> str:
        return "s3cret"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("s3cret"),
        KeyError("s3cret"),
        UnknownError("s3cret"),
        InternalServerException("s3cret", extra={"s3cret": "s3cret"}),
        HTTPException("s3cret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_accident_shows_nothing_of_itself(error: Exception) -> None:
    response, body = answered(error)

    assert (response.status_code, body["code"]) == (500, "internal_error")
    assert "s3cret" not in json.dumps(body) + repr(response.headers)
    assert type(error).__name__ not in json.dumps(body)


def test_an_accident_is_logged_with_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    answered(RuntimeError("the cause"))

    assert "POST /f/contact: RuntimeError" in caplog.text
    assert "the cause" in caplog.text


def test_storage_that_is_away_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    answered(errors.StorageUnavailable())

    assert len(caplog.text.splitlines()) == 1


def test_a_refusal_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    answered(errors.FormClosed("contact"))

    assert caplog.text == ""
