"""Removing what is over and old."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hymical.domain.retention import CleanUpState, RetentionPolicy, next_looks
from hymical.ports.clock import Clock
from hymical.ports.retention import HistorySweep

_LOOKS_AT_FIRST = 200
_NOTED_EVERY_SECONDS = 1.0

Note = Callable[[CleanUpState], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """Removes what the policy keeps no longer, batch by batch, from where an earlier run stopped.

    `note` is told how far it has come, about once a second, at the end of each kind, and at the end. Several may run
    at one time.
    """

    sweep: HistorySweep
    policy: RetentionPolicy
    clock: Clock

    async def __call__(self, state: CleanUpState, note: Note) -> CleanUpState:
        looks, noted = _LOOKS_AT_FIRST, self.clock.monotonic()
        while (kind := state.kind) is not None:
            age = self.policy.age(kind)
            if age is None:
                state = state.over()
                continue
            began = self.clock.monotonic()
            batch = await self.sweep.sweep(kind, age=age, behind=state.behind, looks=looks)
            now = self.clock.monotonic()
            looks = next_looks(looks, now - began)
            state = state.swept(batch.removed, batch.end)
            if state.kind is not kind or now - noted >= _NOTED_EVERY_SECONDS:
                await note(state)
                noted = now
        return state
