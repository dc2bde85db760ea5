"""Takes apart the headers of a body and of its parts."""

import re

_PARAMETER = re.compile(r';([^;=]+)=(?:\s*"([^"\\]*(?:\\.[^"\\]*)*)"?[^;]*|([^;]*))', re.DOTALL)

# Browsers leave backslashes as they are, so a quote that can end a parameter does end it; only where that
# does not fit, the older backslash escapes are tried.
_DISPOSITION_PARAMETER = re.compile(
    r';([^;=]+)=(?:\s*"([^"]*)"(?=\s*(?:;|\Z))|\s*"([^"\\]*(?:\\.[^"\\]*)*)"?[^;]*|([^;]*))', re.DOTALL
)
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)


def media_type(header: str) -> tuple[str, dict[str, str]]:
    """The type as written, and its parameters by lower-cased name; the first of a name counts.

    Source: https://mimesniff.spec.whatwg.org/#parse-a-mime-type.
    """
    essence, semicolon, _ = header.partition(";")
    parameters: dict[str, str] = {}
    if semicolon:
        for name, quoted, plain in _PARAMETER.findall(header, len(essence)):
            value = _without_backslashes(quoted) or plain.strip()
            if value:
                parameters.setdefault(name.strip().lower(), value)
    return essence.strip(), parameters


def disposition_parameters(header: str) -> dict[str, str]:
    """The parameters of a part's Content-Disposition, with the escapes of browsers undone.

    Source: https://html.spec.whatwg.org/#multipart-form-data.
    """
    parameters: dict[str, str] = {}
    for name, browser, older, plain in _DISPOSITION_PARAMETER.findall(header):
        value = _without_percent_escapes(browser) or _without_backslashes(older) or plain.strip()
        parameters.setdefault(name.strip().lower(), value)
    return parameters


def _without_percent_escapes(text: str) -> str:
    if "%" not in text:
        return text
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%22", '"')


def _without_backslashes(text: str) -> str:
    return _QUOTED_PAIR.sub(r"\1", text) if "\\" in text else text
