"""What is remembered of texts: the longest common beginning, by replica, within its bounds."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core import prefix, sessions
from gateway.core.prefix import Prefixes


def body(*texts: str, **fields: object) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.text("ab", max_size=3), st.integers(0, 3)), max_size=12), st.text("ab"))
def test_the_longest_beginning_is_found_for_each(sent: list[tuple[int, str, int]], asked: str) -> None:
    """Against a plain list of what each was sent, in letters of 200 bytes."""

    def raw(letters: str) -> bytes:
        return b'"messages"' + b"".join(letter.encode() * 200 for letter in letters)

    tree = Prefixes()
    bits = [tree.bit(str(i)) for i in range(4)]
    for replica, letters, _ in sent:
        tree.add(prefix.read(raw(letters), "m"), bits[replica])
    text = prefix.read(raw(asked), "m")
    ends = [end for end in prefix._ENDS if end <= text.size]
    for i, found in enumerate(tree.match(text, bits)):
        common = [_common(raw(asked), raw(letters)) for replica, letters, _ in sent if replica == i]
        assert found == max((end for end in ends if end <= max(common, default=0)), default=0)


def _common(a: bytes, b: bytes) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length


def test_the_whole_conversation_counts_not_the_first_message() -> None:
    tree = Prefixes()
    one, two = tree.bit("1"), tree.bit("2")
    system = "You are a helper. " * 50
    tree.add(prefix.read(body(system, "red " * 400), "m"), one)
    tree.add(prefix.read(body(system, "blue " * 400), "m"), two)
    found = tree.match(prefix.read(body(system, "blue " * 400, "go on"), "m"), [one, two])
    assert found[1] > found[0] + 1000
    assert found[0] > 500


def test_other_tools_and_other_models_are_other_texts() -> None:
    tree = Prefixes()
    bit = tree.bit("1")
    tree.add(prefix.read(body("x" * 2000, tools=[{"name": "a"}]), "m"), bit)
    assert tree.match(prefix.read(body("x" * 2000, tools=[{"name": "a"}]), "m"), [bit])[0] > 1500
    assert tree.match(prefix.read(body("x" * 2000, tools=[{"name": "b"}]), "m"), [bit]) == [0]
    assert tree.match(prefix.read(body("x" * 2000, tools=[{"name": "a"}]), "n"), [bit]) == [0]


def test_tools_are_found_wherever_they_lie() -> None:
    for size in (100, *range(16_300, 16_390), *range(32_690, 32_710), 200_000):
        for text in ("x" * size, '"' * (size // 2)):
            a, b = (prefix.read(body(text, tools=[{"name": name}]), "m") for name in "ab")
            assert len(a.names) > 0
            assert set(a.names).isdisjoint(b.names)


def test_tools_before_the_messages() -> None:
    tree = Prefixes()
    bit = tree.bit("1")

    def first(*texts: str) -> prefix.Text:
        messages = [{"role": "user", "content": text} for text in texts]
        return prefix.read(json.dumps({"tools": [{"name": "a"}], "model": "m", "messages": messages}).encode(), "m")

    tree.add(first("x" * 300), bit)
    assert tree.match(first("x" * 300, "more"), [bit])[0] >= 256


def test_memory_is_bounded_and_the_used_stays() -> None:
    tree = Prefixes(most=500)
    bit = tree.bit("1")
    kept = prefix.read(body("kept " * 500), "m")
    for i in range(400):
        tree.add(prefix.read(body(f"{i} " * 900), "m"), bit)
        tree.add(kept, bit)
        assert len(tree) <= 500
    assert tree.match(kept, [bit])[0] > 2000
    assert tree.match(prefix.read(body("0 " * 900), "m"), [bit]) == [0]
    big = prefix.read(body("x" * 12_000_000), "m")
    assert len(big.names) < 60
    assert big.size == prefix.MOST_BYTES


def test_a_replica_that_is_gone_is_forgotten() -> None:
    tree = Prefixes()
    text = prefix.read(body("x" * 2000), "m")
    tree.add(text, tree.bit("1"))
    tree.forget("1")
    assert tree.match(text, [tree.bit("1")]) == [0]
    for i in range(2000):
        tree.bit(str(i))
        tree.forget(str(i))
    assert tree.bit("z") < 1 << 257


def test_sessions_spread_by_weight_and_only_the_lost_move() -> None:
    names = {name: sessions.seed(name) for name in ("r-1", "r-2", "r-3")}

    def home(session: str, weights: dict[str, float]) -> str:
        number = sessions.seed(session)
        return max(weights, key=lambda name: sessions.draw(number, names[name], weights[name]))

    even = dict.fromkeys(names, 1.0)
    homes = {f"s{i}": home(f"s{i}", even) for i in range(3000)}
    for name in names:
        assert 900 < list(homes.values()).count(name) < 1100
    without = {name: 1.0 for name in names if name != "r-2"}
    for session, before in homes.items():
        assert before == "r-2" or home(session, without) == before
    heavy = [home(f"s{i}", {"r-1": 2.0, "r-2": 1.0, "r-3": 1.0}) for i in range(3000)]
    assert 1400 < heavy.count("r-1") < 1600
