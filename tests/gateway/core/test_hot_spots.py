"""Eight ways in which routers that know of caches made one replica hot, replayed against ours."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from bench.routing import workload
from bench.routing.simulator import Job, Machine, Row, World, cached_share, mean_ttft
from gateway.core import router

FOUR = [Machine() for _ in range(4)]


def jobs(each_s: float = 0.1, **fields: int) -> list[Job]:
    return [Job(t.at, t.body("m"), t.answer_tokens) for t in workload.turns(each_s=each_s, **fields)]


def text(*words: str) -> bytes:
    return b'{"messages":[{"content":"' + " ".join(words).encode() + b'"}]}'


def shares(rows: list[Row]) -> Counter[int | None]:
    return Counter(row.replica for row in rows)


def test_the_workload_is_frozen() -> None:
    """Figures that were written down belong to it."""
    found = hashlib.sha256()
    for turn in workload.turns():
        found.update(repr((round(turn.at, 6), turn.session)).encode() + turn.body("m"))
    assert found.hexdigest() == "b5906c3373864d9acb6f3c3e72bb0677055b8eb992b16106d2376fd4385d9733"


def test_counters_are_reset_by_nothing() -> None:
    """Health checks and snapshots put the counts back to nothing while requests ran."""

    def disturb(world: World) -> None:
        for replica in world.replicas:
            replica.load.update(replica.load.endpoint)

    def watch(world: World) -> None:
        for replica in world.replicas:
            assert replica.load.in_flight == replica.running + len(replica.queue)
            assert replica.load.unread >= 0

    world = World(FOUR, at=[(i / 10, disturb) for i in range(100)], watch=watch)
    rows = world.run(jobs(0.03))
    assert all(r.load.in_flight == 0 and r.load.unread == 0 for r in world.replicas)
    assert max(shares(rows).values()) < 2 * len(rows) / 4


def test_a_dead_replica_does_not_end_affinity() -> None:
    """With one worker unhealthy the whole router fell back to another mode."""

    def die(world: World) -> None:
        world.replicas[0].down = True

    whole = World(FOUR).run(jobs())
    rows = World(FOUR, at=[(3.0, die)]).run(jobs())
    assert None not in shares(rows)
    after = [row for row in rows if row.job.at > 5]
    assert not shares(after)[0]
    assert sum(row.code in ("cached", "session") for row in after) > 0.6 * len(after)
    assert cached_share(rows) > 0.85 * cached_share(whole)


def test_misses_go_to_the_least_busy() -> None:
    """What matched nowhere went to the worker with the most in its tree, which was the busiest."""
    known = [Job(0.3 * i, text("known", "words " * 200, str(i)), 300) for i in range(4)]
    unknown = [Job(1.5 + 0.2 * i, text(str(i) * 900), 20) for i in range(30)]
    rows = World(FOUR).run([*known, *unknown])
    hot = shares([r for r in rows if r.job in known]).most_common(1)[0]
    assert hot[1] >= 2, "the trace needs a busy replica that has read much"
    assert shares([r for r in rows if r.job in unknown])[hot[0]] <= 30 / 4


def test_load_is_counted_at_the_choice() -> None:
    """Requests that came together all saw the same idle worker."""
    for policy in (router.PREDICTED, router.LEAST_LOAD, router.PREFIX):
        rows = World(FOUR, policy).run([Job(0.0, text(str(i) * 700)) for i in range(40)])
        assert max(shares(rows).values()) <= 12, policy
        one_text = World(FOUR, policy).run([Job(0.0, text("same " * 300, str(i))) for i in range(80)])
        assert max(shares(one_text).values()) <= 30, policy


def test_affinity_stays_under_load() -> None:
    """Above a threshold of imbalance the router forgot caches, and everything was read again everywhere."""
    crowd = jobs(0.02, groups=12)
    ours, blind = World(FOUR).run(crowd), World(FOUR, router.LEAST_LOAD).run(crowd)
    assert cached_share(ours) > cached_share(blind) + 0.1
    assert mean_ttft(ours) < 0.7 * mean_ttft(blind)
    assert max(shares(ours).values()) < 2 * len(ours) / 4


def test_the_whole_conversation_is_the_prefix() -> None:
    """Only the first message was looked at: every conversation of one system prompt went to one worker."""
    said = jobs(0.025, groups=1, sessions=24)
    rows = World(FOUR).run(said)
    assert max(shares(rows).values()) <= 0.45 * len(rows)
    assert cached_share(rows) > 0.65


def test_a_full_cache_is_seen() -> None:
    """Few requests with long contexts fill a KV cache; by their number the worker looked idle."""

    def fill(world: World) -> None:
        world.replicas[2].kv_usage = 0.995

    rows = World(FOUR, at=[(0.1, fill)]).run([Job(1 + 0.05 * i, text(str(i) * 700)) for i in range(60)])
    assert shares(rows)[2] <= 4


@pytest.mark.parametrize("each_s", [0.05, 0.2])
def test_prediction_beats_the_others(each_s: float) -> None:
    crowd = jobs(each_s, groups=10)
    machines = [Machine(cache_blocks=400) for _ in range(4)]
    rows = {policy: World(machines, policy).run(crowd) for policy in router.SCORERS}
    ours = rows.pop(router.PREDICTED)
    assert all(len(found) == len(ours) for found in rows.values())
    for policy in (router.ROUND_ROBIN, router.LEAST_LOAD):
        assert mean_ttft(ours) <= 0.8 * mean_ttft(rows[policy]), policy
        assert cached_share(ours) > cached_share(rows[policy]), policy
    assert mean_ttft(ours) <= 1.05 * mean_ttft(rows[router.PREFIX])


@pytest.mark.parametrize("policy", [router.PREDICTED, router.PREFIX])
@pytest.mark.parametrize("opening", [0, 100, 300])
def test_few_words_that_are_known_gather_nobody(policy: str, opening: int) -> None:
    """Short questions, and long ones that began alike, all went to one worker until its places were full."""
    short = [Job(0.15 * i, text("hello", "x" * opening)) for i in range(40)]
    assert set(shares(World(FOUR, policy).run(short)).values()) == {10}
    long = [Job(0.15 * i, text("x" * opening, f"{i:04}" * 400)) for i in range(40)]
    assert max(shares(World(FOUR, policy).run(long)).values()) <= 12


def test_few_words_count_where_they_take_long() -> None:
    """A second for 400 bytes is worth a way."""
    slow = [Machine(bytes_per_s=400) for _ in range(4)]
    first = [Job(30.0 * i, text(str(i) * 1200)) for i in range(8)]
    rows = World(slow).run([*first, *(Job(300.0 + 2 * i, text("hello", "x" * 400)) for i in range(20))])
    assert cached_share(rows[8:]) > 0.7
