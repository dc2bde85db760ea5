"""The state machine of a job on the memory adapters."""

from contextlib import AbstractAsyncContextManager, nullcontext

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.job_machine import JobMachine
from tests.worlds import World, memory_world

SETTINGS = settings(derandomize=True, deadline=None, max_examples=40, stateful_step_count=40)


class MemoryMachine(JobMachine):
    def opened(self) -> AbstractAsyncContextManager[World]:
        return nullcontext(memory_world())


def test_whatever_happens_the_queue_of_jobs_in_memory_keeps_its_promises() -> None:
    run_state_machine_as_test(MemoryMachine, settings=SETTINGS)
