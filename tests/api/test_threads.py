"""Runs at the same time, on streams of their own, and interrupted: each is right, and leaves nothing behind."""

import gc
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import threadpoolctl
from calls import Failing, points, spread, stray_threads
from hard_cases import full
from repository import python
from spanning_trees import bits

from rapids_slink import DeviceMemoryError, SingleLinkage, cut, fit, ordering
from rapids_slink.dendrogram import cutting
from rapids_slink.neighbors import brute_force
from rapids_slink.report import Report
from rapids_slink.runtime import memory
from rapids_slink.runtime.device import CPU, Device
from rapids_slink.runtime.threads import _let_any_thread_limit_blas, chunks_for_cores, for_each_chunk
from rapids_slink.spanning_tree import lists

INPUTS = [points(3000, 12), points(4000, 3), points(2500, 40), np.repeat(points(500, 9), 5, axis=0)]


def run_at_once(work, count=2):
    """`work` of 0, 1, ... in a thread each, all begun together."""
    barrier = threading.Barrier(count, timeout=60)

    def begin(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def test_fits_at_the_same_time_give_the_same_bits(device):
    expected = [bits(fit(X, 5, n_neighbors=2, device=device)) for X in INPUTS]
    for _ in range(3):
        found = run_at_once(lambda i: bits(fit(INPUTS[i], 5, n_neighbors=2, device=device)), len(INPUTS))
        assert found == expected


def test_limits_of_fits_at_the_same_time_are_their_own(device):
    def work(i):
        if i == 0:
            with pytest.raises(DeviceMemoryError, match="memory_limit=1000 is too small"):
                fit(INPUTS[0], 5, device=device, memory_limit=1000)
            return None
        return bits(fit(INPUTS[i], 5, device=device, memory_limit="4GiB"))

    for _ in range(3):
        assert run_at_once(work, 3)[1:] == [bits(fit(X, 5, device=device)) for X in INPUTS[1:3]]


@pytest.fixture
def _two_blas_threads():
    """Of one that all tests have, as in one of several processes of pytest, none would be seen to be lost."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        _let_any_thread_limit_blas()
        yield
    _let_any_thread_limit_blas()


@pytest.mark.usefixtures("_two_blas_threads")
@pytest.mark.parametrize("leaves_first", ["first", "second"])
def test_blas_gets_its_threads_back(leaves_first):
    """After two runs that overlap, whichever ends first, and one of this thread before them."""

    def threads():
        return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    assert before == [2] * len(before)
    for_each_chunk(CPU, str, [0, 1])

    def start():
        """A run whose chunks wait to be released."""
        entered, leave = threading.Event(), threading.Event()

        def slow(_):
            entered.set()
            leave.wait(60)

        run = threading.Thread(target=for_each_chunk, args=(CPU, slow, [0, 1]))
        run.start()
        assert entered.wait(60)
        return run, leave

    runs = [start(), start()]
    for run, leave in runs if leaves_first == "first" else runs[::-1]:
        assert threads() == [1] * len(before)
        leave.set()
        run.join()
    assert threads() == before


AFTER_A_FORK = """
import os, signal
import numpy as np, rapids_slink
from rapids_slink.runtime import threads
X = np.random.default_rng(0).normal(size=(9000, 2))
threads.usable_cores = lambda: 2
before = rapids_slink.fit(X, device="cpu").distances_
helpers = threads._kept.helpers
assert np.array_equal(rapids_slink.fit(X, device="cpu").distances_, before)
assert threads._kept.helpers is helpers is not None
if not os.fork():
    signal.alarm(60)
    os._exit(0 if np.array_equal(rapids_slink.fit(X, device="cpu").distances_, before) else 1)
print(os.wait()[1])
"""


def test_chunks_within_a_chunk_are_done_by_its_thread(prescribe):
    """The helpers' end of the outer chunks is not taken for that of the inner ones."""
    prescribe(cores=2)
    barrier = threading.Barrier(2, timeout=60)

    def inner(_):
        time.sleep(0.02)
        return threading.get_ident()

    def outer(chunk):
        barrier.wait()  # each of two threads has one of the first two chunks
        return threading.get_ident(), for_each_chunk(CPU, inner, range(3)) if chunk == 0 else []

    for own, threads in for_each_chunk(CPU, outer, range(2)):
        assert set(threads) <= {own}


def test_threads_are_kept_from_run_to_run_and_not_beyond_a_fork():
    assert python(AFTER_A_FORK, PYTHONWARNINGS="ignore") == "0\n"


@pytest.mark.gpu
def test_streams_that_do_not_wait_for_others():
    """cuDF works on the default stream: a run must be in order with that and with the stream that it is called in."""
    import cupy

    expected = [bits(fit(X, 5, n_neighbors=2, device="cuda")) for X in INPUTS]

    def work(i):
        with cupy.cuda.Stream(non_blocking=True):
            late = cupy.zeros(INPUTS[i].shape, cupy.float32)
            busy = cupy.ones((3000, 3000), cupy.float32)
            for _ in range(20):
                busy = busy @ busy * cupy.float32(1e-4)
            late += cupy.asarray(INPUTS[i]) + busy[0, 0] * 0  # not there before the products are
            model = fit(late, 5, n_neighbors=2, device="cuda")
            return model, cut(model.linkage_, n_clusters=5)

    for _ in range(3):
        found = run_at_once(work, len(INPUTS))
        cupy.cuda.Device().synchronize()
        assert [bits(model) for model, _ in found] == expected
        assert [bits(again) for _, again in found] == [bits(model.labels_) for model, _ in found]


STREAMS = """
from concurrent.futures import ThreadPoolExecutor
import cupy
import numpy as np
from rapids_slink import fit, knn_graph, nearest_neighbors

host = np.random.default_rng(0).normal(size=(20_000, 40)).astype(np.float32)
def work(X, i):
    part = X[i : i + 10_000]
    frames = nearest_neighbors(part[:100], part[100:], device="cuda"), knn_graph(part, 5, device="cuda")
    weights = [frame["weight"].to_numpy().tobytes() for frame in frames]
    return fit(part, 5, device="cuda").distances_.tobytes(), weights
for X in (host, cupy.asarray(host)):
    expected = [work(X, i) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            assert list(threads.map(work, [X] * 8, range(8))) == expected
print("right")
"""


@pytest.mark.gpu
@pytest.mark.parametrize("own_streams", ["0", "1"])
def test_threads_share_a_default_stream_or_have_their_own(own_streams):
    """As CuPy can have it, and cuDF cannot: eight threads still end, and are right."""
    assert python(STREAMS, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=own_streams) == "right\n"


def fit_until_called(model, X, interrupting):
    """Fits again where the call that is due does not come: then the last that came is due.

    Threads tighten each other's bounds, so the fit that was counted may have made a call more than any fit after it.
    """
    while True:
        interrupting.calls = 0
        model.fit(X)
        assert 0 < interrupting.calls < interrupting.fails_at, "the interruption was swallowed"
        interrupting.fails_at = interrupting.calls


PLACES = [
    (brute_force, "chunks_of"),
    (brute_force, "for_each_chunk"),
    (lists, "tree_of_lists"),
    (lists, "release_cached"),
    (Device, "synchronize"),
    (lists, "sort_in_place"),
    (lists, "connect_forest"),
    (ordering, "_sort_on_gpu"),
    (cutting, "check_cut"),
]


@pytest.mark.parametrize(
    ("owner", "name"),
    [pytest.param(*place, id=place[1], marks=() if place in PLACES[::6] else pytest.mark.full) for place in PLACES],
)
def test_interruptions(monkeypatch, owner, name, device):
    if name in ("_sort_on_gpu", "synchronize") and device == "cpu":
        pytest.skip("NumPy sorts on a CPU, and nothing waits for it")
    X = INPUTS[0]
    model = SingleLinkage(5, n_neighbors=1, device=device).fit(X)
    expected, before = bits(model), stray_threads()
    function = getattr(owner, name)
    counted = Failing(function, KeyboardInterrupt())
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, counted.as_method())
        fit(X, 5, n_neighbors=1, device=device)
    assert counted.calls
    for at in spread(counted.calls, 4):
        with monkeypatch.context() as patch:
            interrupting = Failing(function, KeyboardInterrupt(), at)
            patch.setattr(owner, name, interrupting.as_method())
            with pytest.raises(KeyboardInterrupt):
                fit_until_called(model, X, interrupting)
        assert stray_threads() <= before
        assert bits(model) == expected  # of the fit before
        assert bits(fit(X, 5, n_neighbors=1, device=device)) == expected


@pytest.fixture
def quiet_collector():
    """No callbacks of the garbage collector: Hypothesis has one, and Python drops an interruption that comes in it."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


def fit_until_interrupted(X, after, device):
    """Whether a signal after so many seconds ends the fits that go on, and where in the code it comes.

    One that comes in a callback of a weak reference, of which Python drops all exceptions, comes again a little later.
    """
    places, timers = [], []

    def send(seconds):
        timers.append(threading.Timer(seconds, signal.raise_signal, [signal.SIGINT]))
        timers[-1].start()

    def interrupt(_signal, frame):
        if frame.f_code.co_filename.endswith("_weakrefset.py"):
            return send(0.001)
        places.append("".join(traceback.format_stack(frame, 8)))
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGINT, interrupt)
    try:
        send(after)
        while timers[-1].is_alive():
            fit(X, 5, device=device)
        fit(X, 5, device=device)
    except KeyboardInterrupt:
        return True, places[0]
    finally:
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGINT, usual)
    return False, places[0]


@pytest.mark.usefixtures("quiet_collector")
@pytest.mark.filterwarnings("ignore:Exception ignored in. 'cupy.cuda.thrust:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("after", [0.1, full(0.01), full(0.3)])
def test_ctrl_c_stops_soon(device, after):
    """A signal, which comes whenever it does: chunks that wait are not begun, and the next fit is right.

    One that comes while Thrust allocates is printed by CuPy, and comes out of `fit` all the same.
    """
    X = points(12_000, 48)
    expected = bits(fit(X, 5, device=device))
    stopped, place = fit_until_interrupted(X, after, device)
    assert stopped, f"the interruption was swallowed, which came in\n{place}"
    assert bits(fit(X, 5, device=device)) == expected


@pytest.fixture
def handler():
    """Python's own handler of Ctrl-C, which a process that was started in the background is without."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, usual)


def test_a_run_in_a_thread_leaves_the_handler_of_signals(device, handler, watch):
    """Python swaps handlers in its main thread alone, and there a run on a GPU notes Ctrl-C while it lasts."""
    seen = watch(Report, "stage", lambda *_: signal.getsignal(signal.SIGINT))
    (in_thread,) = run_at_once(lambda i: bits(fit(INPUTS[0], 5, device=device)), 1)
    assert seen
    assert set(seen) == {handler}
    assert bits(fit(INPUTS[0], 5, device=device)) == in_thread
    assert (set(seen) == {handler}) == (device == "cpu")
    assert signal.getsignal(signal.SIGINT) is handler


def test_interruptions_are_noted_in_the_main_thread(handler):
    """By a handler that calls the one before, which comes back at the end; ignored signals stay ignored."""

    def noted(send):
        run = memory.Run()
        with memory._noting_interruptions(run):
            send()
        return run.interrupted

    def press():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert noted(press)
    assert signal.getsignal(signal.SIGINT) is handler
    assert run_at_once(lambda i: noted(lambda: signal.getsignal(signal.SIGINT) is handler or 1 / 0), 1) == [False]
    for other in (signal.SIG_IGN, lambda number, frame: None):
        signal.signal(signal.SIGINT, other)
        assert noted(lambda: signal.raise_signal(signal.SIGINT)) == callable(other)
        assert signal.getsignal(signal.SIGINT) is other


@pytest.mark.parametrize("cores", [1, 2, 7])
@pytest.mark.parametrize(("least", "most"), [(1, None), (1, 1), (10, 40), (10, None)])
def test_chunks_for_cores(cores, least, most, prescribe):
    """Each core has as many, of sizes that differ by one at most."""
    prescribe(cores=cores)
    for n in (0, 1, 9, 10, 19, 20, 41, 1000):
        parts = chunks_for_cores(n, least, most)
        assert [i for part in parts for i in range(n)[part]] == list(range(n))
        sizes = [part.stop - part.start for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert len(parts) == 1 or min(sizes) >= least
        assert most is None or max(sizes) <= max(most, 2 * least)
        assert len(parts) % cores == 0 or n < least * (len(parts) + cores)


def test_chunks_that_wait_are_not_begun_after_an_interruption():
    begun = []

    def work(i):
        begun.append(i)
        if i == 0:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        for_each_chunk(CPU, work, range(1000))
    assert len(begun) < 500


AFTER_A_LOCK = """
import faulthandler, threading
from rapids_slink.runtime import threads
from rapids_slink.runtime.device import CPU
faulthandler.dump_traceback_later(60, exit=True)
threads.usable_cores = lambda: 2
assert threads.for_each_chunk(CPU, str, range(4)) == list("0123")
enter, calls = threading.Condition.__enter__, []

def interrupted(condition):
    taken = enter(condition)
    if threading.current_thread() is threading.main_thread():
        calls.append(condition)
        raise KeyboardInterrupt
    return taken

threading.Condition.__enter__ = interrupted
try:
    threads.for_each_chunk(CPU, str, range(4))
except KeyboardInterrupt:
    pass
print(len(calls))
"""


def test_chunks_take_no_lock_that_an_interruption_keeps():
    """CPython may raise just after it took a lock in a function of Python; who waits for that lock waits for ever."""
    assert python(AFTER_A_LOCK) == "0\n"
