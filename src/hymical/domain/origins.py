"""Web origins (RFC 6454), and addresses that people are sent on to."""

from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST = 2_048


def origin_of(address: str) -> str | None:
    """The origin of an absolute http(s) address, written as browsers write it; None for anything else.

    Only what every browser reads in the same way has one: no spaces, backslashes or control characters, no user name.
    """
    if (
        len(address) > _LONGEST
        or not address.isascii()
        or not address.isprintable()
        or set(address) & set(' \\"<>^`{|}')
    ):
        return None
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not host
        or parts.username is not None
        or parts.password is not None
    ):
        return None
    if not address[len(parts.scheme) :].startswith("://"):
        return None
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port in {None, _DEFAULT_PORTS[parts.scheme]} else f":{port}")
