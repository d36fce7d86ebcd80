"""Bloom filters shared with the real Redisson: filled by one and read by the other, bit for bit the same."""

import pytest

from oncemq_strategies.redisson import BloomFilter

# Of every length that the hash treats differently, and of more than one byte for a letter.
WORDS = [
    *("a" * length for length in range(1, 70)),
    *(f"order-{number}:{number * 7}" for number in range(150)),
    "zürich",
    "注文-42",
    "🛒" * 9,
]
OTHERS = [f"never-{number}" for number in range(200)]
SHAPES = [(500, 0.01), (1_000_000, 0.0001), (20, 0.3), (77, 1e-9)]


def flags(found):
    """Return what the peer would say."""
    return "".join("1" if held else "0" for held in found)


@pytest.mark.parametrize("codec", ["text", "bytes"])
def test_java_fills_and_python_reads(peer, client, fresh, codec):
    """Also with which of the others are taken for added: the bits are the same."""
    assert peer.do("filter", fresh, codec, "init", 150, 0.05) == "true"
    peer.do("filter", fresh, codec, "add", *WORDS)
    ours = BloomFilter(client, fresh)
    assert all(ours.contains_all(WORDS))
    others = ours.contains_all(OTHERS)
    assert 0 < sum(others) < len(OTHERS)
    assert flags(others) == peer.do("filter", fresh, codec, "contains", *OTHERS)


@pytest.mark.parametrize("codec", ["text", "bytes"])
def test_python_fills_and_java_reads(peer, client, fresh, codec):
    """Also what both reckon to be the number of values."""
    ours = BloomFilter(client, fresh)
    assert ours.try_init(150, 0.05)
    assert any(ours.add_all([word.encode() for word in WORDS] if codec == "bytes" else WORDS))
    assert peer.do("filter", fresh, codec, "contains", *WORDS) == "1" * len(WORDS)
    assert flags(ours.contains_all(OTHERS)) == peer.do("filter", fresh, codec, "contains", *OTHERS)
    assert ours.count() == int(peer.do("filter", fresh, codec, "count"))


def test_both_leave_the_same_bits(peer, client, fresh):
    """Byte for byte, no matter who adds."""
    texts = []
    for name in (f"{fresh}-java", f"{fresh}-python"):
        ours = BloomFilter(client, name)
        if name.endswith("java"):
            peer.do("filter", name, "text", "init", 1000, 0.001)
            peer.do("filter", name, "text", "add", *WORDS)
        else:
            ours.try_init(1000, 0.001)
            ours.add_all(WORDS)
        texts.append(client.command("GET", name, key=name))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("expected", "share"), SHAPES)
def test_both_make_the_same_filter(peer, client, fresh, expected, share):
    """Each understands what the other was made for, and neither makes it a second time.

    With the same numbers: given others, Redisson 3.27.2 overwrites the settings of any filter, its own ones too.
    """
    theirs, ours = f"{fresh}-java", BloomFilter(client, f"{fresh}-python")
    assert ours.try_init(expected, share)
    assert peer.do("filter", theirs, "text", "init", expected, share) == "true"
    said = peer.do("filter", ours.name, "text", "settings")
    assert said == peer.do("filter", theirs, "text", "settings")
    assert ours.shape() == BloomFilter(client, theirs).shape()
    assert not BloomFilter(client, theirs).try_init(5, 0.5)
    assert peer.do("filter", ours.name, "text", "init", expected, share) != "true"
    assert peer.do("filter", ours.name, "text", "settings") == said


def test_the_settings_are_written_alike(peer, client, fresh):
    """As the newest Redisson writes them; the older one writes a small share without an exponent."""
    texts = []
    for name in (f"{fresh}-java", f"{fresh}-python"):
        if name.endswith("java"):
            peer.do("filter", name, "text", "init", 1000, 0.0002)
        else:
            BloomFilter(client, name).try_init(1000, 0.0002)
        config = f"{{{name}}}:config"
        found = client.command("HGETALL", config, key=config)
        texts.append(dict(zip(found[::2], found[1::2], strict=True)))
    share = texts[0].pop(b"falseProbability")
    assert share in {b"2.0E-4", b"0.00020"}
    assert texts[1].pop(b"falseProbability") == b"2.0E-4"
    assert texts[0] == texts[1]


def test_a_filter_made_anew_by_java_is_noticed(peer, client, fresh):
    """Its new size counts from the next call on, for those who knew the old one too."""
    ours = BloomFilter(client, fresh)
    ours.try_init(100, 0.01)
    ours.add("a")
    BloomFilter(client, fresh).delete()
    assert peer.do("filter", fresh, "text", "init", 5000, 0.001) == "true"
    assert not ours.contains("a")
    assert ours.add_all(WORDS)[0]
    assert peer.do("filter", fresh, "text", "contains", *WORDS) == "1" * len(WORDS)
