"""pgbench of the very statements with which posts are accepted: what PostgreSQL alone allows."""

import re
import tempfile
from pathlib import Path

from bench.server import Database, Server
from hymical.adapters.postgres.statements import statement

_PLANS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
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


_EVERYWHERE = {
    "now": "NULL",
    "form_ids": _each("'bench'"),
    "ids": _each(f"'sub_' || {_NUMBER}"),
    "received_ats": _each("now()"),
    "idempotency_keys": _each("cast(NULL AS text)"),
    "duplicate_keys": _each(f"sha256(cast({_NUMBER} AS bytea))"),
}
_STATEMENTS: dict[str, dict[str, str]] = {
    "load_intake": {"form_ids": "ARRAY['bench']", "locks": _each(f"hashtextextended({_NUMBER}, 0)")},
    "spend_limits": {
        "source_keys": "ARRAY[sha256('source')]",
        "source_steps": "ARRAY[60]",
        "source_requests": "ARRAY[1000000]",
        "source_asked": "ARRAY[cast(:batch AS bigint)]",
        "places": _each("1"),
        "nths": _each("nth"),
        "of_forms": _each("sha256('form')"),
        "form_keys": "ARRAY[sha256('form')]",
        "form_steps": "ARRAY[60]",
        "form_requests": "ARRAY[1000000]",
        "forgotten_after": "interval '10 minutes'",
    },
    "find_earlier": {"window": "interval '10 seconds'"},
    "add_submissions": {
        "fields": _each(f"'{_FIELDS}'"),
        "are_spam": _each("FALSE"),
        "fingerprints": _each(f"sha256(cast({_NUMBER} AS bytea))"),
    },
    "owe": {
        "message_ids": _each(f"'evt_' || {_NUMBER}"),
        "types": _each("'submission.received'"),
        "submission_ids": _each(f"'sub_' || {_NUMBER}"),
        "bodies": _each(f"cast('{_FIELDS}' AS bytea)"),
        "ids": _each(f"'dlv_' || {_NUMBER}"),
        "of_messages": _each(f"'evt_' || {_NUMBER}"),
        "destination_ids": _each("(SELECT id FROM destinations WHERE form_id = 'bench')"),
        "states": _each("'pending'"),
        "due_ats": _each("now()"),
        "created_ats": _each("now()"),
        "completed_ats": _each("cast(NULL AS timestamptz)"),
        "failure_reasons": _each("cast(NULL AS text)"),
    },
}


def posts_per_second(
    server: Server, database: Database, *, clients: int, batch: int, limited: bool, seconds: int
) -> float:
    """Of a form `bench` with one destination: `clients` at a time commit `batch` posts each."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "accept.sql"
        script.write_text(transaction(limited=limited), encoding="utf-8")
        said = server.run(
            "pgbench",
            *("--no-vacuum", "--protocol=prepared", f"--file={script}"),
            *("--define=i=0", f"--define=batch={batch}"),
            *(f"--client={clients}", f"--time={seconds}"),
            url=database.url,
            options=_PLANS,
        )
    found = _RATE.search(said)
    if found is None:
        raise RuntimeError(said)
    return float(found[1]) * batch


def transaction(*, limited: bool) -> str:
    statements = [
        _statement(name, _EVERYWHERE | own)
        for name, own in _STATEMENTS.items()
        if limited or name != "spend_limits"
    ]
    begin = r"\set i :i + 1" + "\n" + r"\set n :client_id * 100000000000 + :i * :batch" + "\nBEGIN;\n"
    return begin + "\n".join(statements) + "\nCOMMIT;\n"


def _statement(name: str, parameters: dict[str, str]) -> str:
    text = _COMMENT.sub("", statement(name).text)
    # a parameter that is new here is missed by its name
    return _NAMED.sub(lambda found: parameters[found[1]], text).strip() + ";"
