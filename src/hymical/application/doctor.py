"""Looking for what an operator got wrong."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from hymical.domain.destinations import Destination, DestinationState, Trouble
from hymical.domain.doctor import CLOCK_TOLERANCE, Ailment, Finding
from hymical.domain.errors import InvalidValue
from hymical.domain.ids import OPERATOR
from hymical.domain.instants import rfc3339
from hymical.domain.schedules import Timetable
from hymical.ports.clock import Clock
from hymical.ports.destinations import DestinationHealth, TargetCheck
from hymical.ports.doctor import DatabaseInspection
from hymical.ports.jobs import JobHistory
from hymical.ports.workers import WorkerKind, WorkerRegistry

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Examine:
    """Everything that is found amiss in a database that answers and is at this build's migration.

    `seals` says whether new secrets are sealed, `alert_url` where the operator's events are to go.

    Raises:
        StorageUnavailable: the database does not answer any more.
    """

    inspection: DatabaseInspection
    workers: WorkerRegistry
    timetables: Mapping[str, Timetable]
    history: JobHistory
    health: DestinationHealth
    targets: TargetCheck
    clock: Clock
    alert_url: str | None
    seals: bool

    async def __call__(self) -> Sequence[Finding]:
        rights = [
            Finding(ailment=Ailment.RIGHTS_MISSING, subject=missing)
            for missing in await self.inspection.missing_rights()
        ]
        if rights:
            # whatever else is asked may be refused
            return rights
        return [
            *await self._clocks(),
            *await self._processes(),
            *await self._queues(),
            *[finding async for finding in self._destinations()],
            *await self._precautions(),
        ]

    async def _clocks(self) -> Sequence[Finding]:
        before = self.clock.now()
        said = await self.inspection.now()
        after = self.clock.now()
        ahead = before + (after - before) / 2 - said
        if abs(ahead) <= CLOCK_TOLERANCE:
            return []
        return [Finding(ailment=Ailment.CLOCK_OFF, fact=f"{ahead.total_seconds():+.0f}")]

    async def _processes(self) -> Sequence[Finding]:
        live = [one for one in await self.workers.all() if one.live]
        findings = []
        if not any(one.kind is WorkerKind.WORKER and not one.queues for one in live):
            findings.append(Finding(ailment=Ailment.WORKER_MISSING))
        if self.timetables and not any(one.kind is WorkerKind.SCHEDULER for one in live):
            findings.append(Finding(ailment=Ailment.SCHEDULER_MISSING))
        return findings

    async def _queues(self) -> Sequence[Finding]:
        return [
            Finding(
                ailment=Ailment.QUEUE_UNSERVED, subject=queue.name, fact=str(queue.due + queue.processing)
            )
            for queue in await self.history.queues()
            if queue.abandoned
        ]

    async def _destinations(self) -> AsyncIterator[Finding]:
        after = None
        while True:
            page = await self.health.page(after=after, limit=_PAGE)
            for destination, trouble in page:
                async for finding in self._of(destination, trouble):
                    yield finding
            if len(page) < _PAGE:
                return
            after = page[-1][0].id

    async def _of(self, destination: Destination, trouble: Trouble | None) -> AsyncIterator[Finding]:
        if destination.state is DestinationState.DISABLED:
            # the operator's is when the settings name nobody
            if destination.id != OPERATOR:
                yield Finding(
                    ailment=Ailment.DESTINATION_DISABLED, subject=destination.id, fact=destination.url
                )
            return
        if not destination.secrets:
            yield Finding(ailment=Ailment.SEALED_OTHERWISE, subject=destination.id, fact=destination.url)
        if trouble is not None:
            since = f"{destination.url} since {rfc3339(trouble.failing_since)}"
            yield Finding(ailment=Ailment.DESTINATION_FAILING, subject=destination.id, fact=since)
        # the operator's is looked at as the settings have it now
        if destination.id != OPERATOR and (refusal := await self._refusal(destination.url)):
            yield Finding(ailment=Ailment.DESTINATION_BLOCKED, subject=destination.id, fact=refusal)

    async def _precautions(self) -> Sequence[Finding]:
        findings = []
        if self.alert_url is None:
            findings.append(Finding(ailment=Ailment.ALERTS_UNSET))
        elif refusal := await self._refusal(self.alert_url):
            findings.append(Finding(ailment=Ailment.ALERTS_BLOCKED, fact=refusal))
        if not self.seals:
            findings.append(Finding(ailment=Ailment.SECRETS_PLAIN))
        return findings

    async def _refusal(self, url: str) -> str | None:
        """Why nothing may be sent there, as far as that can be known without sending."""
        try:
            await self.targets.check(url)
        except InvalidValue as error:
            return error.rule
        return None
