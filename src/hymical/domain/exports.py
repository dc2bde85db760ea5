"""Files of submissions: which columns they have, and how each row is written.

A CSV file follows RFC 4180. What a spreadsheet would run as a formula is kept from it by an apostrophe in front,
reversibly: whatever begins with apostrophes and then such a text has exactly one of them added.
"""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hymical.domain.errors import TooManyColumns
from hymical.domain.forms import Submission
from hymical.domain.instants import rfc3339

MOST_COLUMNS = 1_000
"""How many different names the columns of one CSV file may have."""

_OWN_COLUMNS = ("submission_id", "form_id", "received_at", "is_spam")
_OF_A_FIELD = "field."
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
_STARTS_FORMULA = frozenset("=+-@\N{MINUS SIGN}")
_BREAKS = frozenset("\t\r\n")
# digits behind a minus sign can be nothing but a number; behind a plus sign they would lose it, as phone numbers do
_NEGATIVE_NUMBER = re.compile(r"-\d+([.,]\d+)*", re.ASCII)


class ExportFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv",
    ExportFormat.JSON: "application/json",
    ExportFormat.NDJSON: "application/x-ndjson",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportStyle:
    """How a file is written: a head, rows in any number of pieces, a tail. `bom` is for CSV only."""

    format: ExportFormat
    bom: bool = False

    @property
    def has_columns(self) -> bool:
        """Whether every name has to be known before the first row is written."""
        return self.format is ExportFormat.CSV

    def head(self, names: Sequence[str]) -> bytes:
        match self.format:
            case ExportFormat.CSV:
                header = [*_OWN_COLUMNS, *(_guarded(_column(name)) for name in names)]
                return ((_BOM if self.bom else "") + _records([header])).encode()
            case ExportFormat.JSON:
                return b"[\n"
            case ExportFormat.NDJSON:
                return b""

    def taken(self, submissions: Sequence[Submission], names: Sequence[str]) -> Sequence[Submission]:
        """Those that the columns have room for; the others came when the columns were known already."""
        if not self.has_columns:
            return submissions
        known = frozenset(names)
        return [one for one in submissions if all(name in known for name, _ in one.fields)]

    def rows(self, submissions: Iterable[Submission], names: Sequence[str], *, first: bool) -> bytes:
        """A piece of the file; `first` says that no row was written before it."""
        match self.format:
            case ExportFormat.CSV:
                return _records(_record(one, names) for one in submissions).encode()
            case ExportFormat.JSON:
                piece = ",\n".join(_object(one) for one in submissions)
                return (piece if first or not piece else f",\n{piece}").encode()
            case ExportFormat.NDJSON:
                return "".join(f"{_object(one)}\n" for one in submissions).encode()

    def tail(self) -> bytes:
        return b"\n]\n" if self.format is ExportFormat.JSON else b""


def with_names(known: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    """The names in the order in which each came first. Raises `TooManyColumns`."""
    names = tuple(dict.fromkeys((*known, *new)))
    if len(names) > MOST_COLUMNS:
        raise TooManyColumns(MOST_COLUMNS)
    return names


def _records(rows: Iterable[Sequence[str]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(rows)
    return written.getvalue()


def _record(submission: Submission, names: Sequence[str]) -> Sequence[str]:
    fields = {name: "\n".join(map(_guarded, values)) for name, values in submission.fields}
    own = (submission.id, submission.form_id, rfc3339(submission.received_at))
    return [*own, "true" if submission.is_spam else "false", *(fields.get(name, "") for name in names)]


def _column(name: str) -> str:
    """The name of a field's column, never that of another field or one of our own."""
    return f"{_OF_A_FIELD}{name}" if name in _OWN_COLUMNS or name.startswith(_OF_A_FIELD) else name


def _guarded(text: str) -> str:
    return f"'{text}" if _would_run(text.lstrip("'")) else text


def _would_run(text: str) -> bool:
    """Whether a spreadsheet may take it for a formula, also behind blanks, and in full-width or small forms."""
    if text[:1].isalnum():
        return False
    if text[:1] in _BREAKS:
        return True
    seen = next((char for char in text if not _is_blank(char)), "")
    return unicodedata.normalize("NFKC", seen)[:1] in _STARTS_FORMULA and not _NEGATIVE_NUMBER.fullmatch(text)


def _is_blank(char: str) -> bool:
    return char.isspace() or unicodedata.category(char) in {"Cc", "Cf"}


def _object(submission: Submission) -> str:
    content = {
        "submission_id": submission.id,
        "form_id": submission.form_id,
        "received_at": rfc3339(submission.received_at),
        "is_spam": submission.is_spam,
        "fields": dict(submission.fields),
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
