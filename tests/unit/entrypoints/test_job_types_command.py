"""`hymical jobs types` and modules that cannot be imported."""

import pytest
from click.testing import CliRunner

from hymical.entrypoints.cli.main import main


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_a_module_that_cannot_be_imported_is_a_sentence_and_no_traceback(form: list[str]) -> None:
    given = {"FORMS_DATABASE_URL": "postgresql://127.0.0.1:1/none", "FORMS_JOB_MODULES": "not_there"}

    ended = CliRunner().invoke(main, ["jobs", "types", *form], env=given, catch_exceptions=False)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == (
        "hymical: the jobs in not_there cannot be imported: No module named 'not_there';"
        " FORMS_JOB_MODULES names it: is its folder in PYTHONPATH?\n"
    )
