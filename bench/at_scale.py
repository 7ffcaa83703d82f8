"""``python -m bench.at_scale``: what 10⁸ and 10⁹ rows would take on 8 and 64 GPUs, by simulation.

A CPU's search in tiles finds lists for some blocks of rows. It has the same tiles as a GPU's search, and it counts the
pairs of tiles that the lists need. Their share of all pairs falls with a power of the number of rows, by which it is
extrapolated. Two times are predicted. One follows from this share, `PAIR_SECONDS` and `ROW_SECONDS`: each block meets
only those tiles of other blocks that its rows may need. The other counts the pairs of rows that are tested if blocks
hold rows in any order. The package works in the second way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.cases import Rows, cells, topics
from rapids_slink.neighbors import DEFAULT_NEIGHBORS
from rapids_slink.neighbors.task import SearchTask
from rapids_slink.neighbors.tiles import TileSearch
from rapids_slink.neighbors.tiles.order import BLOCK, TILE
from rapids_slink.report import Report
from rapids_slink.runtime.device import CPU
from rapids_slink.runtime.memory import run_scope

FEATURES, PADDED = 50, 64  # features of a row, and of its padded form in products
#: Numbers of simulated rows, and the number of their blocks that search.
SIZES, BLOCKS = (2**17, 2**19, 2**21), 128
#: Rows and GPUs that are predicted.
LARGE, GPUS = (10**8, 10**9), (8, 64)
#: Seconds of one H200 for a pair of tiles, and for a row with its order, boxes and exact distances. `cells-1m-50` takes
#: 30 ms for 3.5 million pairs, some 50 ms for the rest, and 18 ms to connect its clusters, which are not counted here.
PAIR_SECONDS, ROW_SECONDS = 8.6e-9, 5e-8


def main() -> None:
    """Print the shares and the times as Markdown tables."""
    shares = {}
    print_row("share of pairs of tiles", [f"{n:,}" for n in (*SIZES, *LARGE)], is_head=True)
    for kind in (cells, topics):
        counted = {n: share_of_tiles(kind, n, FEATURES, BLOCKS) for n in SIZES}
        shares[kind.__name__] = expected = extrapolated(counted, LARGE)
        print_row(kind.__name__, [f"{share:.3f}" for share in (*counted.values(), *expected)])
    runs = [(n, gpus) for n in LARGE for gpus in GPUS]
    print()
    print_row("seconds", [f"{n:,} on {gpus} GPUs" for n, gpus in runs], is_head=True)
    print_row("all pairs", [f"{all_pairs(n, gpus):,.0f}" for n, gpus in runs])
    for name, expected in shares.items():
        of_one = dict(zip(LARGE, map(tiles, LARGE, expected), strict=True))
        print_row(name, [f"{of_one[n] / gpus:,.0f}" for n, gpus in runs])


def print_row(name: str, values: list[str], is_head: bool = False) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join([name, *values]) + " |", flush=True)
    if is_head:
        print("|---" * (1 + len(values)) + "|")


def share_of_tiles(kind: Callable[[int, int], Rows], n: int, d: int, blocks: int) -> float:
    """Return the share of pairs of tiles whose products the lists of n points need.

    It is measured with about `blocks` blocks of rows.
    """
    report, everyone = Report(), np.arange(n, dtype=np.int32)
    with run_scope(CPU, None):
        search = TileSearch(kind(n, d)(None, 0), CPU, report)
        in_blocks = search.slots.rows.reshape(-1, BLOCK)
        rows = in_blocks[:: max(1, len(in_blocks) // blocks)].ravel()
        search.find(SearchTask(np.sort(rows[rows >= 0]), DEFAULT_NEIGHBORS, everyone, everyone))
    counts = report["neighbors"]
    return float(counts["tile_pairs_formed"] / counts["tile_pairs"])


def extrapolated(shares: dict[int, float], sizes: tuple[int, ...]) -> list[float]:
    """Return the shares for other numbers of rows, by the power of the number that fits the known shares best."""
    power, constant = np.polyfit(np.log(list(shares)), np.log(list(shares.values())), 1)
    return [float(np.exp(constant + power * np.log(n))) for n in sizes]


def all_pairs(n: int, gpus: int) -> float:
    """Return the seconds for tests of all pairs of n rows, in as many blocks as a run on `gpus` GPUs makes."""
    from rapids_slink.distributed.cluster import TEST_SECONDS, expected_time, wanted_blocks

    blocks = wanted_blocks(n, FEATURES, gpus, "cuda")
    return n * n / 2 * PADDED * TEST_SECONDS * expected_time(blocks, gpus)


def tiles(n: int, share: float) -> float:
    """Return the seconds that one GPU takes for n rows in tiles, if this share of the pairs of tiles is formed."""
    return n / BLOCK * (n / TILE) * share * PAIR_SECONDS + n * ROW_SECONDS


if __name__ == "__main__":
    main()
