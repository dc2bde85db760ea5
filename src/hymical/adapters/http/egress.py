"""Which addresses may be called."""

import asyncio
import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Protocol
from urllib.parse import urlsplit

from hymical.domain.errors import InvalidValue

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_Found = list[tuple[Any, Any, Any, str, tuple[Any, ...]]]

ALLOWED_NETWORKS = "FORMS_WEBHOOK_ALLOWED_NETWORKS"
ALLOW_HTTP = "FORMS_WEBHOOK_ALLOW_HTTP"

_NOT_PUBLIC: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(prefix), kind)
    for prefix, kind in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),
        ("169.254.0.0/16", "link-local, cloud metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "AMT"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("100:0:0:1::/64", "dummy prefix"),
        ("2001::/32", "Teredo"),
        ("2001:2::/48", "benchmarking"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3ffe::/16", "6bone"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private, cloud metadata"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        # global unicast is 2000::/3, and nothing else
        ("::/3", "reserved"),
        ("4000::/2", "reserved"),
        ("8000::/1", "reserved"),
    )
)

_LAST_FOUR = (12, 13, 14, 15)
_TRANSLATED = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
_EMBEDDINGS: tuple[tuple[IPv6Network, tuple[int, ...]], ...] = tuple(
    (IPv6Network(prefix), octets)
    for prefix, octets in (
        ("::/96", _LAST_FOUR),
        ("::ffff:0:0/96", _LAST_FOUR),
        ("::ffff:0:0:0/96", _LAST_FOUR),
        ("64:ff9b::/96", _LAST_FOUR),
        # RFC 6052, 2.2: where it stands depends on the length of the prefix, which only the translator knows
        ("64:ff9b:1::/48", (6, 7, 9, 10)),
        ("64:ff9b:1::/48", (7, 9, 10, 11)),
        ("64:ff9b:1::/48", (9, 10, 11, 12)),
        ("64:ff9b:1::/48", _LAST_FOUR),
        ("2002::/16", (2, 3, 4, 5)),
        ("2001::/32", (4, 5, 6, 7)),
    )
)
_ISATAP = (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))

_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

_PATIENCE_OF_A_CHECK = 2.0


class EgressError(Exception):
    """Why there is no address to connect to, in words."""


class TargetRefusedError(EgressError):
    """The target may not be called; the message names the setting that would allow it, if one would."""


class NameNotFoundError(EgressError):
    """The name has no address."""


class ResolverFailingError(EgressError):
    """Nobody can say at present whether the name has an address."""


class Resolver(Protocol):
    async def resolve(self, name: str) -> Sequence[Address]:
        """All A and AAAA records of a name.

        Raises:
            NameNotFoundError: there are none.
            ResolverFailingError: that cannot be known now.
        """
        ...


class SystemResolver:
    """What the operating system's resolver says.

    It may take its time over a name. Each has a thread of its own, shared by all who ask meanwhile: event loops keep
    only a few for it, and one name that hangs would hold up every other.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[_Found]] = {}

    async def resolve(self, name: str) -> Sequence[Address]:
        lookup = self._under_way.get(name)
        if lookup is None:
            lookup = self._under_way[name] = _looked_up(name)
            lookup.add_done_callback(lambda _: self._under_way.pop(name))
        try:
            found = await asyncio.shield(lookup)
        except socket.gaierror as error:
            if error.errno in {socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY}:
                raise NameNotFoundError(f"name not found: {name}") from None
            raise ResolverFailingError(f"the resolver is failing: {error.strerror}") from None
        return [ip_address(sockaddr[0]) for *_, sockaddr in found]


def _looked_up(name: str) -> "asyncio.Future[_Found]":
    loop = asyncio.get_running_loop()
    lookup: asyncio.Future[_Found] = loop.create_future()

    def finish(found: _Found, fault: Exception | None) -> None:
        if lookup.cancelled():
            return
        if fault is None:
            lookup.set_result(found)
        else:
            lookup.set_exception(fault)
            # nobody may be waiting any more
            lookup.exception()

    def ask() -> None:
        found: _Found = []
        fault: Exception | None = None
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001  whatever it is, whoever waits is told
            fault = error
        # the loop may have ended meanwhile
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, found, fault)

    # a daemon, so that a name that hangs does not keep the process from ending
    threading.Thread(target=ask, name=f"resolving {name}", daemon=True).start()
    return lookup


def spelled_address(host: str) -> Address | None:
    """The address that a host stands for, in any spelling that sockets and resolvers accept.

    None for a name. Raises `TargetRefusedError` for what is neither.
    """
    bare, _, _ = host.removeprefix("[").removesuffix("]").partition("%")
    if ":" in bare:
        try:
            return IPv6Address(bare)
        except ValueError:
            raise TargetRefusedError("the host is not an IPv6 address") from None
    name = ascii_name(host)
    try:
        # knows decimal, octal, hexadecimal and shortened addresses, just as connect and getaddrinfo do
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        if _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
            raise TargetRefusedError("the host is not an IPv4 address") from None
        return None


def ascii_name(host: str) -> str:
    """A host as the resolver is asked for it. Raises `TargetRefusedError` for what no host is called."""
    try:
        name = host.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name):
        raise TargetRefusedError("the host is not a name")
    return name


def layers(address: Address) -> tuple[Address, ...]:
    """What has to be allowed for an address to be called: itself, and every IPv4 address inside of it.

    A translated address stands only for what it embeds.
    """
    if isinstance(address, IPv4Address):
        return (address,)
    embedded = _embedded(address)
    if embedded and any(address in network for network in _TRANSLATED):
        return embedded
    return (address, *embedded)


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    packed = address.packed
    readings = [bytes(packed[i] for i in octets) for network, octets in _EMBEDDINGS if address in network]
    # 0.0.0.0/8 in such a place means that nothing is embedded there, as in ::1
    found = [reading for reading in readings if reading[0]]
    if address.teredo:
        found.append(address.teredo[1].packed)
    if packed[8:12] in _ISATAP:
        found.append(packed[12:])
    return tuple(map(IPv4Address, found))


def kind_if_not_public(address: Address) -> str | None:
    """Why an address, taken by itself, is not one of the public internet."""
    return next((kind for network, kind in _NOT_PUBLIC if address in network), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """The rules for outbound calls; also the port `TargetCheck`.

    `allowed_networks` may be called although they are not public, over http too. `allow_http` permits
    http:// to public addresses.
    """

    allowed_networks: tuple[Network, ...] = ()
    allow_http: bool = False
    resolver: Resolver = field(default_factory=SystemResolver)

    async def addresses(self, scheme: str, host: str) -> tuple[Address, ...]:
        """The addresses to connect to for a URL's scheme and host, never empty; connect to no other.

        Raises:
            TargetRefusedError: no address of the host may be called.
            NameNotFoundError: the host has no address.
            ResolverFailingError: that cannot be known now.
        """
        if scheme not in {"http", "https"}:
            raise TargetRefusedError("only https:// and http:// can be called")
        literal = spelled_address(host)
        if literal is not None:
            if refusal := self._refusal(scheme, literal):
                raise TargetRefusedError(refusal)
            if "%" in host:
                raise TargetRefusedError("the host must not name a network interface (%…)")
            return (literal,)
        return await self._resolved(scheme, ascii_name(host))

    async def check(self, url: str) -> None:
        """See the port. A name that does not resolve now is accepted: it may when something is sent."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise InvalidValue("url", "is not a URL: its host or port cannot be read") from None
        try:
            async with asyncio.timeout(_PATIENCE_OF_A_CHECK):
                await self.addresses(parts.scheme, host or "")
        except TargetRefusedError as refused:
            raise InvalidValue("url", f"may not be called: {refused}") from None
        except (NameNotFoundError, ResolverFailingError, TimeoutError):
            return

    async def _resolved(self, scheme: str, name: str) -> tuple[Address, ...]:
        found = dict.fromkeys(await self._found(scheme, name))
        if not found:
            raise NameNotFoundError(f"name not found: {name}")
        refusals = {address: self._refusal(scheme, address) for address in found}
        allowed = tuple(address for address, refusal in refusals.items() if refusal is None)
        if not allowed:
            raise TargetRefusedError(f"{name} leads only to {next(iter(refusals.values()))}")
        return allowed

    async def _found(self, scheme: str, name: str) -> Sequence[Address]:
        try:
            return await self.resolver.resolve(name)
        except EgressError:
            # wherever it leads, it may not be called
            if scheme == "http" and not self.allow_http and not self.allowed_networks:
                raise TargetRefusedError(_no_http(name)) from None
            raise

    def _refusal(self, scheme: str, address: Address) -> str | None:
        outer, *inner = layers(address)
        for layer in (outer, *inner):
            if not self._listed(layer) and (kind := kind_if_not_public(layer)):
                return f"{address}, which is not public ({kind}); {ALLOWED_NETWORKS} can allow it"
        if scheme == "http" and not self.allow_http and not self._listed(outer):
            return _no_http(str(address))
        return None

    def _listed(self, address: Address) -> bool:
        return any(address in network for network in self.allowed_networks)


def _no_http(target: str) -> str:
    return f"{target} by http://, which is not encrypted; {ALLOW_HTTP} can allow it"
