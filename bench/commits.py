"""pgbench of the very statements with which posts are accepted: what PostgreSQL alone allows."""

import re
import tempfile
from pathlib import Path

from bench.server import Database, Server
from hymical.adapters.postgres.pool import PLANS
from hymical.adapters.postgres.statements import statement

_FIELDS = (
    '{"name": ["Zoe Jones"], "topics": ["billing", "api"], "message": ["'
    + "How long does it take? " * 12
    + '"]}'
)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")
_RATE = re.compile(r"tps = ([\d.]+)")

_NUMBER = "lpad(cast(cast(:n AS bigint) + nth AS text), 26, '0')"


def _each(expression: str) -> str:
    """An array with one for each post of a batch."""
    return f"ARRAY(SELECT {expression} FROM generate_series(1, cast(:batch AS integer)) AS post (nth))"  # noqa: S608  our own words


def _records(**columns: str) -> str:
    """JSON with an object for each post of a batch."""
    pairs = ", ".join(f"'{name}', {expression}" for name, expression in columns.items())
    return f"to_json({_each(f'json_build_object({pairs})')})"


_STATEMENTS: dict[str, dict[str, str]] = {
    "load_intake": {"now": "NULL", "form_ids": "ARRAY['bench']"},
    "spend_limits": {
        "now": "NULL",
        "sources": "json_build_array(json_build_object("
        "'key', sha256('source'), 'step', 60, 'requests', 1000000, 'asked', cast(:batch AS bigint)))",
        "forms": "json_build_array(json_build_object("
        "'key', sha256('form'), 'step', 60, 'requests', 1000000, 'place', 1))",
        "posts": _records(source="1", nth="nth", form="1"),
        "forgotten_after": "interval '10 minutes'",
    },
    "receive_posts": {
        "posts": _records(
            id=f"'sub_' || {_NUMBER}",
            form_id="'bench'",
            received_at="now()",
            fields=f"'{_FIELDS}'",
            is_spam="FALSE",
            fingerprint=f"encode(sha256(cast({_NUMBER} AS bytea)), 'hex')",
            duplicate_key=f"encode(sha256(cast({_NUMBER} AS bytea)), 'hex')",
            repeats_since="now() - interval '10 seconds'",
            message_id=f"'evt_' || {_NUMBER}",
            type="'submission.received'",
            body=f"'{_FIELDS}'",
        ),
        "owed": _records(
            id=f"'dlv_' || {_NUMBER}",
            submission_id=f"'sub_' || {_NUMBER}",
            message_id=f"'evt_' || {_NUMBER}",
            destination_id="(SELECT id FROM destinations WHERE form_id = 'bench')",
            state="'pending'",
            due_at="now()",
            created_at="now()",
        ),
    },
}


def posts_per_second(
    server: Server, database: Database, *, clients: int, batch: int, limited: bool, seconds: int
) -> float:
    """Of a form `bench` with one destination: `clients` at a time commit `batch` posts each."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "accept.sql"
        file.write_text(script(limited=limited), encoding="utf-8")
        said = server.run(
            "pgbench",
            *("--no-vacuum", "--protocol=prepared", f"--file={file}"),
            *("--define=i=0", f"--define=batch={batch}"),
            *(f"--client={clients}", f"--time={seconds}"),
            url=database.url,
            options=PLANS,
        )
    found = _RATE.search(said)
    if found is None:
        raise RuntimeError(said)
    return float(found[1]) * batch


def script(*, limited: bool) -> str:
    statements = [
        _statement(name, parameters)
        for name, parameters in _STATEMENTS.items()
        if limited or name != "spend_limits"
    ]
    begin = r"\set i :i + 1" + "\n" + r"\set n :client_id * 100000000000 + :i * :batch" + "\n"
    return begin + "\n".join(statements) + "\n"


def _statement(name: str, parameters: dict[str, str]) -> str:
    text = _COMMENT.sub("", statement(name).text)
    # a parameter that is new here is missed by its name
    return _NAMED.sub(lambda found: parameters[found[1]], text).strip() + ";"
