"""Turns the bytes of names and values into text, by the encodings and labels of the web."""

import codecs
from collections.abc import Callable
from dataclasses import dataclass

import webencodings

from hymical.domain.errors import MalformedBody, UndecodableText

Pairs = tuple[tuple[str, str], ...]
"""Names and values in the order they were sent."""

CHARSET_FIELD = "_charset_"
"""The control field that names the encoding of the form: https://html.spec.whatwg.org/#attr-fe-name-charset."""

# The web decodes GBK as GB18030: https://encoding.spec.whatwg.org/#gbk-decoder.
_CODECS = {"gbk": codecs.lookup("gb18030")}
# No form is sent in these: https://encoding.spec.whatwg.org/#get-an-output-encoding.
_NEVER_SENT = frozenset({"replacement", "utf-16be", "utf-16le"})


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """`name` is the web's canonical one; `decode` raises `UnicodeError`."""

    name: str
    decode: Callable[[bytes], str]

    def text(self, raw: bytes) -> str:
        """The text of these bytes. Raises `UndecodableText` rather than replace any."""
        try:
            return self.decode(raw)
        except UnicodeError:
            raise UndecodableText(self.name) from None


UTF_8 = TextEncoding("utf-8", bytes.decode)


def encoding_labelled(label: str) -> TextEncoding:
    """Raises `MalformedBody` for a label that the web does not know, or that forms are not sent in."""
    found = webencodings.lookup(label) if label.isascii() else None
    if found is None or found.name in _NEVER_SENT:
        raise MalformedBody("it names a charset that forms are not sent in")
    if found.name == UTF_8.name:
        return UTF_8
    codec = _CODECS.get(found.name, found.codec_info)
    return TextEncoding(found.name, lambda raw: codec.decode(raw, "strict")[0])


def form_encoding(declared: str | None, charset_field: bytes) -> TextEncoding:
    """What the content type of a form declares, else what its `_charset_` field names, else UTF-8."""
    label = declared or charset_field.decode("latin-1")
    return encoding_labelled(label) if label else UTF_8


def with_line_feeds(value: str) -> str:
    """A value with each line break, however it was written, as one LF."""
    return value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value
