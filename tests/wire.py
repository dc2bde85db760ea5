"""Fields as they are written on the wire, in the three ways that a form may be posted."""

import json
from collections.abc import Sequence
from urllib.parse import urlencode

from hypothesis import strategies as st

BOUNDARY = "----a-boundary-that-nobody-types"
_CONTROL = ("_next", "_gotcha", "_charset_")
_RESEMBLING = [
    *("next", "_nextstep", "_Next", "gotcha", "_gotcha_", "_gotcha[]", "charset", "_charset", "_method"),
    *(
        "id",
        "form_id",
        "received_at",
        "fields",
        "user[email]",
        "tags[]",
        "entry.42",
        "名前",
        'a"b',
        "a\\",
        "'",
    ),
    *("100%", "%", "%zz", "a=b&c", "a+b", " ", "__proto__", "constructor", "😀", "\u2028", "e\u0301", "\xa0"),
]

# a browser writes a quote as %22, and leaves a %22 that was typed as it is: the two cannot be told apart
names = st.one_of(
    st.sampled_from(_RESEMBLING),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20),
).filter(lambda name: name not in _CONTROL and not any(one in name for one in ("%22", "%0A", "%0D")))
values = st.one_of(
    st.sampled_from(
        [
            *("", " ", "\n", "\r\n", "\r", "a\r\nb\rc\nd\n\r", "null", "true", "1e5", "&=%+", "<b>"),
            *("\U0001f469\u200d\U0001f467", "\ufeff", "\u2028"),
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
)
filled_in = st.lists(st.tuples(names, values), min_size=1, max_size=8)

Pairs = Sequence[tuple[str, str]]
Posted = tuple[str, bytes]
"""A content type and a body."""


def urlencoded(pairs: Pairs) -> Posted:
    return "application/x-www-form-urlencoded", urlencode(pairs).encode()


def multipart(pairs: Pairs) -> Posted:
    parts = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in ((name.replace('"', "%22"), value) for name, value in pairs)
    )
    return f"multipart/form-data; boundary={BOUNDARY}", f"{''.join(parts)}--{BOUNDARY}--\r\n".encode()


def json_object(pairs: Pairs) -> Posted:
    gathered = in_order(pairs)
    return "application/json", json.dumps(
        {name: said[0] if len(said) == 1 else said for name, said in gathered.items()}
    ).encode()


def in_order(pairs: Pairs) -> dict[str, list[str]]:
    """Names in order of first appearance, each with its values in order."""
    gathered: dict[str, list[str]] = {}
    for name, value in pairs:
        gathered.setdefault(name, []).append(value)
    return gathered


def kept(pairs: Pairs) -> dict[str, list[str]]:
    """What is to be stored and delivered of them: the same, each line break being an LF."""
    return in_order([(name, value.replace("\r\n", "\n").replace("\r", "\n")) for name, value in pairs])
