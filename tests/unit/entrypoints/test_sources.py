"""Who posts: the peer, or the entry that our own proxies vouch for; told apart without being shown."""

import pytest

from hymical.entrypoints.api.sources import UNKNOWN, Source, source_digest, source_of, visitor_digest

KEY, OTHER_KEY = bytes(32), bytes([1]) * 32
PEER = "192.0.2.1"
V4, OTHER_V4 = Source(bytes([203, 0, 113, 7])), Source(bytes([198, 51, 100, 9]))
PEER_SOURCE = Source(bytes([192, 0, 2, 1]))
V6 = Source(bytes.fromhex("20010db800010002"))


@pytest.mark.parametrize(
    ("forwarded_for", "hops", "expected"),
    [
        # nobody is trusted: what is forwarded says nothing
        ([], 0, PEER_SOURCE),
        (["203.0.113.7"], 0, PEER_SOURCE),
        # one proxy: whom it was called by is the last
        (["203.0.113.7"], 1, V4),
        (["198.51.100.9, 203.0.113.7"], 1, V4),
        (["198.51.100.9", "203.0.113.7"], 1, V4),
        (["10.0.0.1, 10.0.0.2,203.0.113.7 "], 1, V4),
        (["garbage,,, 203.0.113.7"], 1, V4),
        # two proxies: the last entry is the first of them
        (["198.51.100.9, 203.0.113.7, 10.0.0.1"], 2, V4),
        (["198.51.100.9, 203.0.113.7", "10.0.0.1"], 2, V4),
        (["203.0.113.7, 10.0.0.1"], 2, V4),
        # fewer entries than proxies: none of them is vouched for
        (["203.0.113.7"], 2, PEER_SOURCE),
        ([], 1, PEER_SOURCE),
        # what is no address
        ([""], 1, PEER_SOURCE),
        (["203.0.113.7,"], 1, PEER_SOURCE),
        (["203.0.113.7, unknown"], 1, PEER_SOURCE),
        (["203.0.113.7, 300.1.1.1"], 1, PEER_SOURCE),
        (["203.0.113.7, [2001:db8::"], 1, Source(bytes.fromhex("20010db800000000"))),
        (["203.0.113.7, ["], 1, PEER_SOURCE),
        (["203.0.113.7, _hidden"], 1, PEER_SOURCE),
        (["203.0.113.7, café"], 1, PEER_SOURCE),
        # with a port, with brackets
        (["203.0.113.7:4711"], 1, V4),
        (["2001:db8:1:2::1"], 1, V6),
        (["[2001:db8:1:2::1]"], 1, V6),
        (["[2001:db8:1:2::1]:4711"], 1, V6),
        (["2001:DB8:1:2:ffff:ffff:ffff:ffff"], 1, V6),
        (["fe80::1%eth0"], 1, Source(bytes.fromhex("fe80000000000000"))),
        # one address written in the other family
        (["::ffff:203.0.113.7"], 1, V4),
        (["[::ffff:cb00:7107]:80"], 1, V4),
    ],
)
def test_the_client_is_counted_from_the_right(forwarded_for: list[str], hops: int, expected: Source) -> None:
    assert source_of(PEER, forwarded_for, trusted_hops=hops) == expected


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("203.0.113.7", V4),
        ("::ffff:203.0.113.7", V4),
        ("2001:db8:1:2::1", V6),
        ("2001:db8:1:2:3:4:5:6", V6),
        ("2001:db8:1:3::1", Source(bytes.fromhex("20010db800010003"))),
        (None, UNKNOWN),
        ("", UNKNOWN),
        ("/run/hymical.sock", UNKNOWN),
    ],
)
def test_a_peer_is_an_ipv4_address_or_an_ipv6_prefix(peer: str | None, expected: Source) -> None:
    assert source_of(peer, [], trusted_hops=0) == expected


def test_behind_a_proxy_on_a_socket_without_addresses_the_client_is_still_found() -> None:
    assert source_of(None, ["203.0.113.7"], trusted_hops=1) == V4


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_whatever_a_client_forges_it_stays_in_its_bucket(hops: int) -> None:
    own = ["203.0.113.7", *("10.0.0.1" for _ in range(hops - 1))]
    forgeries = ["198.51.100.9", "198.51.100.9, 198.51.100.10, 198.51.100.11", ",,,", "x" * 10_000]

    seen = {source_of(PEER, [", ".join([forged, *own])], trusted_hops=hops) for forged in forgeries} | {
        source_of(PEER, [forged, *own], trusted_hops=hops) for forged in forgeries
    }

    assert seen == {V4}


def test_a_source_is_told_from_others_by_its_digest_under_the_key() -> None:
    sources = [UNKNOWN, V4, OTHER_V4, V6]

    digests = {source_digest(KEY, source) for source in sources}

    assert {len(digest) for digest in digests} == {32}
    assert len(digests) == len(sources)
    assert digests.isdisjoint(source_digest(OTHER_KEY, source) for source in sources)
    assert source_digest(KEY, V4) == source_digest(KEY, Source(V4.prefix))


def test_a_visitor_is_a_source_and_its_browser() -> None:
    visitors = [
        (V4, "Firefox"),
        (V4, "Chrome"),
        (OTHER_V4, "Firefox"),
        (V4, None),
        (V6, "\udcff é"),
        (UNKNOWN, ""),
    ]

    digests = [visitor_digest(KEY, source, agent) for source, agent in visitors]

    assert len(set(digests)) == len(visitors)
    assert source_digest(KEY, V4) not in digests
    assert visitor_digest(KEY, V4, "") == visitor_digest(KEY, V4, None)
    assert visitor_digest(OTHER_KEY, V4, "Firefox") != digests[0]


def test_where_an_address_ends_and_a_browser_begins_makes_a_difference() -> None:
    assert visitor_digest(KEY, Source(b"abcd"), "efgh") != visitor_digest(KEY, Source(b"abcdefgh"), "")


def test_an_address_does_not_show() -> None:
    assert repr(V4) == str(V4) == repr(source_of("203.0.113.7", [], trusted_hops=0)) == "Source()"
