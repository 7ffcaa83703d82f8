"""Which worker does what: how many blocks there are, who keeps them, and who makes the tree of each pair of blocks.

Work is counted in tests of pairs of rows. A block's lists test half of its pairs of rows, and the tree of two blocks
tests all pairs between them.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import sqrt

#: The largest number of blocks: they have 496 pairs.
MAX_BLOCKS = 32
#: Of all block counts within this factor of the shortest expected time the smallest is used, since more blocks are sent
#: more often.
NEAR_LEAST = 1.1
#: By device: a block of m rows of d features takes less time than its tasks if m²d is below this.
MIN_BLOCK_WORK = {"cpu": 2**28, "cuda": 2**45}
#: On a GPU: seconds of a test of a pair of rows, for each feature. CPUs test 1,000 times as long.
TEST_SECONDS = 4e-15


def wanted_blocks(n: int, d: int, workers: int, device: str, seconds_moved: float = 0.0) -> int:
    """The smallest number of blocks that takes little longer than the best number, for n rows of d features.

    The workers are GPUs or, of CPUs, hosts. A row takes `seconds_moved` to get to another worker, while others get
    rows, too.
    """
    max_blocks = min(MAX_BLOCKS, int(n * sqrt(d / MIN_BLOCK_WORK[device])))
    tests, counts = n * d / 2 * TEST_SECONDS, range(1, max_blocks + 1)
    times = {count: expected_time(count, workers) * tests for count in counts}
    if seconds_moved:
        times = {count: time + share_moved(count, workers) * seconds_moved for count, time in times.items()}
    return next((count for count in times if times[count] <= NEAR_LEAST * min(times.values())), 1)


def expected_time(blocks: int, workers: int) -> float:
    """The time of the lists and the pairs' trees, as a share of the time of one worker with all rows."""
    n_pairs = blocks * (blocks - 1) // 2
    kept, pairs = blocks_of_workers(blocks, workers, n_pairs), pairs_of_each(n_pairs, workers)
    return max(k + 2 * p for k, p in zip(kept, pairs, strict=True)) / blocks**2


def share_moved(blocks: int, workers: int) -> float:
    """The share of the rows that the busiest worker gets from others for its pairs of blocks."""
    owners = owners_of_blocks([{}] * blocks, workers, blocks * (blocks - 1) // 2)
    got = {(w, b) for pair, w in pairs_of_workers(owners, workers) for b in pair if owners[b] != w}
    return max(Counter(w for w, _ in got).values(), default=0) / blocks


def blocks_of_workers(blocks: int, workers: int, n_pairs: int) -> list[int]:
    """How many blocks each worker may keep, whose lists it makes: one, and more where there are fewer pairs to do."""
    kept, pairs = [1] * workers, pairs_of_each(n_pairs, workers)
    for _ in range(workers, blocks):
        kept[min(range(workers), key=lambda w: kept[w] + 2 * pairs[w])] += 1
    return kept


def pairs_of_each(n_pairs: int, workers: int) -> list[int]:
    """How many pairs each worker does."""
    return [len(range(w, n_pairs, workers)) for w in range(workers)]


def owners_of_blocks(held: Sequence[dict[int, int]], workers: int, n_pairs: int) -> list[int]:
    """The number of the worker that keeps each block: the one that holds most of its rows, or the next that has room.

    `held` are, for each block, the numbers of its rows that workers hold.
    """
    blocks, owners = len(held), dict[int, int]()
    room = blocks_of_workers(blocks, workers, n_pairs)
    for _, w, b in sorted((-held[b].get(w, 0), w, b) for b in range(blocks) for w in range(workers)):
        if b not in owners and room[w]:
            owners[b] = w
            room[w] -= 1
    return [owners[b] for b in range(blocks)]


def pairs_of_workers(
    owners: Sequence[int], workers: int, pairs: Sequence[tuple[int, ...]] | None = None
) -> list[tuple[tuple[int, ...], int]]:
    """The pairs of blocks (None: all) and the number of the worker of each, in the order in which they are done.

    The workers take pairs in turn, those first that keep a block. Each takes one of whose blocks it has most; at first
    it has those that it keeps.
    """
    pairs, order = list(combinations(range(len(owners)), 2) if pairs is None else pairs), []
    held = [{b for b, owner in enumerate(owners) if owner == w} for w in range(workers)]
    turns = sorted(range(workers), key=lambda w: not held[w])
    for i in range(len(pairs)):
        w = turns[i % workers]
        pair = min(pairs, key=lambda pair: (len({*pair} - held[w]), pair))
        pairs.remove(pair)
        held[w] |= {*pair}
        order.append((pair, w))
    return order
