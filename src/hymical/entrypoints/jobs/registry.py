"""What declares a type of job, and how all of them are found."""

import inspect
import json
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Generic, ParamSpec, get_type_hints

from pydantic import BaseModel, ValidationError

from hymical.domain.errors import InvalidPayload, InvalidValue, UnknownJobType
from hymical.domain.jobs import Ending, JobCatalog, JobType, Json, Priority
from hymical.ports.jobs import JobContext, RunnableJob

_P = ParamSpec("_P")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_GIVEN = 2


class JobTypesInvalid(Exception):
    """Types of jobs that cannot work; `problems` has one sentence for each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition(Generic[_P]):
    """A handler with what was declared of it; it is called like the function that it was made of.

    `needs` are the names in the container of what the handler is given besides payload and context.
    """

    kind: JobType
    payload: type[BaseModel]
    needs: tuple[str, ...]
    function: Callable[_P, Awaitable[Ending]]

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[Ending]:
        return self.function(*args, **kwargs)

    async def run(self, context: JobContext, given: Mapping[str, object]) -> Ending:
        """Runs the job of the context with what the handler needs.

        Raises:
            InvalidPayload: its payload does not fit.
            TypeError: the handler returned something else than how it ended.
        """
        payload = self.parse(context.job.payload, context.job.version)
        ending: object = await self.function(payload, context, **given)  # type: ignore[arg-type]  # checked by `job`
        if not isinstance(ending, Ending):
            raise TypeError(f"its handler returned {type(ending).__name__}, which is no way to end")
        return ending

    def parse(self, payload: Json, version: int) -> BaseModel:
        """The payload in its model, whose validators find the `version` it was written with in their context.

        Raises:
            InvalidPayload: it does not fit, or was written by a newer build.
        """
        if version > self.kind.version:
            raise InvalidPayload(f"it has version {version}, and this build knows {self.kind.version}")
        try:
            return self.payload.model_validate_json(json.dumps(payload), context={"version": version})
        except ValidationError as error:
            flaws = error.errors(include_input=False, include_context=False, include_url=False)
            raise InvalidPayload("; ".join(_flaw(flaw["loc"], flaw["msg"]) for flaw in flaws)) from None


def job(
    *,
    queue: str,
    name: str | None = None,
    version: int = 1,
    priority: Priority = Priority.NORMAL,
    max_retries: int | None = None,
    timeout: timedelta | None = None,
) -> Callable[[Callable[_P, Awaitable[Ending]]], JobDefinition[_P]]:
    """Makes a type of job of a handler, `async def handler(payload: Model, context: JobContext, *, …) -> Ending`.

    The type is called as the function, or `name`. Keyword-only parameters are looked up in the container by
    their names, at each run.

    Raises:
        JobTypesInvalid: the function has another signature, or a name cannot be used.
    """

    def define(function: Callable[_P, Awaitable[Ending]]) -> JobDefinition[_P]:
        where = f"{function.__module__}.{function.__qualname__}"
        payload, needs = _signature(function, where)
        try:
            kind = JobType(
                name=name or function.__name__,
                queue=queue,
                version=version,
                priority=priority,
                max_retries=max_retries,
                timeout=timeout,
            )
        except InvalidValue as error:
            raise JobTypesInvalid(f"the job {where}: {error.field} {error.rule}") from None
        return JobDefinition(kind=kind, payload=payload, needs=needs, function=function)

    return define


class JobRegistry:
    """Every type of job of this build, by name. Raises `JobTypesInvalid` where two have the same one."""

    def __init__(self, definitions: Iterable[JobDefinition[...]]) -> None:
        by_name: dict[str, JobDefinition[...]] = {}
        twice = [
            f"two jobs are called {one.kind.name}: give one of them another name"
            for one in definitions
            if by_name.setdefault(one.kind.name, one) is not one
        ]
        if twice:
            raise JobTypesInvalid(*twice)
        self.definitions: Mapping[str, JobDefinition[...]] = by_name

    @property
    def queues(self) -> Collection[str]:
        return {one.kind.queue for one in self.definitions.values()}

    def check(self, name: str, payload: Json) -> None:
        """Whether a job of that type with that payload could be run. Raises `UnknownJobType` or `InvalidPayload`."""
        if name not in self.definitions:
            raise UnknownJobType(name)
        definition = self.definitions[name]
        definition.parse(payload, definition.kind.version)

    def catalog(self, max_retries: int) -> JobCatalog:
        types = {name: one.kind for name, one in self.definitions.items()}
        return JobCatalog(types=types, max_retries=max_retries)


class RegisteredHandlers:
    """The port `JobHandlers`: definitions, and what they need out of `providers`, by name.

    Raises:
        JobTypesInvalid: one needs what is not there.
    """

    def __init__(self, registry: JobRegistry, providers: Mapping[str, Callable[[], Any]]) -> None:
        unknown = [
            f"the job {name} needs {need}, and nothing in the container is called that"
            for name, one in registry.definitions.items()
            for need in one.needs
            if need not in providers
        ]
        if unknown:
            raise JobTypesInvalid(*unknown)
        self._runnable = {
            name: RunnableJob(handler=_Handler(one, providers), timeout=one.kind.timeout)
            for name, one in registry.definitions.items()
        }

    def find(self, type: str) -> RunnableJob | None:
        return self._runnable.get(type)


def discover(modules: Sequence[str] = ()) -> JobRegistry:
    """The types in the modules of this package, and in those that are named.

    Raises:
        JobTypesInvalid: a module cannot be imported, or two types have the same name.
    """
    own = [
        f"{__package__}.{found.name}" for found in pkgutil.iter_modules(import_module(__package__).__path__)
    ]
    found: dict[int, JobDefinition[...]] = {}
    for name in (*own, *modules):
        try:
            module = import_module(name)
        except ImportError as error:
            cure = "; FORMS_JOB_MODULES names it: is its folder in PYTHONPATH?" if name in modules else ""
            raise JobTypesInvalid(f"the jobs in {name} cannot be imported: {error}{cure}") from error
        # a module may import another's job
        found.update({id(one): one for one in vars(module).values() if isinstance(one, JobDefinition)})
    return JobRegistry(found.values())


class _Handler:
    """The port `JobHandler`."""

    def __init__(self, definition: JobDefinition[...], providers: Mapping[str, Callable[[], Any]]) -> None:
        self._definition = definition
        self._given = {need: providers[need] for need in definition.needs}

    async def __call__(self, context: JobContext) -> Ending:
        return await self._definition.run(
            context, {need: provider() for need, provider in self._given.items()}
        )


def _signature(function: Callable[..., object], where: str) -> tuple[type[BaseModel], tuple[str, ...]]:
    """The payload's model and the names of what else is needed."""
    wanted = "async def handler(payload: Model, context: JobContext, *, …) -> Ending"
    parameters = list(inspect.signature(function).parameters.values())
    given, needs = parameters[:_GIVEN], parameters[_GIVEN:]
    if (
        not inspect.iscoroutinefunction(function)
        or [one for one in given if one.kind in _POSITIONAL] != given
        or len(given) != _GIVEN
        or any(one.kind is not inspect.Parameter.KEYWORD_ONLY for one in needs)
    ):
        raise JobTypesInvalid(f"the job {where} must be written as: {wanted}")
    try:
        model = get_type_hints(function).get(given[0].name)
    except NameError as error:
        raise JobTypesInvalid(f"the job {where} has an annotation that cannot be read: {error}") from None
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise JobTypesInvalid(f"the job {where}: its payload must be annotated with a pydantic model")
    return model, tuple(one.name for one in needs)


def _flaw(place: tuple[int | str, ...], words: str) -> str:
    return f"{'.'.join(map(str, place)) or 'payload'}: {words[0].lower()}{words[1:]}"
