"""Which addresses may be called, in every spelling and embedding."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from ipaddress import ip_address, ip_network

import pytest

from hymical.adapters.http.egress import (
    Address,
    Egress,
    EgressError,
    NameNotFoundError,
    ResolverFailingError,
    SystemResolver,
    TargetRefusedError,
)
from hymical.domain.errors import InvalidValue
from tests.receivers import Names

NETWORKS = "FORMS_WEBHOOK_ALLOWED_NETWORKS"
HTTP = "FORMS_WEBHOOK_ALLOW_HTTP"


def egress(
    *answers: Sequence[str] | Exception, allowed: Sequence[str] = (), allow_http: bool = False
) -> Egress:
    return Egress(
        allowed_networks=tuple(ip_network(network) for network in allowed),
        allow_http=allow_http,
        resolver=Names(*answers),
    )


def addresses(*spelled: str) -> tuple[Address, ...]:
    return tuple(map(ip_address, spelled))


@pytest.mark.parametrize(
    "host",
    [
        # IPv4 by kind
        "0.0.0.0",  # noqa: S104 - refused, not bound
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "233.252.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        # IPv4 by spelling
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.0.0.0x1",
        "0",
        "2130706433",
        "2852039166",
        "0x7f000001",
        "0X7F000001",
        "0x7f.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "0300.0250.1",
        "00000177.0.0.1",
        "0251.0376.0251.0376",
        "\uff11\uff12\uff17.\uff10.\uff10.\uff11",
        "127\u30020\u30020\u30021",
        "127\uff0e0\uff0e0\uff0e1",
        "\u2460\u2461\u2466.0.0.1",
        "127.0.0\u00ad.1",
        # IPv6 by kind
        "::",
        "::1",
        "0:0:0:0:0:0:0:1",
        "[::1]",
        "100::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "3ffe::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "fe80::1%eth0",
        "::1%lo",
        "[fe80::1%25eth0]",
        # IPv4 inside of IPv6
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "[::FFFF:169.254.169.254]",
        "0:0:0:0:0:ffff:10.0.0.1",
        "::ffff:0.0.0.1",
        "::ffff:0:127.0.0.1",
        "::127.0.0.1",
        "::7f00:1",
        "::8.8.8.8",
        "64:ff9b::169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::0.0.0.1",
        "64:ff9b:1::1",
        "64:ff9b:1:7f00:0:100::",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2002:808:808::1",
        "2001:0:7f00:1::1",
        "2001:0:808:808:0:0:80ff:fffe",
        "2606:4700::5efe:127.0.0.1",
        "2606:4700::200:5efe:a9fe:a9fe",
        "2606:4700::5efe:0.0.0.0",
    ],
)
@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_refuses_addresses_that_are_not_public(scheme: str, host: str) -> None:
    for allow_http in (False, True):
        with pytest.raises(TargetRefusedError, match=NETWORKS):
            await egress(allow_http=allow_http).addresses(scheme, host)


@pytest.mark.parametrize(
    "host",
    [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "134744072",
        "8.8.2056",
        "0x08080808",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2001:200::1",
        "2a00:1450::1",
        "[2606:4700:4700::1111]",
        "2606:4700::5efe:8.8.8.8",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ],
)
async def test_allows_public_addresses(host: str) -> None:
    assert await egress().addresses("https", host)
    assert await egress(allow_http=True).addresses("http", host)
    with pytest.raises(TargetRefusedError, match=HTTP):
        await egress().addresses("http", host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "..",
        "127.0.0.1..",
        "256.256.256.256",
        "1.2.3.4.5",
        "4294967296",
        "08.8.8.8",
        "0xg.1",
        "a.0x7f",
        "127.0.0.1%lo",
        "%31%32%37.0.0.1",
        "127.0.0.1 example.com",
        "exa\tmple.com",
        "example.com\\@127.0.0.1",
        "a" * 64 + ".example",
        "::g",
        "1::2::3",
        "2606:4700::1%eth0",
        "[v1.fe80]",
        "xn--\udc80.example",
    ],
)
async def test_refuses_what_is_neither_an_address_nor_a_name(host: str) -> None:
    with pytest.raises(TargetRefusedError):
        await egress(["8.8.8.8"], allowed=["0.0.0.0/0", "::/0"]).addresses("https", host)


@pytest.mark.parametrize("scheme", ["", "ftp", "file", "gopher", "ws", "HTTPS"])
async def test_refuses_other_schemes(scheme: str) -> None:
    with pytest.raises(TargetRefusedError):
        await egress(["8.8.8.8"]).addresses(scheme, "example.com")


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        (["127.0.0.0/8"], "127.0.0.1"),
        (["127.0.0.0/8"], "127.1"),
        (["127.0.0.0/8"], "::ffff:127.0.0.1"),
        (["10.0.0.0/8"], "64:ff9b::10.0.0.1"),
        (["::1/128"], "::1"),
        (["::1/128"], "[::1]"),
        (["fd00::/8"], "fd12::1"),
        (["10.1.0.0/16", "64:ff9b:1::/48"], "64:ff9b:1::10.1.0.1"),
        (["10.1.0.0/16", "64:ff9b:1::/48"], "64:ff9b:1:a01:0:200::"),
        (["2002::/16", "10.0.0.0/8"], "2002:a00:1::1"),
        (["8.8.8.8/32"], "8.8.8.8"),
        (["0.0.0.0/0", "::/0"], "169.254.169.254"),
    ],
)
async def test_allowed_networks_may_be_called_over_http_too(
    scheme: str, allowed: Sequence[str], host: str
) -> None:
    assert await egress(allowed=allowed).addresses(scheme, host)


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        (["127.0.0.1/32"], "127.0.0.2"),
        (["10.0.0.0/8"], "192.168.0.1"),
        (["64:ff9b::/96"], "64:ff9b::169.254.169.254"),
        (["64:ff9b:1::/48"], "64:ff9b:1::127.0.0.1"),
        (["64:ff9b:1::/48"], "64:ff9b:1:7f00:0:100::"),
        (["64:ff9b:1::/48"], "64:ff9b:1:7f:0:1::"),
        (["2002::/16"], "2002:7f00:1::"),
        (["2001::/32"], "2001:0:7f00:1:0:0:f7f7:f7f7"),
        (["2001::/32"], "2001:0:808:808:0:0:80ff:fffe"),
        (["127.0.0.0/8"], "2002:7f00:1::"),
        (["::/0"], "::ffff:127.0.0.1"),
    ],
)
async def test_an_allowed_network_does_not_open_what_an_address_of_it_embeds(
    allowed: Sequence[str], host: str
) -> None:
    with pytest.raises(TargetRefusedError, match=NETWORKS):
        await egress(allowed=allowed, allow_http=True).addresses("https", host)


async def test_gives_the_address_that_a_spelling_stands_for() -> None:
    assert await egress().addresses("https", "134744072") == addresses("8.8.8.8")
    assert await egress().addresses("https", "64:ff9b::8.8.8.8") == addresses("64:ff9b::808:808")


async def test_drops_the_refused_addresses_of_a_name_and_keeps_the_order_of_the_rest() -> None:
    answer = ["10.0.0.1", "2606:4700::1", "::1", "1.1.1.1", "::ffff:127.0.0.1", "1.1.1.1"]
    assert await egress(answer).addresses("https", "example.com") == addresses("2606:4700::1", "1.1.1.1")


async def test_asks_again_each_time() -> None:
    rebound = egress(["1.1.1.1"], ["127.0.0.1"])
    assert await rebound.addresses("https", "example.com") == addresses("1.1.1.1")
    with pytest.raises(TargetRefusedError, match=NETWORKS):
        await rebound.addresses("https", "example.com")


async def test_never_asks_the_resolver_about_an_address() -> None:
    names = Names(["1.1.1.1"])
    for host in ("8.8.8.8", "0x08080808", "2606:4700::1", "8.8.8.8."):
        await Egress(resolver=names).addresses("https", host)
    assert names.asked == []


async def test_asks_for_names_as_the_dns_knows_them() -> None:
    names = Names(["1.1.1.1"])
    for host in ("EXAMPLE.com.", "b\u00fccher.example", "_dns.a-b.example"):
        await Egress(resolver=names).addresses("https", host)
    assert names.asked == ["example.com", "xn--bcher-kva.example", "_dns.a-b.example"]


async def test_http_to_a_name_is_judged_by_its_addresses() -> None:
    mixed = ["1.1.1.1", "10.0.0.1"]
    assert await egress(mixed, allowed=["10.0.0.0/8"]).addresses("http", "a.example") == addresses("10.0.0.1")
    assert await egress(mixed, allow_http=True).addresses("http", "a.example") == addresses("1.1.1.1")
    with pytest.raises(TargetRefusedError, match=HTTP):
        await egress(["1.1.1.1"], allowed=["10.0.0.0/8"]).addresses("http", "a.example")


@pytest.mark.parametrize("error", [NameNotFoundError("name not found"), ResolverFailingError("failing")])
async def test_passes_on_why_a_name_has_no_address(error: Exception) -> None:
    with pytest.raises(type(error)):
        await egress(error).addresses("https", "example.com")


async def test_an_empty_answer_is_a_name_that_was_not_found() -> None:
    class Empty:
        async def resolve(self, name: str) -> Sequence[Address]:
            assert name
            return []

    with pytest.raises(NameNotFoundError):
        await Egress(resolver=Empty()).addresses("https", "example.com")


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("https://127.0.0.1/hook", NETWORKS),
        ("http://127.0.0.1/hook", NETWORKS),
        ("https://[::1]:8443/hook", NETWORKS),
        ("https://2130706433/", NETWORKS),
        ("https://localhost/", NETWORKS),
        ("http://8.8.8.8/", HTTP),
        ("http://localhost/", NETWORKS),
    ],
)
async def test_check_names_the_setting_that_would_allow_it(url: str, setting: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        await egress(["127.0.0.1"]).check(url)
    assert refused.value.field == "url"
    assert setting in refused.value.rule


@pytest.mark.parametrize("url", ["https://[::1", "https://host:99999/", "https:///path", "nonsense", ""])
async def test_check_refuses_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidValue):
        await egress(["8.8.8.8"], allowed=["0.0.0.0/0", "::/0"]).check(url)


async def test_check_accepts_a_name_with_one_address_that_may_be_called() -> None:
    await egress(["10.0.0.1", "1.1.1.1"]).check("https://example.com/")


@pytest.mark.parametrize("error", [NameNotFoundError("name not found"), ResolverFailingError("failing")])
async def test_check_accepts_a_name_that_does_not_resolve_now(error: Exception) -> None:
    await egress(error).check("https://example.com/")


async def test_check_does_not_wait_for_a_resolver_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def resolve(self, name: str) -> Sequence[Address]:
            await asyncio.Event().wait()
            raise AssertionError(name)

    monkeypatch.setattr("hymical.adapters.http.egress._PATIENCE_OF_A_CHECK", 0.01)
    await Egress(resolver=Silent()).check("https://example.com/")


async def test_a_name_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, over = list[str](), threading.Event()

    def getaddrinfo(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(name)
        if name == "hanging.example":
            over.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolver = SystemResolver()
    hanging = [asyncio.create_task(resolver.resolve("hanging.example")) for _ in range(100)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            assert await resolver.resolve("example.com") == [ip_address("203.0.113.1")]
    finally:
        over.set()

    assert await asyncio.gather(*hanging) == [[ip_address("203.0.113.1")]] * 100
    assert asked.count("hanging.example") == 1


@pytest.mark.parametrize("failure", [NameNotFoundError("?"), ResolverFailingError("?")])
async def test_without_any_setting_for_it_http_is_refused_wherever_the_name_leads(
    failure: EgressError,
) -> None:
    with pytest.raises(InvalidValue, match=HTTP):
        await egress(failure).check("http://nowhere.example/")
