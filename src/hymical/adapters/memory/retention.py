"""Removing history in memory."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.deliveries import DeliveryState
from hymical.domain.ids import DeliveryId, JobId, SubmissionId
from hymical.domain.retention import Kind
from hymical.ports.clock import Clock
from hymical.ports.exports import Withdrawal
from hymical.ports.retention import SweptBatch


class MemoryHistorySweep:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def sweep(self, kind: Kind, *, age: timedelta, behind: str, looks: int) -> SweptBatch:
        before, rows = self._clock.now() - age, self._store.rows
        keys: Iterable[str]
        remove: Callable[[str, datetime], bool]
        match kind:
            case Kind.EXPORTS:
                keys, remove = rows.exports, self._expire
            case Kind.SUBMISSIONS:
                keys, remove = rows.submissions, self._remove_submission
            case Kind.DELIVERIES:
                keys, remove = rows.deliveries, self._remove_delivery
            case Kind.JOBS:
                keys, remove = rows.jobs, self._remove_job
            case Kind.RATE_LIMITS:
                keys, remove = (key.hex() for key in rows.buckets), self._remove_bucket
        looked_at = sorted(key for key in keys if key > behind)[:looks]
        removed = sum(remove(key, before) for key in looked_at)
        return SweptBatch(removed=removed, end=looked_at[-1] if len(looked_at) == looks else None)

    def _expire(self, job_id: str, before: datetime) -> bool:
        rows, key = self._store.rows, JobId(job_id)
        file = rows.exports[key]
        if file.withdrawn is not None or file.expires_at > before:
            return False
        rows.exports[key] = replace(file, withdrawn=Withdrawal.EXPIRED, pieces=())
        return True

    def _remove_submission(self, submission_id: str, before: datetime) -> bool:
        rows = self._store.rows
        messages = {key for key, one in rows.messages.items() if one.submission_id == submission_id}
        deliveries = {key: one for key, one in rows.deliveries.items() if one.message_id in messages}
        if rows.submissions[SubmissionId(submission_id)].received_at >= before or any(
            one.state is not DeliveryState.DELIVERED for one in deliveries.values()
        ):
            return False
        del rows.submissions[SubmissionId(submission_id)]
        for message_id in messages:
            if any(one.message_id == message_id for one in deliveries.values()):
                rows.messages[message_id] = replace(rows.messages[message_id], body=b"")
            else:
                del rows.messages[message_id]
        for key, attempt in rows.attempts.items():
            if key[0] in deliveries:
                rows.attempts[key] = replace(attempt, response_excerpt=None, error=None)
        return True

    def _remove_delivery(self, delivery_id: str, before: datetime) -> bool:
        rows, key = self._store.rows, DeliveryId(delivery_id)
        delivery = rows.deliveries[key]
        completed_at = delivery.completed_at
        if delivery.state is not DeliveryState.DELIVERED or completed_at is None or completed_at >= before:
            return False
        del rows.deliveries[key]
        rows.attempts = {number: one for number, one in rows.attempts.items() if number[0] != key}
        message = rows.messages[delivery.message_id]
        still_has = any(one.message_id == message.id for one in rows.deliveries.values())
        if message.submission_id not in rows.submissions and not still_has:
            del rows.messages[message.id]
        return True

    def _remove_job(self, job_id: str, before: datetime) -> bool:
        rows, key = self._store.rows, JobId(job_id)
        finished_at = rows.jobs[key].view.finished_at
        if finished_at is None or finished_at >= before:
            return False
        del rows.jobs[key]
        rows.job_events.pop(key, None)
        rows.exports.pop(key, None)
        return True

    def _remove_bucket(self, key: str, before: datetime) -> bool:
        if self._store.rows.buckets[bytes.fromhex(key)] > before:
            return False
        del self._store.rows.buckets[bytes.fromhex(key)]
        return True
