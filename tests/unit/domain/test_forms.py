"""What is accepted of a post, and what is refused by name."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.errors import (
    EmptySubmission,
    FieldNameTooLong,
    FieldRefused,
    FieldValueTooLong,
    FormClosed,
    InvalidFieldName,
    InvalidFieldValue,
    InvalidValue,
    PostRefused,
    TooManyFields,
)
from hymical.domain.forms import NewForm, PostedForm, Submission, accept, is_form_id, quoted, receipt
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import IntakeLimits
from tests.builders import a_form, a_submission
from tests.clocks import START

LIMITS = IntakeLimits(max_fields=3, max_field_name_length=4, max_field_value_length=5)
ID = SubmissionId("sub_1")


def accepted(*pairs: tuple[str, str], limits: IntakeLimits = LIMITS, is_active: bool = True) -> Submission:
    form = a_form(is_active=is_active)
    return accept(
        form,
        PostedForm(form_id=form.id, pairs=pairs),
        limits=limits,
        duplicate_window=timedelta(0),
        submission_id=ID,
        received_at=START,
    )


def test_a_post_becomes_a_submission() -> None:
    submission = accepted(("name", "Zoë"))
    assert submission == Submission(
        id=ID,
        form_id=FormId("contact"),
        received_at=START,
        fields=(("name", ("Zoë",)),),
        fingerprint=submission.fingerprint,
    )


def test_names_stand_in_order_of_first_appearance_and_repeated_values_in_the_order_they_came() -> None:
    pairs = (("z", "1"), ("a", "2"), ("z", "1"), ("m", ""), ("a", "0"))

    submission = accepted(*pairs, limits=replace(LIMITS, max_fields=5))

    assert submission.fields == (("z", ("1", "1")), ("a", ("2", "0")), ("m", ("",)))
    assert submission.field_count == 3


def test_names_that_differ_in_case_or_in_normal_form_stay_apart() -> None:
    assert [name for name, _ in accepted(("a", ""), ("A", ""), ("\u00e9", "")).fields] == ["a", "A", "é"]
    assert accepted(("\u00e9", ""), ("e\u0301", "")).field_count == 2


def test_values_are_kept_as_they_came() -> None:
    assert accepted(("a", " \r\n\t")).fields == (("a", (" \r\n\t",)),)


def test_a_closed_form_refuses() -> None:
    with pytest.raises(FormClosed) as refusal:
        accepted(("a", "1"), is_active=False)
    assert refusal.value.form_id == "contact"


def test_a_closed_form_refuses_before_it_looks_at_the_post() -> None:
    with pytest.raises(FormClosed):
        accepted(is_active=False)


def test_an_empty_post_is_refused() -> None:
    with pytest.raises(EmptySubmission):
        accepted()


def test_as_many_fields_as_allowed_are_accepted_and_one_more_is_refused() -> None:
    assert accepted(("a", "1"), ("b", "2"), ("c", "3")).field_count == 3
    with pytest.raises(TooManyFields) as refusal:
        accepted(("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))
    assert refusal.value.limit == 3


def test_each_repetition_counts_as_a_field() -> None:
    with pytest.raises(TooManyFields):
        accepted(*[("a", "1")] * 4)


def test_a_name_may_be_as_long_as_allowed_in_characters_and_no_longer() -> None:
    assert accepted(("日本語名", "1")).field_count == 1
    with pytest.raises(FieldNameTooLong) as refusal:
        accepted(("names", "1"))
    assert refusal.value.field == "names"


def test_a_value_may_be_as_long_as_allowed_in_characters_and_no_longer() -> None:
    assert accepted(("a", "😀" * 5)).field_count == 1
    with pytest.raises(FieldValueTooLong) as refusal:
        accepted(("a", "123456"))
    assert refusal.value.field == "a"


@pytest.mark.parametrize("name", ["", "\0", "a\0", "a\n", "\t", "\x7f", "\x85", "\ud800", "a\udfff"])
def test_a_name_that_is_empty_or_holds_controls_or_lone_surrogates_is_refused(name: str) -> None:
    with pytest.raises(InvalidFieldName) as refusal:
        accepted((name, "1"))
    assert refusal.value.field == quoted(name)
    assert refusal.value.field.isprintable()


@pytest.mark.parametrize("name", [" ", "a b", "[]", "__x", "名", "\u200b", "é"])
def test_any_other_name_is_fine(name: str) -> None:
    assert accepted((name, "1")).fields[0][0] == name


@pytest.mark.parametrize("value", ["\0", "a\0b", "\ud800", "é\udc80"])
def test_a_value_that_cannot_be_kept_is_refused_by_its_field_s_name(value: str) -> None:
    with pytest.raises(InvalidFieldValue) as refusal:
        accepted(("good", "1"), ("bad", value))
    assert refusal.value.field == "bad"


@pytest.mark.parametrize(
    ("pair", "refusal"),
    [
        (("\nlong", "\0"), InvalidFieldName),
        (("longer", "\0"), FieldNameTooLong),
        (("a", "\0longer"), InvalidFieldValue),
    ],
)
def test_of_several_broken_rules_the_first_is_named(
    pair: tuple[str, str], refusal: type[FieldRefused]
) -> None:
    with pytest.raises(refusal):
        accepted(pair)


def test_of_several_bad_fields_the_first_is_named() -> None:
    with pytest.raises(FieldValueTooLong) as refusal:
        accepted(("one", "123456"), ("", ""))
    assert refusal.value.field == "one"


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=7)), max_size=5))
def test_whatever_is_accepted_holds_every_pair_that_was_posted(pairs: list[tuple[str, str]]) -> None:
    try:
        submission = accepted(*pairs)
    except PostRefused:
        return
    kept = [(name, value) for name, values in submission.fields for value in values]
    assert sorted(kept) == sorted(pairs)
    assert [name for name, _ in submission.fields] == list(dict.fromkeys(name for name, _ in pairs))


def test_a_receipt_says_what_was_stored() -> None:
    submission = a_submission()

    told = receipt(submission, None, None)

    assert (told.submission_id, told.form_id) == (submission.id, submission.form_id)
    assert (told.received_at, told.field_count, told.duplicate) == (START, 2, False)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", ""),
        ("email", "email"),
        ("名前", "名前"),
        ("a\n\0b", "a\ufffd\ufffdb"),
        ("\u202egpj.exe", "\ufffdgpj.exe"),
        ("\ud800", "\ufffd"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 40 + "…"),
    ],
)
def test_a_name_is_quoted_readably(name: str, shown: str) -> None:
    assert quoted(name) == shown


# Forms


@pytest.mark.parametrize("form_id", ["abc", "a-b", "a_b", "0-9", "___", "x" * 64])
def test_a_form_s_id_is_3_to_64_of_these_characters(form_id: str) -> None:
    assert is_form_id(form_id)
    assert NewForm(id=FormId(form_id), name="Contact").is_active


@pytest.mark.parametrize(
    "form_id",
    ["", "ab", "x" * 65, "Contact", "con tact", "contact\n", "ünder", "٣٣٣", "a.b", "a/b", "con\0tact"],
)
def test_any_other_id_of_a_form_is_refused(form_id: str) -> None:
    assert not is_form_id(form_id)
    with pytest.raises(InvalidValue) as refusal:
        NewForm(id=FormId(form_id), name="Contact")
    assert refusal.value.field == "id"


@pytest.mark.parametrize("name", ["C", "x" * 200, "Zoë's\nform"])
def test_a_form_s_name_is_1_to_200_characters(name: str) -> None:
    assert NewForm(id=FormId("contact"), name=name).name == name


@pytest.mark.parametrize("name", ["", "x" * 201, "con\0tact", "con\ud800tact"])
def test_a_form_s_name_that_cannot_be_kept_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        NewForm(id=FormId("contact"), name=name)
    assert refusal.value.field == "name"
