"""How files of submissions are written, read back by readers that are not ours."""

import csv
import io
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymical.domain.errors import TooManyColumns
from hymical.domain.exports import MOST_COLUMNS, ExportFormat, ExportStyle, with_names
from hymical.domain.forms import Fields, Submission
from tests.builders import a_submission

CSV, JSON, NDJSON = (ExportStyle(format=one) for one in ExportFormat)
BLANKS = ["", " ", "\t", "\r", "\n", "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}", "\N{IDEOGRAPHIC SPACE}"]
# also full-width and small ones
STARTS = [
    *"=+-@",
    *map(chr, (0xFF1D, 0xFF0B, 0xFF0D, 0xFF20, 0xFE66, 0xFE62, 0xFE63, 0xFE6B)),
    "\N{MINUS SIGN}",
]
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1) | st.sampled_from(
    ["submission_id", "field.submission_id", "field.field.x", "received_at", "=name", "'=name", "''=name"]
)
FIELDS = st.dictionaries(NAMES, st.lists(STORABLE, min_size=1, max_size=3), max_size=4).map(
    lambda drawn: tuple((name, tuple(values)) for name, values in drawn.items())
)


def written(style: ExportStyle, submissions: Sequence[Submission], pieces: int = 1) -> bytes:
    names: tuple[str, ...] = ()
    for one in submissions:
        names = with_names(names, [name for name, _ in one.fields])
    cut = -(-len(submissions) // pieces) or 1
    body, rows = style.head(names), 0
    for start in range(0, len(submissions), cut):
        piece = submissions[start : start + cut]
        body += style.rows(piece, names, first=rows == 0)
        rows += len(piece)
    return body + style.tail()


def table(body: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(body.decode(), newline=""), strict=True))


def cell(value: str) -> str:
    """What becomes of a value in a column of its own."""
    _, (*_, found) = table(written(CSV, [a_submission(fields=(("x", (value,)),))]))
    return found


def unguarded(text: str) -> str:
    """The rule as the guide tells it to whoever reads a file."""
    return text[1:] if text.startswith("'") and cell(text[1:]) == text else text


@given(st.lists(FIELDS, max_size=5), st.integers(1, 3))
def test_every_name_and_value_is_found_again_in_csv(drawn: list[Fields], pieces: int) -> None:
    submissions = [a_submission(fields=fields) for fields in drawn]
    header, *rows = table(written(CSV, submissions, pieces))

    assert header[:4] == ["submission_id", "form_id", "received_at", "is_spam"]
    assert len(set(header)) == len(header)
    columns = [
        name.removeprefix("field.") if name.startswith("field.") else name
        for name in map(unguarded, header[4:])
    ]
    assert len(rows) == len(submissions)
    for one, row in zip(submissions, rows, strict=True):
        assert row[:4] == [one.id, one.form_id, "2026-11-29T12:00:00.000000Z", "false"]
        found = dict(zip(columns, row[4:], strict=True))
        fields = dict(one.fields)
        for name, shown in found.items():
            values = fields.get(name, ())
            if len(values) == 1:
                assert unguarded(shown) == values[0]
            assert shown.count("\n") >= len(values) - 1


@given(st.lists(FIELDS, max_size=5), st.integers(1, 3))
def test_every_name_and_value_is_found_again_in_json_and_ndjson(drawn: list[Fields], pieces: int) -> None:
    submissions = [a_submission(fields=fields) for fields in drawn]
    expected = [
        {
            "submission_id": one.id,
            "form_id": "contact",
            "received_at": "2026-11-29T12:00:00.000000Z",
            "is_spam": False,
            "fields": {name: list(values) for name, values in one.fields},
        }
        for one in submissions
    ]
    assert json.loads(written(JSON, submissions, pieces)) == expected
    lines = written(NDJSON, submissions, pieces).decode().split("\n")[:-1]
    assert [json.loads(line) for line in lines] == expected


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize("start", STARTS)
def test_what_a_spreadsheet_would_run_is_guarded(blank: str, start: str) -> None:
    text = f"{blank}{start}1+cmd|' /C calc'!A0"
    assert cell(text) == f"'{text}"


@given(STORABLE)
def test_no_cell_begins_like_a_formula_but_a_negative_number(text: str) -> None:
    shown = cell(text)
    first = next(
        (one for one in shown if unicodedata.category(one) not in {"Cc", "Cf"} and not one.isspace()), ""
    )
    if unicodedata.normalize("NFKC", first)[:1] in {*"=+-@"}:
        assert shown.removeprefix("-").replace(".", "").replace(",", "").isdecimal()


@pytest.mark.parametrize("text", ["-5", "-0.5", "-1,234.56", "'tis", "a=b", "5", "", "a@b.c", "'"])
def test_what_is_no_formula_is_left_as_it_is(text: str) -> None:
    assert cell(text) == text


@pytest.mark.parametrize("text", ["+49301234", "-5+1", "-a", "-", "--5", "-1e5", "'=1", "''=1", "\tx"])
def test_an_apostrophe_is_added_once(text: str) -> None:
    assert cell(text) == f"'{text}"


def test_columns_are_the_union_of_all_names_in_the_order_in_which_they_came() -> None:
    rows = table(
        written(
            CSV, [a_submission(fields=(("b", ("1",)),)), a_submission(fields=(("a", ("2",)), ("b", ("3",))))]
        )
    )
    assert [row[4:] for row in rows] == [["b", "a"], ["1", ""], ["3", "2"]]


def test_a_field_is_never_taken_for_a_column_of_ours() -> None:
    fields: Fields = (("received_at", ("then",)), ("field.received_at", ("later",)), ("id", ("7",)))
    header, row = table(written(CSV, [a_submission(fields=fields)]))
    assert header[4:] == ["field.received_at", "field.field.received_at", "id"]
    assert row[4:] == ["then", "later", "7"]


def test_repeated_values_stand_on_lines_of_one_cell_each_guarded_by_itself() -> None:
    _, row = table(written(CSV, [a_submission(fields=(("tag", ("a", "=b", "c")),))]))
    assert row[4] == "a\n'=b\nc"


def test_lines_end_as_rfc_4180_says_and_a_byte_order_mark_comes_when_asked() -> None:
    body = written(CSV, [a_submission(fields=(("x", ('a "b", c',)),))])
    assert body.endswith(b',"a ""b"", c"\r\n')
    assert written(replace(CSV, bom=True), []) == b"\xef\xbb\xbf" + written(CSV, [])


def test_files_without_a_row_are_whole() -> None:
    assert written(CSV, []) == b"submission_id,form_id,received_at,is_spam\r\n"
    assert json.loads(written(JSON, [])) == []
    assert written(NDJSON, []) == b""


def test_a_row_that_came_after_the_columns_were_known_is_left_out_whole() -> None:
    known, new = a_submission(fields=(("a", ("1",)),)), a_submission(fields=(("a", ("1",)), ("b", ("2",))))
    assert CSV.taken([known, new], ("a",)) == [known]
    assert JSON.taken([known, new], ("a",)) == [known, new]


def test_columns_have_a_limit() -> None:
    names = tuple(str(number) for number in range(MOST_COLUMNS))
    assert with_names(names, ["0"]) == names
    with pytest.raises(TooManyColumns):
        with_names(names, ["one more"])
