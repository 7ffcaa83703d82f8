"""What a fit costs on a cluster besides the work: tasks, waits for the cluster, bytes moved, and the busiest worker."""

from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from dask_clusters import dask, dask_distributed, dd, workers_within_this_process
from hard_cases import full

from rapids_slink import distributed, fit
from rapids_slink.distributed import cluster as runs
from rapids_slink.distributed.cluster import Run, hosts_in_turn
from rapids_slink.distributed.points import frame_of_parts, make_blocks, read_points
from rapids_slink.metrics import get_metric
from rapids_slink.settings import Settings

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.filterwarnings("ignore::ResourceWarning")]
PARTITIONS = 16


class Finished(dask_distributed.SchedulerPlugin):
    """Counts the tasks that end, by name and worker."""

    def __init__(self):
        self.tasks = Counter()

    def transition(self, key, start, finish, *args, worker=None, **kwargs):
        if (start, finish) == ("processing", "memory"):
            self.tasks[(key[0] if isinstance(key, tuple) else key).rsplit("-", 1)[0], worker] += 1

    def by_worker(self, name):
        return sorted(count for (task, _), count in self.tasks.items() if task == name)


@pytest.fixture
def on_workers():
    """Starts a cluster of threads; returns a persisted collection of these rows and what counts the tasks."""
    started = []

    def start(n_workers, X):
        with dask.config.set({"distributed.scheduler.work-stealing": False}):  # it depends on how long tasks take
            cluster = workers_within_this_process(n_workers)
        client, finished = dask_distributed.Client(cluster), Finished()
        started.extend([client, cluster])
        cluster.scheduler.add_plugin(finished)
        frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
        parts = dd.from_pandas(frame, npartitions=PARTITIONS, sort=False).persist()
        dask_distributed.wait(parts)
        finished.tasks.clear()
        return parts, finished

    yield start
    for part in started:
        part.close()


@pytest.mark.parametrize("parameters", [{}, full({"min_samples": 5})], ids=str)
@pytest.mark.parametrize("d", [3, full(64)])
def test_one_block(d, parameters, on_workers, monkeypatch):
    """Two workers, sixteen partitions: what each worker reads is a task, and so is the whole fit."""
    X, waits = np.random.default_rng(0).normal(size=(3000, d)).astype("float32"), []
    parts, finished = on_workers(2, X)
    sync = dask_distributed.Client.sync
    with monkeypatch.context() as patch:
        patch.setattr(dask_distributed.Client, "sync", lambda *args, **how: waits.append(1) or sync(*args, **how))
        model = fit(parts, 4, device="cpu", **parameters)
    names = Counter(name for name, _ in finished.tasks if not name.endswith("_"))  # nobody waits for labels_ and frames
    assert names == {"read": 2, "summary": 2, "index": 2, "block-piece": 2} | dict.fromkeys(
        ["plan", "block", "fit", "results"], 1
    )
    assert sum(finished.tasks.values()) <= 12 + 3
    assert len(waits) <= 6
    assert model.report_["cluster"]["bytes_moved"] < X.nbytes + 50_000
    assert "cluster" in model.report_["seconds"]
    np.testing.assert_array_equal(model.labels_.compute(), fit(X, 4, device="cpu", **parameters).labels_)


@pytest.mark.parametrize("workers", [4, full(8)])
def test_six_blocks(workers, on_workers, blocks, watch):
    """Every worker has as much to test as any other, give or take a tree, and gets the blocks of trees from others."""
    made = watch(distributed, "make_blocks", lambda result, *_, **how: result)
    blocks(6)
    X = np.random.default_rng(0).normal(size=(6000, 40)).astype("float32")
    parts, finished = on_workers(workers, X)
    model = fit(parts, 4, n_neighbors=8, device="cpu")
    assert finished.by_worker("own-tree") == ([1, 1, 1, 3] if workers == 4 else [1] * 6)
    assert finished.by_worker("tree") == ([3, 4, 4, 4] if workers == 4 else [1] + 7 * [2])
    assert sum(finished.tasks.values()) <= 3 * workers + 2 * PARTITIONS + 6 + 6 + 15 + 4
    owners = made[0].owners
    got = sum(owners[b] != w for pair, w in runs.pairs_of_workers(owners, workers) for b in pair)
    rows, tree, edges = X.nbytes, len(X) * 24, 24 * len(X) * 6
    assert model.report_["cluster"]["bytes_moved"] < rows + got / 6 * (rows + tree) + edges
    np.testing.assert_array_equal(model.labels_.compute(), fit(X, 4, device="cpu").labels_)


@pytest.mark.parametrize("places", [(0, 0, 1, 1), (1, 0, 0, 1), (1, 1, 0, 0)])
def test_blocks_stay_where_their_rows_are(places, on_workers):
    """If each quarter of the rows is on one worker, that worker keeps the block of this quarter."""
    X = np.random.default_rng(0).normal(size=(4096, 40))
    on_workers(2, X)
    with Run() as run:
        quarters = [
            run.client.submit(pd.DataFrame, X[1024 * q :][:1024], workers=[run.worker(place)], pure=False)
            for q, place in enumerate(places)
        ]
        dask_distributed.wait(quarters)
        parts = frame_of_parts("quarters", quarters, pd.DataFrame(X[:0]), (None,) * 5)
        moved = run.counts()["bytes_moved"]
        points = read_points(run, parts, Settings(get_metric("euclidean"), "cpu"))
        blocks = make_blocks(run, points, 4, n_pairs=6)
        run.wait(blocks.rows)
        assert blocks.owners == list(places)
        assert run.counts()["bytes_moved"] - moved < X.nbytes / 100


def test_a_worker_that_came_after_the_run_began(on_workers):
    """The one block of rows that it holds stays there, although the run does not know it."""
    X = np.random.default_rng(0).normal(size=(4096, 40))
    on_workers(2, X)
    with Run() as run:
        known, late = run.workers
        run.workers = [known]
        rows = run.client.submit(pd.DataFrame, X, workers=[late], pure=False)
        dask_distributed.wait(rows)
        parts = frame_of_parts("rows", [rows], pd.DataFrame(X[:0]), (None,) * 2)
        moved = run.counts()["bytes_moved"]
        blocks = make_blocks(run, read_points(run, parts, Settings(get_metric("euclidean"), "cpu")), 1)
        run.wait(blocks.rows)
        assert run.counts()["bytes_moved"] - moved < X.nbytes / 100


def test_hosts_in_turn():
    workers = [f"tcp://10.0.0.{host}:{port}" for host in (1, 2) for port in (1, 2)] + ["tcp://10.0.0.3:1"]
    hosts = [worker.split(":")[1][-1] for worker in hosts_in_turn(workers)]
    assert hosts == ["1", "2", "3", "1", "2"]


@pytest.mark.parametrize("parameters", [{"min_samples": 4}, full({})], ids=str)
def test_through_the_host(parameters, on_workers, blocks, monkeypatch):
    """As GPUs do without UCX: the pieces and blocks that go to another worker are copied once, and no others."""
    blocks(4)
    monkeypatch.setattr(Run, "copies_through_host", lambda run, settings: True)
    X = np.random.default_rng(0).normal(size=(1000, 40)).astype("float32")
    parts, finished = on_workers(2, X)
    model = fit(parts, 4, device="cpu", **parameters)
    assert sum(finished.by_worker("send")) == 3
    np.testing.assert_array_equal(model.labels_.compute(), fit(X, 4, device="cpu", **parameters).labels_)


def test_who_copies_through_the_host():
    gpu, cpu = (Settings(get_metric("euclidean"), device) for device in ("cuda", "cpu"))
    for scheme, expected in (("tcp", True), ("tls", True), ("ucx", False), ("ucxx", False), ("inproc", False)):
        run = SimpleNamespace(workers=[f"{scheme}://127.0.0.1:1"])
        assert Run.copies_through_host(run, gpu) is expected
        assert not Run.copies_through_host(run, cpu)


@pytest.mark.parametrize(
    ("blocks", "workers", "most_got"), [(2, 2, 1), (2, 4, 1), (4, 2, 2), (6, 4, 3), (6, 8, 3), (10, 16, 6)]
)
def test_pairs_of_workers(blocks, workers, most_got):
    n_pairs = blocks * (blocks - 1) // 2
    owners = runs.owners_of_blocks([{}] * blocks, workers, n_pairs)
    order = runs.pairs_of_workers(owners, workers)
    assert sorted(pair for pair, _ in order) == list(combinations(range(blocks), 2))
    load = Counter(owners)
    load.update([w for _, w in order] * 2)
    assert max(load.values()) - min(load.values()) <= (0 if workers < blocks else 3)
    assert max(load.values()) == pytest.approx(runs.expected_time(blocks, workers) * blocks**2)
    first = dict(reversed([(w, pair) for pair, w in order]))
    for w, pair in first.items():  # nobody waits for more than a block in front of its first tree, if it has one
        assert sum(owners[b] != w for b in pair) <= (1 if w in owners else 2)
    got = {(w, b) for pair, w in order for b in pair if owners[b] != w}
    assert max(Counter(w for w, _ in got).values()) <= most_got
