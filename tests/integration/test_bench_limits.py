"""The servers that intake is held against."""

import httpx
import pytest

from bench.limits import serving


@pytest.mark.parametrize(("kind", "status_of_nothing"), [("no-op", 202), ("parsing", 500)])
def test_a_limit_answers_posts_and_ends_as_the_real_server_does(
    kind: str, status_of_nothing: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(kind) as port, httpx.Client(trust_env=False) as client:
        address = f"http://127.0.0.1:{port}/f/bench"
        assert client.post(address, data={"number": "1"}).status_code == 202
        # only the one that parses looks at the body
        assert client.post(address).status_code == status_of_nothing
    assert "Traceback" not in capfd.readouterr().err
