"""How a command ends: what it printed, or one clear sentence and a code."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NoReturn, TypeVar

from hymical.domain.deliveries import DeliveryState, Reason
from hymical.domain.errors import (
    AlreadyExists,
    FormNotEmpty,
    HymicalError,
    InvalidPayload,
    InvalidValue,
    JobEnded,
    JobNotFailed,
    JobNotWaiting,
    NotFound,
    NotReplayable,
    NotResendable,
    NotSpam,
    SchemaMismatch,
    SecretUnreadable,
    StorageUnavailable,
    TooManyColumns,
    UnknownJobType,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hymical.entrypoints.bootstrap.container import Container
    from hymical.entrypoints.bootstrap.settings import Settings

_Result = TypeVar("_Result")
_Asked = TypeVar("_Asked", bound="BaseModel")

FAILED, UNUSABLE = 1, 2
"""Exit codes: the command could not be carried out; what it was given cannot work."""


def fail(*sentences: str, code: int = FAILED) -> NoReturn:
    for sentence in sentences:
        print(f"hymical: {sentence}", file=sys.stderr)
    raise SystemExit(code)


def settings_or_fail() -> "Settings":
    from hymical.entrypoints.bootstrap.settings import SettingsInvalid, load_settings  # noqa: PLC0415

    try:
        return load_settings()
    except SettingsInvalid as error:
        fail(*error.problems, code=UNUSABLE)


def validated(shape: type[_Asked], given: Mapping[str, object]) -> _Asked:
    """What the API would be sent; what it would refuse ends the command."""
    from pydantic import ValidationError  # noqa: PLC0415

    try:
        return shape.model_validate(given)
    except ValidationError as error:
        fail(
            *(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg'][0].lower()}{problem['msg'][1:]}"
                for problem in error.errors(include_url=False)
            ),
            code=UNUSABLE,
        )


def run_or_fail(work: Awaitable[_Result]) -> _Result:
    """Runs to the end on the fast event loop; Hymical's own errors become a sentence."""
    import uvloop  # noqa: PLC0415

    from hymical.entrypoints.jobs.registry import JobTypesInvalid  # noqa: PLC0415

    async def to_the_end() -> _Result:
        return await work

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(to_the_end())
    except JobTypesInvalid as error:
        fail(*error.problems, code=UNUSABLE)
    except HymicalError as error:
        fail(sentence(error))


def with_container(use: "Callable[[Container], Awaitable[_Result]]") -> _Result:
    """Runs an operator's command against the database that the settings name, at this build's migration."""
    from hymical.entrypoints.bootstrap.resources import Role, open_container  # noqa: PLC0415

    settings = settings_or_fail()

    async def in_container() -> _Result:
        async with open_container(settings, Role.OPERATOR) as container:
            await container.schema().check()
            return await use(container)

    return run_or_fail(in_container())


def sentence(error: HymicalError) -> str:
    match error:
        case SchemaMismatch(is_newer=True):
            return unknown_migration(error)
        case SchemaMismatch(found=None, expected=expected):
            return f"the database is not migrated but this build expects {expected}; run `hymical migrate`"
        case SchemaMismatch(found=found, expected=expected):
            return (
                f"the database is at migration {found} but this build expects {expected};"
                " stop the other processes and run `hymical migrate`"
            )
        case StorageUnavailable(said=str(said)):
            return f"the database that FORMS_DATABASE_URL names refuses: {said}"
        case StorageUnavailable():
            return "the database that FORMS_DATABASE_URL names does not answer; is it running, and is the URL right?"
        case NotFound(kind=kind, id=name):
            return f"there is no {kind} {name}"
        case AlreadyExists(kind=kind, id=name):
            return f"there is a {kind} {name} already"
        case InvalidValue(field=field, rule=rule):
            return f"{field} {rule}"
        case _:
            return _about_what_was_posted(error) or _about_a_job(error) or f"{type(error).__name__}: {error}"


def _about_what_was_posted(error: HymicalError) -> str | None:
    match error:
        case FormNotEmpty(form_id=name):
            return f"the form {name} holds submissions; erase them first, or close it: `hymical forms close {name}`"
        case NotSpam():
            return "this submission is not kept as spam; it has been, or is being, delivered"
        case TooManyColumns(limit=limit):
            return f"there are more than {limit} different names; a file in json or ndjson takes any"
        case NotReplayable(reason=Reason.DESTINATION_DISABLED):
            return "its destination is disabled; resume it first, with `hymical destinations resume`"
        case NotReplayable(state=DeliveryState.FAILED, reason=str(reason)):
            return f"this delivery failed for good: {reason}; there is nothing left to send, or nowhere to send it"
        case NotReplayable(state=state):
            return f"only a failed delivery can be replayed; this one is {state}"
        case NotResendable():
            return "its submission was erased, or its destination was deleted or is disabled"
        case SecretUnreadable():
            return (
                "the secrets were sealed with a key that FORMS_SECRET_KEY does not hold;"
                " add that key behind the newest one"
            )
        case _:
            return None


def _about_a_job(error: HymicalError) -> str | None:
    match error:
        case JobNotWaiting(question=str(question)):
            return f"the job waits for the answer to another question: {question}"
        case JobNotWaiting(state=state):
            return f"the job is {state} and waits for no answer"
        case JobEnded(state=state):
            return f"the job is {state}; only one that has not ended can be cancelled"
        case JobNotFailed(state=state):
            return f"the job is {state}; only a failed one can be retried"
        case UnknownJobType(type=name):
            return (
                f"there is no job type {name}; `hymical jobs types` lists those that are known,"
                " and FORMS_JOB_MODULES names modules with more"
            )
        case InvalidPayload(flaw=flaw):
            return f"the payload does not fit the job's type: {flaw}"
        case _:
            return None


def unknown_migration(error: SchemaMismatch) -> str:
    return (
        f"the database is at migration {error.found}, which this build does not know (its newest is"
        f" {error.expected}); run the build that migrated it, or a newer one"
    )
