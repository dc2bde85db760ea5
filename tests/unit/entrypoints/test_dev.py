"""`hymical dev` and types of jobs of one's own."""

from pathlib import Path

import pytest

from hymical.entrypoints.dev import develop


def test_a_module_of_jobs_that_cannot_be_imported_is_named_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FORMS_JOB_MODULES", "not_there")

    assert develop(tmp_path / "data", 0) == 2

    assert capsys.readouterr().err == (
        "hymical: the jobs in not_there cannot be imported: No module named 'not_there';"
        " FORMS_JOB_MODULES names it: is its folder in PYTHONPATH?\n"
    )
    assert not (tmp_path / "data").exists()
