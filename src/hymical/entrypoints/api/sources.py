"""Who posts: told apart by digests of network prefixes, so that no address is kept or shown."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from socket import AF_INET, inet_pton

_IPV6_PREFIX_BYTES = 8
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Source:
    """A client as a limit sees it: an IPv4 address, an IPv6 /64, or all those of whom nothing is known."""

    prefix: bytes = field(repr=False)


UNKNOWN = Source(b"")


def source_of(peer: str | None, forwarded_for: Sequence[str], *, trusted_hops: int) -> Source:
    """The client behind `trusted_hops` of our own proxies.

    `peer` is the other end of the socket, None for a socket without addresses; `forwarded_for` are the values
    of all X-Forwarded-For lines, in order. Each proxy appends whom it was called by, so the client is that many
    entries from the right, and whatever a client wrote itself stays left of it. Without such an entry, or
    with one that is no address, it is the peer.
    """
    if trusted_hops > 0:
        entries = ",".join(forwarded_for).rsplit(",", trusted_hops)
        found = _read(entries[-trusted_hops]) if len(entries) >= trusted_hops else None
        if found is not None:
            return found
    return (peer is not None and _read(peer)) or UNKNOWN


def source_digest(key: bytes, source: Source) -> bytes:
    """32 bytes that stand for a source; without the key nobody can try addresses against them."""
    return blake2b(source.prefix, digest_size=_DIGEST_BYTES, key=key, person=b"source").digest()


def visitor_digest(key: bytes, source: Source, user_agent: str | None) -> bytes:
    """32 bytes that stand for one browser at a source, as far as posts tell."""
    prefix = len(source.prefix).to_bytes(1) + source.prefix
    agent = (user_agent or "").encode("utf-8", "surrogatepass")
    return blake2b(prefix + agent, digest_size=_DIGEST_BYTES, key=key, person=b"visitor").digest()


def _read(text: str) -> Source | None:
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        # sooner than `ip_address`, and as strict
        return Source(inet_pton(AF_INET, host))
    except (OSError, ValueError):
        pass
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if not isinstance(address, IPv6Address):
        return Source(address.packed)
    if address.ipv4_mapped is not None:
        return Source(address.ipv4_mapped.packed)
    return Source(address.packed[:_IPV6_PREFIX_BYTES])
