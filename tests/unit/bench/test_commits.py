"""The statements that pgbench is given."""

import re

from bench.commits import script


def test_pgbench_is_given_every_parameter_of_the_statements_that_accept_a_post() -> None:
    # pgbench knows these; any other that is left would be one that a statement has got since
    assert set(re.findall(r"(?<![:\w]):([a-z_]+)", script(limited=True))) == {
        "batch",
        "client_id",
        "i",
        "n",
    }


def test_without_limits_pgbench_leaves_their_statement_out() -> None:
    assert "rate_limits" in script(limited=True)
    assert "rate_limits" not in script(limited=False)
