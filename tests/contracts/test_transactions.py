"""What every `Transactions` promises."""

import pytest

from tests.builders import a_new_job
from tests.worlds import World


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("of another server"), TimeoutError("of another server")]
)
async def test_what_goes_wrong_in_a_block_is_not_taken_for_the_database_being_away(
    world: World, error: Exception
) -> None:
    job = a_new_job(unique_key="one")

    with pytest.raises(type(error), match="of another server"):
        async with world.transactions.begin():
            await world.jobs.enqueue([job])
            raise error

    assert not (await world.jobs.enqueue([a_new_job(unique_key="one")]))[0].duplicate
