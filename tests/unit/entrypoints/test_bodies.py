"""What posted bodies are read as, and what is refused of them."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from urllib.parse import quote_from_bytes, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.errors import (
    BodyTooLarge,
    FileUploadNotSupported,
    InvalidFieldValue,
    MalformedBody,
    PostRefused,
    TooManyFields,
    UndecodableText,
    UnsupportedMediaType,
)
from hymical.domain.limits import IntakeLimits
from hymical.entrypoints.api.bodies import read_pairs

Pairs = tuple[tuple[str, str], ...]

LIMITS = IntakeLimits()
URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
JSON = "application/json"
EVERYONE = "café 日本 😀"


class Stream:
    """A body as it arrives, which knows how much of it was asked for."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.chunks_taken = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            self.chunks_taken += 1
            return chunk
        raise StopAsyncIteration


def read(content_type: str | None, body: bytes, *, size: int = 0, limits: IntakeLimits = LIMITS) -> Pairs:
    """Drives the reader without an event loop; `size` cuts the body into chunks."""
    coroutine = read_pairs(content_type, str(len(body)), Stream(cut(body, size)), limits)
    try:
        coroutine.send(None)
    except StopIteration as finished:
        pairs: Pairs = finished.value
        return pairs
    raise AssertionError("a body in memory is never waited for")


def cut(body: bytes, size: int) -> Iterator[bytes]:
    step = size or max(len(body), 1)
    return (body[start : start + step] for start in range(0, len(body), step))


def part(name: str | bytes, value: str | bytes, *, after_name: str = "", headers: str = "") -> bytes:
    raw_name = name.encode() if isinstance(name, str) else name
    raw_value = value.encode() if isinstance(value, str) else value
    disposition = b'Content-Disposition: form-data; name="' + raw_name + b'"' + after_name.encode()
    return b"--b\r\n" + disposition + b"\r\n" + headers.encode() + b"\r\n" + raw_value + b"\r\n"


def multipart(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def browser_escaped(name: str) -> str:
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        (b"", ()),
        (b"&&&", ()),
        (b"a=1", (("a", "1"),)),
        (b"a=1&", (("a", "1"),)),
        (b"a", (("a", ""),)),
        (b"a=", (("a", ""),)),
        (b"=x", (("", "x"),)),
        (b"a=b=c", (("a", "b=c"),)),
        (b"tag=a&tag=b&tag[]=c", (("tag", "a"), ("tag", "b"), ("tag[]", "c"))),
        (b"a=1;b=2", (("a", "1;b=2"),)),
        (b"a+b=c+d%2B", (("a b", "c d+"),)),
        (b"a=%26%3D%25", (("a", "&=%"),)),
        (b"a=100%", (("a", "100%"),)),
        (b"a=%zz%4&%=%", (("a", "%zz%4"), ("%", "%"))),
        (b"a=%%41", (("a", "%A"),)),
        (b"a=%u00e9", (("a", "%u00e9"),)),
        (b"a=%c3%A9", (("a", "é"),)),
        ("a=é日😀".encode(), (("a", "é日😀"),)),
        (b"a=caf\xc3%a9", (("a", "café"),)),
        (b"user%5Bemail%5D=x&entry.42=y", (("user[email]", "x"), ("entry.42", "y"))),
        (b"a=%00", (("a", "\0"),)),
        (b"a%0Ab=x", (("a\nb", "x"),)),
        (b"a=1%0D%0A2%0D3%0A4%0A%0D%0D%0A", (("a", "1\n2\n3\n4\n\n\n"),)),
        (b"\xef\xbb\xbfa=1", (("a", "1"),)),
        (b"%EF%BB%BFa=%EF%BB%BF1", (("\ufeffa", "\ufeff1"),)),
        (b"_charset_=utf-8&a=1", (("a", "1"),)),
        (b"_charset_=&a=%C3%A9", (("a", "é"),)),
        (b"%5Fcharset_=windows-1252&a=%E9", (("a", "é"),)),
        (b"_charset=x&_charset_x=y", (("_charset", "x"), ("_charset_x", "y"))),
    ],
)
def test_urlencoded(body: bytes, pairs: Pairs) -> None:
    assert read(URLENCODED, body) == pairs


@pytest.mark.parametrize(
    ("content_type", "body", "value"),
    [
        (f"{URLENCODED}; charset=Shift_JIS", b"a=%93%FA%96%7B", "日本"),
        (f"{URLENCODED}; charset=shift_jis", b"a=\x93\xfa\x96{", "日本"),
        (f"{URLENCODED}; charset=sjis", b"a=%95\\%83\\", "表ソ"),
        (f'{URLENCODED};charset="windows-1251"', b"a=%CF%F0%E8%E2%E5%F2", "Привет"),
        (f"{URLENCODED}; CHARSET=latin1", b"a=%80%E9", "€é"),
        (f"{URLENCODED}; charset=gb2312", b"a=%D6%D0%CE%C4", "中文"),
        (f"{URLENCODED}; charset=big5", b"a=%A4%A4", "中"),
        (f"{URLENCODED}; charset=euc-kr", b"a=%C7%D1", "한"),
        (f"{URLENCODED}; charset=", b"a=%C3%A9", "é"),
        (URLENCODED, b"a=%E9&_charset_=windows-1252", "é"),
        (URLENCODED, b"_charset_=&_charset_=windows-1252&a=%E9", "é"),
        (URLENCODED, b"_charset_=Shift_JIS&a=%93%FA%96%7B", "日本"),
        (f"{URLENCODED}; charset=utf-8", b"_charset_=windows-1252&a=%C3%A9", "é"),
        (f"{MULTIPART}; charset=windows-1252", multipart(part("a", b"\xe9")), "é"),
        (MULTIPART, multipart(part("_charset_", "windows-1252"), part("a", b"\xe9")), "é"),
        (MULTIPART, multipart(part("a", b"\x93\xfa"), part("_charset_", "shift_jis")), "日"),
        (
            MULTIPART,
            multipart(part("a", b"\xe9", headers="Content-Type: text/plain; charset=latin1\r\n")),
            "é",
        ),
        (
            MULTIPART,
            multipart(
                part("_charset_", "shift_jis"),
                part("a", b"\xe9", headers='content-type: text/plain; x=y;Charset="ISO-8859-1"\r\n'),
            ),
            "é",
        ),
    ],
)
def test_text_is_read_in_the_charset_that_applies(content_type: str, body: bytes, value: str) -> None:
    assert read(content_type, body) == (("a", value),)


def test_names_are_in_the_charset_of_the_form_even_where_they_end_in_a_backslash_byte() -> None:
    sjis = "表".encode("cp932")
    assert sjis.endswith(b"\\")
    charset = part("_charset_", "shift_jis")
    assert read(MULTIPART, multipart(charset, part(sjis, sjis))) == (("表", "表"),)
    assert read(URLENCODED, b"_charset_=shift_jis&" + sjis + b"=" + sjis) == (("表", "表"),)


@pytest.mark.parametrize(
    ("content_type", "body", "encoding"),
    [
        (URLENCODED, b"a=%E9", "utf-8"),
        (URLENCODED, b"a=\xe9", "utf-8"),
        (URLENCODED, b"%E9=a", "utf-8"),
        (URLENCODED, b"a=%ED%A0%80", "utf-8"),
        (URLENCODED, b"a=%C0%80", "utf-8"),
        (f"{URLENCODED}; charset=sjis", b"a=%93", "shift_jis"),
        (f"{URLENCODED}; charset=cp1252", b"a=%81", "windows-1252"),
        (f"{URLENCODED}; charset=gbk", b"a=%FF", "gbk"),
        (MULTIPART, multipart(part("a", b"\xe9")), "utf-8"),
        (MULTIPART, multipart(part(b"\xe9", "a")), "utf-8"),
        (MULTIPART, multipart(part("a", b"\xff", headers="Content-Type: a/b; charset=euc-jp\r\n")), "euc-jp"),
        (JSON, b'{"a": "\xe9"}', "utf-8"),
        (f"{JSON}; charset=latin1", b'{"a": "\xe9"}', "utf-8"),
    ],
)
def test_bytes_that_are_no_text_are_refused_and_never_replaced(
    content_type: str, body: bytes, encoding: str
) -> None:
    with pytest.raises(UndecodableText) as refusal:
        read(content_type, body)
    assert refusal.value.encoding == encoding


@pytest.mark.parametrize(
    "label", ["klingon", "utf-7", "utf-16", "unicodefffe", "iso-2022-kr", "idna", "é", "hex"]
)
def test_a_charset_that_forms_are_not_sent_in_is_refused_without_being_quoted(label: str) -> None:
    bodies = [
        (f"{URLENCODED}; charset={label}", b"a=1"),
        (URLENCODED, b"a=1&_charset_=" + label.encode()),
        (MULTIPART, multipart(part("_charset_", label), part("a", "1"))),
        (MULTIPART, multipart(part("a", "1", headers=f"Content-Type: text/plain; charset={label}\r\n"))),
    ]
    for content_type, body in bodies:
        with pytest.raises(MalformedBody) as refusal:
            read(content_type, body)
        assert refusal.value.flaw == "it names a charset that forms are not sent in"


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        (b"--b--", ()),
        (b"--b--\r\n", ()),
        (multipart(part("a", "1")), (("a", "1"),)),
        (multipart(part("a", "1"))[:-2], (("a", "1"),)),
        (b"\r\n" + multipart(part("a", "1")), (("a", "1"),)),
        (b"This is a message for MIME.\r\n" + multipart(part("a", "1")), (("a", "1"),)),
        (multipart(part("a", "1")) + b"an epilogue\r\n--b\r\nthat is not read", (("a", "1"),)),
        (multipart(part("a", "")), (("a", ""),)),
        (multipart(part("", "x")), (("", "x"),)),
        (multipart(part("a", "1"), part("b", "2"), part("a", "3")), (("a", "1"), ("b", "2"), ("a", "3"))),
        (multipart(part("a", "1\r\n2\r3\n4")), (("a", "1\n2\n3\n4"),)),
        (multipart(part("a", "\r\n--\r\n-b\r\n")), (("a", "\n--\n-b\n"),)),
        (multipart(part("a", "\0")), (("a", "\0"),)),
        (multipart(part("a", "\ufeff1")), (("a", "\ufeff1"),)),
        (multipart(part("a", "100% + %41 &amp;")), (("a", "100% + %41 &amp;"),)),
        (multipart(part("a%22b%0D%0Ac", "1")), (('a"b\r\nc', "1"),)),
        (multipart(part("50%25", "1")), (("50%25", "1"),)),
        (multipart(part("a\\", "1")), (("a\\", "1"),)),
        (multipart(part("a\\", "", after_name='; filename=""'), part("c:\\d", "1")), (("c:\\d", "1"),)),
        (multipart(part('a\\"b\\\\c', "1")), (('a"b\\c', "1"),)),
        (multipart(part("a; filename=x", "1")), (("a; filename=x", "1"),)),
        (multipart(part("名前", "日本")), (("名前", "日本"),)),
        (multipart(part("a", "1", headers="X-Other: y\r\nContent-Length: 1\r\n")), (("a", "1"),)),
        (multipart(part("a", "1", headers="Content-Transfer-Encoding: 8BIT\r\n")), (("a", "1"),)),
        (multipart(part("_charset_", "utf-8"), part("a", "1")), (("a", "1"),)),
        (multipart(b"--b\r\ncontent-disposition:Form-Data;NAME=a\r\n\r\n1\r\n"), (("a", "1"),)),
        (multipart(b"--b\r\nContent-Disposition: form-data; name=a[b]\r\n\r\n1\r\n"), (("a[b]", "1"),)),
        (multipart(b'--b\r\nContent-Disposition: form-data ; x=y; name = "a"\r\n\r\n1\r\n'), (("a", "1"),)),
        (multipart(b'--b\r\nContent-Disposition: form-data;\r\n name="a"\r\n\r\n1\r\n'), (("a", "1"),)),
        (
            multipart(b'--b\r\nX: y\r\nContent-Disposition: form-data; name="a"; name="z"\r\n\r\n1\r\n'),
            (("a", "1"),),
        ),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 7])
def test_multipart(body: bytes, pairs: Pairs, size: int) -> None:
    assert read(MULTIPART, body, size=size) == pairs


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ('multipart/form-data; boundary="b"', "b"),
        ("Multipart/Form-Data;BOUNDARY=b", "b"),
        ("multipart/form-data; charset=utf-8; boundary=b; x=y", "b"),
        ("multipart/form-data ; boundary=b ", "b"),
        ("multipart/form-data; boundary=b; boundary=c", "b"),
        ('multipart/form-data; x="; boundary=c"; boundary=b', "b"),
        ('multipart/form-data; boundary="a b:c=d/?"', "a b:c=d/?"),
        ("multipart/form-data; boundary=----=_Part_1_23.4", "----=_Part_1_23.4"),
        ("multipart/form-data; boundary=----WebKitFormBoundaryA", "----WebKitFormBoundaryA"),
        (r'multipart/form-data; boundary="a\b"', "ab"),
        ("multipart/form-data; boundary=" + "x" * 70, "x" * 70),
    ],
)
def test_a_boundary_may_be_written_in_any_legal_way(content_type: str, boundary: str) -> None:
    body = f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--{boundary}--\r\n'
    assert read(content_type, body.encode()) == (("a", "1"),)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        'multipart/form-data; boundary="a "',
        "multipart/form-data; boundary=é",
        'multipart/form-data; boundary="a\r\nb"',
        "multipart/form-data; boundary=" + "x" * 71,
        "multipart/form-data; boundary=c",
    ],
)
def test_a_boundary_that_is_missing_illegal_or_not_in_the_body_is_refused(content_type: str) -> None:
    with pytest.raises(MalformedBody):
        read(content_type, multipart(part("a", "1")))


def test_a_multipart_body_that_is_cut_anywhere_before_its_end_is_refused() -> None:
    body = multipart(part("a", "1"), part("b", "", after_name='; filename=""'), part("c", "x\r\n-"))[:-2]
    for length in range(len(body)):
        with pytest.raises(MalformedBody):
            read(MULTIPART, body[:length])


@pytest.mark.parametrize(
    "body",
    [
        b"a=1",
        multipart(part("a", "1")).replace(b"\r\n", b"\n"),
        multipart(b"--b\r\n\r\n1\r\n"),
        multipart(b"--b\r\nContent-Type: text/plain\r\n\r\n1\r\n"),
        multipart(b'--b\r\nContent-Disposition: attachment; name="a"\r\n\r\n1\r\n'),
        multipart(b"--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n"),
        multipart(b"--b\r\nContent-Disposition: form-data; name*=utf-8''a\r\n\r\n1\r\n"),
        multipart(b"--b\r\nno colon\r\n\r\n1\r\n"),
        multipart(part("a", "1", headers="Content-Length: 2\r\n")),
        multipart(part("a", "1", headers="Content-Length: x\r\n")),
        multipart(part("a", "MQ==", headers="Content-Transfer-Encoding: base64\r\n")),
        multipart(part("a", "1", headers="X: y\r\n" * 20)),
        multipart(part("a" * 5000, "1")),
        multipart(part("a", "1\r\n--bad")),
        b"junk" + multipart(part("a", "1")),
    ],
)
def test_illegal_multipart_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        read(MULTIPART, body)


@pytest.mark.parametrize("size", [0, 1, 16])
def test_junk_before_the_first_boundary_is_refused_however_it_is_cut(size: int) -> None:
    with pytest.raises(MalformedBody):
        read(MULTIPART, b"x" * 64 + multipart(part("a", "1")), size=size)


@pytest.mark.parametrize(
    "after_name",
    [
        '; filename=""',
        "; filename=",
        "; filename*=UTF-8''",
        "; filename=\"\"; filename*=UTF-8''",
    ],
)
def test_a_file_input_that_was_left_empty_is_ignored(after_name: str) -> None:
    empty = part("photo", "", after_name=after_name, headers="Content-Type: application/octet-stream\r\n")
    assert read(MULTIPART, multipart(part("a", "1"), empty, part("b", "2"))) == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize(
    ("after_name", "content"),
    [
        ('; filename="photo.png"', "x"),
        ('; filename="photo.png"', ""),
        ('; filename=""', "x"),
        ("; filename*=UTF-8''photo.png", "x"),
        ("; filename*=UTF-8'en'photo.png", ""),
        ('; FileName="a\\"; b.png"', "x"),
    ],
)
def test_a_file_is_refused_by_the_name_of_its_field(after_name: str, content: str) -> None:
    with pytest.raises(FileUploadNotSupported) as refusal:
        read(MULTIPART, multipart(part("a", "1"), part("photo é", content, after_name=after_name)))
    assert refusal.value.field == "photo é"


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        (b"{}", ()),
        (b' {"a": "1"}\r\n', (("a", "1"),)),
        (b'{"a": ["x", 1, true], "b": []}', (("a", "x"), ("a", "1"), ("a", "true"))),
        (b'{"a": "1", "b": "2", "a": "3"}', (("a", "1"), ("b", "2"), ("a", "3"))),
        (
            b'{"a": 1.50, "b": 1e400, "c": -0, "d": 1E+2}',
            (("a", "1.50"), ("b", "1e400"), ("c", "-0"), ("d", "1E+2")),
        ),
        (b'{"a": ' + b"9" * 5000 + b"}", (("a", "9" * 5000),)),
        (b'{"a": true, "b": false}', (("a", "true"), ("b", "false"))),
        (b'{"a": "\\u00e9\\ud83d\\ude00"}', (("a", "é😀"),)),
        (b'{"a": "\\ud800\\u0000"}', (("a", "\ud800\0"),)),
        (b'{"a": "1\\r\\n2\\r3\\n"}', (("a", "1\n2\n3\n"),)),
        (b'{"": "x"}', (("", "x"),)),
        (b'\xef\xbb\xbf{"a": "\xef\xbb\xbf1"}', (("a", "\ufeff1"),)),
        (b'{"_charset_": "", "a": "1"}', (("a", "1"),)),
    ],
)
def test_json(body: bytes, pairs: Pairs) -> None:
    assert read(JSON, body) == pairs


@pytest.mark.parametrize("value", ["null", "{}", '{"b": 1}', "[[]]", "[null]", '["x", {}]', "[[1]]"])
def test_nested_or_null_json_is_refused_by_the_name_of_its_field(value: str) -> None:
    with pytest.raises(InvalidFieldValue) as refusal:
        read(JSON, f'{{"a": "1", "deep é": {value}}}'.encode())
    assert refusal.value.field == "deep é"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"a"',
        b"1",
        b"null",
        b"a=1",
        b'{"a": 1',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": 1,}',
        b'{"a": 1} x',
        b'{"a": "\n"}',
        b'{"a": "\\x"}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": [Infinity]}',
        b"[" * 200_000,
        b'{"a":' * 40_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        read(JSON, body)


def test_refusals_do_not_quote_what_was_submitted() -> None:
    secret = "hunter2"
    bodies = [
        (JSON, f'{{"a": "{secret}'),
        (JSON, f'{{"a": "{secret}\\x"}}'),
        (JSON, f'{{"a": {{"b": "{secret}"}}}}'),
        (URLENCODED, f"a={secret}%E9"),
        (URLENCODED, f"a=1&_charset_={secret}"),
        (MULTIPART, f"--b\r\n{secret}\r\n\r\n--b--"),
        (MULTIPART, f"--b\r\nContent-Disposition: {secret}; name=a\r\n\r\n--b--"),
        (MULTIPART, f'--b\r\nContent-Disposition: form-data; name="a"; filename="{secret}"\r\n\r\n\r\n--b--'),
    ]
    for content_type, body in bodies:
        with pytest.raises(PostRefused) as refusal:
            read(content_type, body.encode())
        assert secret not in repr(refusal.value)
        assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        (None, ""),
        ("", ""),
        (";", ""),
        ("text/plain", "text/plain"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("Application/LD+JSON", "Application/LD+JSON"),
        ("application/problem+json", "application/problem+json"),
        ("multipart/mixed; boundary=b", "multipart/mixed"),
        ("application/x-www-form-urlencoded, text/plain", "application/x-www-form-urlencoded, text/plain"),
        ("a/\x00\x7f\u202eb", "a/b"),
        ("a/" + "b" * 200, "a/" + "b" * 126),
    ],
)
async def test_another_media_type_is_refused_unread(content_type: str | None, shown: str) -> None:
    stream = Stream([b"a=1"])
    with pytest.raises(UnsupportedMediaType) as refusal:
        await read_pairs(content_type, None, stream, LIMITS)
    assert (refusal.value.media_type, stream.chunks_taken) == (shown, 0)


@pytest.mark.parametrize("content_type", [f"{URLENCODED.upper()} ;charset=utf-8", f" {URLENCODED} "])
def test_the_media_type_is_read_in_any_case(content_type: str) -> None:
    assert read(content_type, b"a=1") == (("a", "1"),)
    assert read("Application/JSON; charset=utf-8", b'{"a": "1"}') == (("a", "1"),)


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART, JSON])
async def test_a_declared_length_over_the_limit_is_refused_unread(content_type: str) -> None:
    stream = Stream([b"a=1"])
    with pytest.raises(BodyTooLarge) as refusal:
        await read_pairs(content_type, "11", stream, IntakeLimits(max_body_bytes=10))
    assert (refusal.value.limit, stream.chunks_taken) == (10, 0)


@pytest.mark.parametrize("declared", [None, "", "2", "0", "-1", "many", "9" * 5000])
@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART, JSON])
async def test_a_longer_body_than_was_declared_is_refused_at_the_limit(
    content_type: str, declared: str | None
) -> None:
    stream = Stream([b"a=1"] * 1000)
    with pytest.raises(BodyTooLarge):
        await read_pairs(content_type, declared, stream, IntakeLimits(max_body_bytes=10))
    assert stream.chunks_taken == 4


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    limits = IntakeLimits(max_body_bytes=6)
    assert await read_pairs(URLENCODED, "6", Stream([b"a=", b"", b"1234"]), limits) == (("a", "1234"),)


def spelled(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, bytes]]:
    listed = list(pairs)
    members = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in listed)
    return [
        (URLENCODED, urlencode(listed).encode()),
        (MULTIPART, multipart(*(part(browser_escaped(name), value) for name, value in listed))),
        (JSON, f"{{{members}}}".encode()),
    ]


def test_the_same_text_is_read_whatever_it_was_sent_as() -> None:
    sent = [*spelled([("a", EVERYONE)]), (URLENCODED, f"a={EVERYONE}".encode())]
    assert {read(content_type, body) for content_type, body in sent} == {(("a", EVERYONE),)}


def test_as_many_fields_as_the_limit_are_read_and_one_more_is_refused() -> None:
    limits = IntakeLimits(max_fields=3)
    empty_file = part("f", "", after_name='; filename=""')
    for content_type, body in spelled([("a", "1")] * 3):
        assert len(read(content_type, body, limits=limits)) == 3
    control = multipart(part("_charset_", "utf-8"), *([part("a", "1"), empty_file] * 3))
    assert len(read(MULTIPART, control, limits=limits)) == 3
    assert len(read(URLENCODED, b"_charset_=utf-8&a&&b&c", limits=limits)) == 3
    listed = [*spelled([("a", "1")] * 4), (JSON, b'{"a": [1, 2, 3, 4]}')]
    for content_type, body in listed:
        with pytest.raises(TooManyFields) as refusal:
            read(content_type, body, limits=limits)
        assert refusal.value.limit == 3


def test_parts_that_are_not_kept_are_bounded_too() -> None:
    for ignored in (part("f", "", after_name='; filename=""'), part("_charset_", "utf-8")):
        assert read(MULTIPART, multipart(*[ignored] * 100)) == ()
        with pytest.raises(TooManyFields):
            read(MULTIPART, b"".join([ignored] * 1000))


FILLED = LIMITS.max_body_bytes
HEADER = b'--b\r\nContent-Disposition: form-data; name="'
WORST = [
    *((URLENCODED, unit) for unit in (b"&", b"%", b"=", b"+", b"%25", b"%%4", b"a&", b"_charset_=x&")),
    *((MULTIPART, unit) for unit in (b"\r", b"\r\n", b"--b", b"\r\n--", b"--b\r\n", part("a", ""), HEADER)),
    (MULTIPART, b"--b\r\nContent-Disposition: form-data" + b"; name=" * 500 + b"\r\n\r\n\r\n"),
    (MULTIPART, b"--b\r\nContent-Disposition: form-data" + b'; a="\\' * 600 + b"\r\n\r\n\r\n"),
    (MULTIPART, b"--b\r\nContent-Disposition: form-data; name=a" + b"\r\n a" * 1000 + b"\r\n\r\n\r\n"),
    *((JSON, unit) for unit in (b"[", b'{"a":', b"[1,", b'"\\', b"1", b" ")),
]


@pytest.mark.parametrize(("content_type", "unit"), WORST, ids=lambda value: repr(value[:40]))
def test_the_worst_bodies_are_answered(content_type: str, unit: bytes) -> None:
    body = (unit * (FILLED // len(unit) + 1))[:FILLED]
    try:
        read(content_type, body)
    except PostRefused:
        return


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20).filter(
    lambda name: name != "_charset_"
)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=8)


def survives_multipart(pairs: list[tuple[str, str]]) -> bool:
    """A browser picks a boundary that is in no value, and leaves an escape that was typed as it is."""
    return not any(
        "\n--b" in f"\n{value}" or any(escape in name for escape in ("%22", "%0A", "%0D"))
        for name, value in pairs
    )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(PAIRS.filter(survives_multipart), st.integers(1, 40))
def test_what_was_filled_in_comes_back_equal(pairs: list[tuple[str, str]], size: int) -> None:
    for content_type, body in spelled(pairs):
        assert read(content_type, body, size=size) == tuple(pairs)
        assert read(content_type, body, size=1) == tuple(pairs)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.text("aZ日本ソ表", min_size=1), st.text("aZ日本語 ソ表\n&=%+"))),
    st.sampled_from(["shift_jis", "euc-jp", "iso-2022-jp", "gb18030", "utf-8"]),
)
def test_what_was_sent_in_another_encoding_comes_back_equal(pairs: list[tuple[str, str]], label: str) -> None:
    raw = [(name.encode(label), value.encode(label)) for name, value in pairs]
    body = "&".join(f"{quote_from_bytes(name)}={quote_from_bytes(value)}" for name, value in raw)
    assert read(f"{URLENCODED}; charset={label}", body.encode()) == tuple(pairs)
    assert read(URLENCODED, f"{body}&_charset_={label}".encode()) == tuple(pairs)
    parts = [part(name.replace(b'"', b"%22"), value) for name, value in raw]
    assert read(MULTIPART, multipart(*parts, part("_charset_", label))) == tuple(pairs)


FRAGMENTS = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.sampled_from(
            [
                b"--b",
                b"--b\r\n",
                b"\r\n",
                b"--",
                b"\r\n--b--",
                b"Content-Disposition: form-data",
                b"Content-Type: text/plain; charset=",
                b"Content-Length: 1",
                b"; name=",
                b"; filename*=",
                b'"a"',
                b"\\",
                b"_charset_",
                b"shift_jis",
                b"iso-2022-jp",
                b"\x1b$B",
                b"&",
                b"=",
                b"%",
                b"%e",
                b'{"',
                b'":',
                b'"}',
                b"[",
                b"\\u",
                b"\xef\xbb\xbf",
                b"1e5",
            ]
        ),
    ),
    max_size=20,
).map(b"".join)
CONTENT_TYPES = st.one_of(
    st.sampled_from([URLENCODED, MULTIPART, JSON, f"{URLENCODED}; charset=iso-2022-jp"]),
    st.text(max_size=20).map(f"{URLENCODED}; charset=".__add__),
    st.text(max_size=20).map("multipart/form-data; boundary=".__add__),
    st.text(max_size=20),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(CONTENT_TYPES, FRAGMENTS, st.integers(1, 20))
def test_nothing_but_a_refusal_is_raised_and_chunks_change_nothing(
    content_type: str, body: bytes, size: int
) -> None:
    assert outcome(content_type, body, size) == outcome(content_type, body, 0)


def outcome(content_type: str, body: bytes, size: int) -> Pairs | str:
    try:
        return read(content_type, body, size=size)
    except PostRefused as refusal:
        return repr(refusal)
