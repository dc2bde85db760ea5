"""What the job that writes a file is given."""

import pytest

from hymical.domain.errors import InvalidPayload
from hymical.entrypoints.jobs.exports import export_submissions


def test_a_bound_without_its_zone_is_refused_before_a_run_compares_it() -> None:
    payload = {"form_id": "contact", "format": "csv", "received_before": "2026-01-01T00:00:00"}

    with pytest.raises(InvalidPayload) as refused:
        export_submissions.parse(payload, 1)
    assert refused.value.flaw.startswith("received_before: ")
