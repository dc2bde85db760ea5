"""The state machine of a delivery on the memory adapters."""

from contextlib import AbstractAsyncContextManager, nullcontext

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.delivery_machine import DeliveryMachine
from tests.worlds import World, memory_world

SETTINGS = settings(derandomize=True, deadline=None, max_examples=20, stateful_step_count=40)


class MemoryMachine(DeliveryMachine):
    def opened(self) -> AbstractAsyncContextManager[World]:
        return nullcontext(memory_world())


def test_whatever_happens_the_queue_in_memory_keeps_its_promises() -> None:
    run_state_machine_as_test(MemoryMachine, settings=SETTINGS)
