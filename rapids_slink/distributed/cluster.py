"""A call on a Dask cluster: its tasks and futures, what a task does around its work, and which worker does it.

    with Run() as run:
        trees = [run.task("tree", pair_tree, settings, a, b, index=(i, j)) for ...]
        run.wait(trees)

Scheduling, transfers, retries and spilling are Dask's. Tasks are pure, so Dask may repeat one when its worker dies.

The number of blocks, the worker that keeps each block and the worker that makes the tree of each pair of blocks are
chosen by counted work, in tests of pairs of rows. With b rows in each of two blocks, the lists of a block test b²/2
pairs, and the tree of both tests the b² pairs between them.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from itertools import combinations, zip_longest
from math import sqrt
from time import perf_counter
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4
from weakref import WeakSet

from distributed import Client, Future, KilledWorker, as_completed, default_client, get_worker

from rapids_slink.points.output import library_of, on_device
from rapids_slink.runtime.device import Device, device_of, is_on_gpu, resolve
from rapids_slink.runtime.memory import as_bytes, copy_out, free_on, run_scope, usual_errors
from rapids_slink.runtime.threads import Progress, with_progress
from rapids_slink.settings import Settings

#: The share of a worker's memory that its tasks may take by default; the rest is for what it keeps.
TASK_SHARE = 1 / 2
NO_CLIENT = """a Dask collection needs a Dask cluster, and this process has no client of one. Two lines start it:

    from distributed import Client, LocalCluster   # on GPUs: from dask_cuda import LocalCUDACluster
    client = Client(LocalCluster())                #          client = Client(LocalCUDACluster())
"""


def with_bytes(settings: Settings) -> Settings:
    """Return the settings with a memory limit in bytes; all tasks that a worker does at the same time share it."""
    return replace(settings, memory_limit=as_bytes(settings.memory_limit))


class Run:
    """One call's tasks and futures on the cluster of the current client; an error or Ctrl-C cancels all of them."""

    def __init__(self) -> None:
        self.start = perf_counter()
        try:
            self.client: Client = default_client()
        except ValueError as error:
            raise RuntimeError(NO_CLIENT) from error
        self.token = uuid4().hex[:12]  # no other call's tasks have these names
        self.futures: WeakSet[Future] = WeakSet()
        self.sent_before = self._bytes_sent()
        self.workers = hosts_in_turn(sorted(self.sent_before))

    def __enter__(self) -> Self:
        self._errors = usual_errors()
        self._errors.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._errors.__exit__(kind, error, traceback)
        if error is None:
            return
        with suppress(Exception):  # the cluster may be gone
            for future in list(self.futures):
                future.release()  # a traceback would keep them
        if isinstance(error, KilledWorker):
            error.add_note("Workers mostly die for lack of memory: give them more, or set a smaller memory_limit.")

    def task(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        index: tuple[int | str, ...] = (),
        worker: str | None = None,
    ) -> Future:
        """Submit a call to a worker and return its future; the arguments may be futures, alone or in lists.

        The dashboard shows `name`. `worker` is the address of a preferred worker; the scheduler may use an idle worker
        instead.
        """
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        future = self.client.submit(function, *args, key=(f"{name}-{self.token}", *index), pure=False, **where)
        self.futures.add(future)
        return future

    def partitions(self, parts: Sequence[Any]) -> tuple[list[Future], list[tuple[list[int], str | None]]]:
        """Return a collection's partitions as futures, and which are read together: those that one worker holds."""
        if not all(isinstance(part, Future) for part in parts):
            futures: list[Future] = self.client.compute(list(parts))
            self.futures.update(futures)
            return futures, [([p], None) for p in range(len(futures))]
        holders, together = self.client.who_has(list(parts)), defaultdict[Any, list[int]](list)
        for p, part in enumerate(parts):
            together[min(holders.get(part.key) or [p], key=str)].append(p)
        return list(parts), [(group, key if isinstance(key, str) else None) for key, group in together.items()]

    def wait(self, futures: Sequence[Future], progress: Progress | None = None) -> None:
        """Wait for futures, with a progress bar if one is given; raise the first error."""
        for future in with_progress(as_completed(futures), len(futures), progress):
            if future.status != "finished":
                future.result()

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Return the results of these tasks, in this process."""
        self.wait(futures)
        return self.client.gather(list(futures))

    def copies_through_host(self, settings: Settings) -> bool:
        """Return whether workers send GPU arrays by TCP, not from GPU to GPU by UCX or within a process."""
        return settings.device == "cuda" and not any(worker.startswith(("ucx", "inproc")) for worker in self.workers)

    def worker(self, i: int) -> str | None:
        """Return the address of the worker of this number; None while there is none."""
        return self.workers[i] if self.workers else None

    def devices(self, gpu: bool) -> int:
        """Return the number of the cluster's GPUs, or of its hosts on CPUs: a task uses a whole one."""
        return max(1, len(self.workers) if gpu else len({urlsplit(worker).hostname for worker in self.workers}))

    def counts(self) -> dict[str, int]:
        """Return counts for a report: the workers, and the bytes that they sent to one another since the call began."""
        before, now = self.sent_before, self._bytes_sent()
        return {"workers": len(now), "bytes_moved": sum(now[worker] - before.get(worker, 0) for worker in now)}

    def _bytes_sent(self) -> dict[str, int]:
        sent = self.client.run(_bytes_sent, on_error="ignore")
        return {worker: int(count) for worker, count in sent.items()}


def hosts_in_turn(workers: Sequence[str]) -> list[str]:
    """Return the addresses in an order in which the first of each host comes before the second of any host."""
    by_host = defaultdict[Any, list[str]](list)
    for worker in workers:
        by_host[urlsplit(worker).hostname].append(worker)
    return [worker for turn in zip_longest(*by_host.values()) for worker in turn if worker]


def _bytes_sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a task of ``function(device, settings, *args)`` whose arrays and frames are on the device.

    The task resolves the device, and its results are on the device, too. Its memory is limited to its share of the
    worker's.
    """

    @wraps(function)
    def task(settings: Settings, *args: Any) -> Any:
        device = resolve(settings.device)
        return work(function, device, settings, *_each(args, device, _to_device))

    return task


def work(function: Callable[..., Any], device: Device, settings: Settings, *args: Any) -> Any:
    """Return ``function(device, settings, *args)``, called in a run: all memory except the result is given back."""
    with run_scope(device, memory_of_task(settings, device)):
        result = _each(function(device, settings, *args), device, _copy_out)
        device.synchronize()
    return result


def memory_of_task(settings: Settings, device: Device) -> int | None:
    """Return the bytes that each of this worker's simultaneous tasks may take; None if there is no limit."""
    worker, limit = get_worker(), settings.memory_limit
    if limit is None and not device.is_gpu and worker.memory_manager.memory_limit:
        limit = int(worker.memory_manager.memory_limit * TASK_SHARE)
    return None if limit is None else max(1, limit // worker.state.nthreads)


def free_for_task(settings: Settings, device: Device) -> float | None:
    """Return the bytes that are free for a task, as far as this worker can tell; None if it cannot."""
    sizes = [size for size in (free_on(device), memory_of_task(settings, device)) if size is not None]
    return min(sizes) if sizes else None


def concatenate(parts: Sequence[Any], device: Device) -> Any:
    """Return the rows of several arrays in one."""
    return parts[0] if len(parts) == 1 else device.xp.concatenate(parts)


def one_frame(frames: Sequence[Any]) -> Any:
    """Return the rows of several frames in one, numbered from 0."""
    return frames[0] if len(frames) == 1 else device_of(frames[0]).frames.concat(frames, ignore_index=True)


def _each(value: Any, device: Device, change: Callable[[Device, Any], Any]) -> Any:
    """Return a value with each array and frame in it changed, at any depth."""
    if type(value) in (list, tuple):
        return type(value)(_each(part, device, change) for part in value)
    if type(value) is dict:
        return {name: _each(part, device, change) for name, part in value.items()}
    return change(device, value) if getattr(value, "ndim", 0) else value


def _to_device(device: Device, value: Any) -> Any:
    """Return an array or frame on the device.

    Arrays from other workers are read-only. They are copied, because Numba would compile its functions once more for
    them.
    """
    if library_of(value):
        return on_device(value, device)
    array = device.asarray(value)
    return array if device.is_gpu or array.flags.writeable else array.copy()


def _copy_out(device: Device, value: Any) -> Any:
    return value if library_of(value) or not is_on_gpu(value) else copy_out(device, value)


#: The largest number of blocks: they have 496 pairs.
MAX_BLOCKS = 32
#: The smallest number of blocks is used whose expected time is within this factor of the shortest, because more blocks
#: are sent more often.
NEAR_LEAST = 1.1
#: By device: a block of m rows of d features takes less time than its tasks if m²d is below this.
MIN_BLOCK_WORK = {"cpu": 2**28, "cuda": 2**45}


def wanted_blocks(n: int, d: int, workers: int, device: str) -> int:
    """Return the smallest number of blocks of n rows, d features, that takes little longer than the best number.

    `workers` is the number of GPUs, or of hosts if CPUs compute.
    """
    max_blocks = min(MAX_BLOCKS, int(n * sqrt(d / MIN_BLOCK_WORK[device])))
    times = {count: expected_time(count, workers) for count in range(1, max_blocks + 1)}
    return next((count for count in times if times[count] <= NEAR_LEAST * min(times.values())), 1)


def expected_time(blocks: int, workers: int) -> float:
    """Return the time of the lists and of the pairs' trees, as a share of one worker's time for all rows."""
    n_pairs = blocks * (blocks - 1) // 2
    kept, pairs = blocks_of_workers(blocks, workers, n_pairs), pairs_of_each(n_pairs, workers)
    return max(k + 2 * p for k, p in zip(kept, pairs, strict=True)) / blocks**2


def blocks_of_workers(blocks: int, workers: int, n_pairs: int) -> list[int]:
    """Return how many blocks each worker keeps and makes lists of: one, and more if it has fewer pairs to do."""
    kept, pairs = [1] * workers, pairs_of_each(n_pairs, workers)
    for _ in range(workers, blocks):
        kept[min(range(workers), key=lambda w: kept[w] + 2 * pairs[w])] += 1
    return kept


def pairs_of_each(n_pairs: int, workers: int) -> list[int]:
    """Return how many pairs each worker does."""
    return [len(range(w, n_pairs, workers)) for w in range(workers)]


def owners_of_blocks(held: Sequence[dict[int, int]], workers: int, n_pairs: int) -> list[int]:
    """Return which worker keeps each block: the one that holds most of its rows, or the next that has room.

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
    """Return the pairs of blocks, each with the number of its worker, in the order in which they are done.

    `pairs` is None for all pairs. The workers take pairs in turn; those that keep a block begin. Each takes the pair of
    which it has the most blocks. At first a worker has the blocks that it keeps, and later also those of its pairs.
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
