"""Ids in the layout of ULIDs: 48 bits of milliseconds and 80 random bits, in lower-case Crockford base 32."""

import random
import secrets
import time

from hymical.domain.ids import DeliveryId, DestinationId, JobId, KeyId, MessageId, SubmissionId, WorkerId

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BYTES = 10
_RANDOM_BITS = _RANDOM_BYTES * 8
_SHIFTS = range(_RANDOM_BITS - 10, -1, -10)
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)


class SystemIds:
    """Within one process each id is greater than the one before, also in the same millisecond."""

    def __init__(self) -> None:
        self._last = 0
        self._written = 0, "0" * 10
        self._random = b""

    def submission(self) -> SubmissionId:
        return SubmissionId("sub_" + self._next())

    def message(self) -> MessageId:
        return MessageId("evt_" + self._next())

    def destination(self) -> DestinationId:
        return DestinationId("dst_" + self._next())

    def delivery(self) -> DeliveryId:
        return DeliveryId("dlv_" + self._next())

    def key(self) -> KeyId:
        return KeyId("key_" + self._next())

    def worker(self) -> WorkerId:
        return WorkerId("wrk_" + self._next())

    def job(self) -> JobId:
        return JobId("job_" + self._next())

    def secret_bytes(self) -> bytes:
        return secrets.token_bytes(32)

    def dice(self) -> float:
        return random.random()  # noqa: S311  it spreads load and guards nothing

    def _next(self) -> str:
        drawn = time.time_ns() // 1_000_000 << _RANDOM_BITS | self._random_bits()
        # a clock that stands still or steps back must not break the order
        self._last = drawn if drawn > self._last else self._last + 1 + (drawn & 0xFFFF_FFFF)
        now = self._last >> _RANDOM_BITS
        if now != self._written[0]:
            self._written = now, "".join(_PAIRS[now >> shift & 0x3FF] for shift in range(40, -1, -10))
        return self._written[1] + "".join([_PAIRS[self._last >> shift & 0x3FF] for shift in _SHIFTS])

    def _random_bits(self) -> int:
        if len(self._random) < _RANDOM_BYTES:
            # asked for rarely: it is a call of the operating system
            self._random = secrets.token_bytes(_RANDOM_BYTES * 256)
        drawn, self._random = self._random[:_RANDOM_BYTES], self._random[_RANDOM_BYTES:]
        return int.from_bytes(drawn)
