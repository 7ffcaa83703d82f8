"""``python -m bench.choice --device cpu|cuda``: whether the chosen way is about as fast as each that can be prescribed.

Each case is fitted, or its pairs are found, in the way that the package chooses and then in others. Each other way is
stopped at `STOPPED` times the chosen one's time. A way has a dash if it was stopped, or if memory refuses it. The exit
status is 1 if a chosen way takes more than `LIMIT` times the best plus `SLACK`, or if a way fails. On a CPU the time is
that of all its processors, which hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench import cases
from bench.sparse import sketches, tfidf
from bench.text import receptors, words

#: The chosen way may take this number of times the best one's time, plus these seconds.
LIMIT, SLACK = 1.5, 0.002
#: A way is stopped after this number of times the chosen one's time, plus the seconds that reading kernels may take.
STOPPED, READING = 3.0, 60.0
#: Seconds in which calls are repeated; the least counts.
REPEATED = 0.2
#: A call with this number of rows compiles the kernels before a call is timed.
FIRST_ROWS = 3000
SEED = cases.SEED

LISTS: dict[str, dict[str, Any]] = {
    "all pairs": {"tree": "lists", "search": "all pairs"},
    "all pairs, axes": {"tree": "lists", "search": "all pairs", "filter": "axes"},
    "all pairs, rounds": {"tree": "lists", "search": "all pairs", "connect": "rounds"},
    "all pairs, at once": {"tree": "lists", "search": "all pairs", "connect": "at once"},
    "tree": {"tree": "lists", "search": "tree"},
    "tiles": {"tree": "lists", "search": "tiles"},
    "tiles, rounds": {"tree": "lists", "search": "tiles", "connect": "rounds"},
    "tiles for lists": {"tree": "lists", "search": "tiles for lists"},
}
TREES = {"pairs": {"tree": "pairs"}, **LISTS, "boxes": {"tree": "boxes", "search": "tree"}}
PAIRS: dict[str, dict[str, Any]] = {way: {"pairs": way} for way in ("tree", "filter", "distances")}
ITEMS: dict[str, dict[str, Any]] = {way: {"items": way} for way in ("keys", "projections", "distances")}


@dataclass(frozen=True)
class Case:
    """Rows, what is called with them, and the ways that are tried beside the chosen one."""

    rows: Callable[[int], Any]  # gives the rows, by their number
    sizes: tuple[int, int]  # the numbers of rows for a CPU and for a GPU
    ways: dict[str, dict[str, Any]] = field(default_factory=lambda: LISTS)
    how: dict[str, Any] = field(default_factory=dict)  # the parameters of the call
    of_pairs: bool = False  # whether pairs are counted, in place of a fit


def drawn(kind: Callable[..., cases.Rows], *shape: Any) -> Callable[[int], Any]:
    """Return a function from a number of rows to the rows of a family of `cases`."""
    return lambda n: kind(n, *shape)(None, 0)


def tight(n: int, d: int = 64, clusters: int = 400) -> np.ndarray:
    """Return normal clusters, (n, d) float64, a thousandth as wide as they are far apart."""
    rng = np.random.default_rng(SEED)
    return rng.standard_normal((clusters, d))[rng.integers(clusters, size=n)] + 1e-3 * rng.standard_normal((n, d))


def manifold(n: int, features: int, d: int = 16, in_space: float = 0.0) -> np.ndarray:
    """Return points of a curved surface of `features` dimensions, (n, d) float64.

    A share `in_space` of them is anywhere in the cube around it.
    """
    rng = np.random.default_rng(SEED)
    points = np.sin(rng.random((n, features)) @ rng.standard_normal((features, d)) * 3 + rng.standard_normal(d))
    anywhere = rng.random(n) < in_space
    points[anywhere] = rng.uniform(-1, 1, (int(anywhere.sum()), d))
    return points


def radii(n: int, d: int = 12) -> np.ndarray:
    """Return directions with lognormal radii, (n, d) float64."""
    rng = np.random.default_rng(SEED)
    return rng.standard_normal((n, d)) * np.exp(rng.standard_normal((n, 1)))


def near(d: int, share: float) -> dict[str, Any]:
    """Return the parameters for pairs of uniform points: within a share of the side of a cube for each of 20,000."""
    return {"max_distance": share * 20_000 ** (-1 / d)}


MANY = 20_000, 200_000
STRUCTURED = (
    cases.nested, cases.core, cases.line, cases.far, cases.blobs, cases.cells, cases.topics, cases.twins,
)  # fmt: skip
CASES: dict[str, Case] = {
    **{f"{kind.__name__}-64": Case(drawn(kind, 64), MANY) for kind in STRUCTURED},
    "activations-16": Case(drawn(cases.activations, 16), MANY),
    "tight-40k-64": Case(tight, (40_000, 40_000)),
    "repeats-16": Case(drawn(cases.repeats, 16, 1000), MANY, {"repeats": {"tree": "repeats"}, **LISTS}),
    **{
        f"scaling-{n}-{d}": Case(drawn(cases.gauss, d, np.float32), (n, n), TREES)
        for n in (100, 1000, 10_000)
        for d in (3, 16, 128)
    },
    "low-cloud-9": Case(lambda n: cases.cloud(n)(None, 0), MANY, TREES),
    "low-radii-12": Case(radii, MANY, TREES),
    "low-manifold-2-in-16": Case(partial(manifold, features=2, in_space=0.01), MANY, TREES),
    "low-manifold-3-in-16": Case(partial(manifold, features=3), MANY, TREES),
    "low-clusters-10": Case(drawn(cases.mixture, 10, 100, 10), MANY, TREES),
    "curve-16": Case(drawn(cases.curve, 16), MANY, TREES),
    "haloes-3": Case(lambda n: cases.haloes(n, n // 50)(None, 0), MANY, TREES),
    "coast-2": Case(lambda n: cases.coast(n)(None, 0), MANY, TREES),
    "gauss-64": Case(drawn(cases.gauss, 64, np.float32), MANY),
    "unit-384-cosine": Case(drawn(cases.directions, 384, 0.5), MANY, how={"metric": "cosine"}),
    "gauss-16-cityblock": Case(drawn(cases.gauss, 16, np.float32), (5000, 50_000), TREES, {"metric": "cityblock"}),
    "receptors": Case(lambda n: receptors(n)(None, 0), (3000, 20_000), ITEMS, {"metric": "levenshtein"}),
    "receptors, one edit": Case(
        lambda n: receptors(n)(None, 0), MANY, ITEMS, {"metric": "levenshtein", "max_distance": 1}
    ),
    "words, two edits": Case(lambda n: words(n)(None, 0), MANY, ITEMS, {"metric": "levenshtein", "max_distance": 2}),
    "sketches": Case(
        lambda n: sketches(n, 1000)(None, 0), (5000, 50_000), ITEMS, {"metric": "jaccard", "max_distance": 0.5}
    ),
    "tfidf": Case(
        lambda n: tfidf(n, 5000)(None, 0), (5000, 50_000), ITEMS, {"metric": "cosine", "max_distance": 0.3}
    ),
    **{
        f"pairs-{d}, {share:g}": Case(drawn(cases.uniform, d), MANY, PAIRS, near(d, share), of_pairs=True)
        for d, shares in ((3, (0.2, 1.0, 4.0)), (16, (0.5,)))
        for share in shares
    },
}  # fmt: skip
#: Cases that take little time on a CPU, for every change.
QUICK = (
    "scaling-100-3", "scaling-100-16", "scaling-1000-3", "scaling-1000-16", "scaling-10000-3", "repeats-16",
    "receptors, one edit", "pairs-3, 0.2",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- the measurement


class Answer(NamedTuple):
    """The least seconds of a way's calls, infinite if it was stopped or has too little memory, and what was taken."""

    seconds: float
    taken: str = ""
    error: str = ""


def serve(connection: Any, name: str, device: str) -> None:
    """Answer ways with what a case's calls take, in a process of its own.

    A None is sent once the kernels are read, and then the `Answer`.
    """
    from rapids_slink.runtime.memory import DeviceMemoryError

    case = CASES[name]
    rows = case.rows(case.sizes[device == "cuda"])
    while True:
        ways = connection.recv()
        try:
            called(case, rows[:FIRST_ROWS], ways, device)
            connection.send(None)  # the kernels are read
            answer = measured(partial(called, case, rows, ways, device), device)
        except DeviceMemoryError:
            answer = Answer(np.inf)
        except Exception as error:  # the other ways can be compared all the same
            answer = Answer(np.inf, error=f"{type(error).__name__}: {error}")
        connection.send(answer)


def called(case: Case, rows: Any, ways: dict[str, Any], device: str) -> str:
    """Make a case's call in prescribed ways, and return what its report says was taken."""
    import rapids_slink
    from rapids_slink.forced import force

    with force(**ways):
        if case.of_pairs:
            rapids_slink.count_pairs(rows, device=device, **case.how)
            return ""
        clusters = None if "max_distance" in case.how else 1
        report = rapids_slink.fit(rows, clusters, device=device, **case.how).report_
    joined = ", joined at once" * ("joined_at_once" in report.get("connect", {}))
    return f"{report.get('way', '')}, {report.get('neighbors', {}).get('filter', '')}{joined}".strip(", ")


def measured(call: Callable[[], str], device: str) -> Answer:
    """Return the least seconds of two calls or more, of which the first may read kernels, and what the last took."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds: list[float] = []
    begun = time.perf_counter()
    while len(seconds) < 2 or time.perf_counter() - begun < REPEATED:
        start = clock()
        taken = call()
        seconds.append(clock() - start)
    return Answer(min(seconds), taken)


class Worker:
    """A process that measures a case, which is started again after it has ended."""

    def __init__(self, name: str, device: str) -> None:
        self.how = name, device
        self.process: Any = None
        self.waited = 0.0  # seconds until the chosen way's answer: more than its own on a busy machine

    def answer(self, ways: dict[str, Any], limit: float | None = None) -> Answer:
        """Return what a way takes, up to a limit of its seconds."""
        if self.process is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["bench.cases", "rapids_slink.api"])
            self.connection, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs, *self.how), daemon=True)
            self.process.start()
            theirs.close()
        self.connection.send(ways)
        answer: Answer | None = None
        for waits in (READING, REPEATED):
            begun = time.perf_counter()
            if not self.connection.poll(limit and limit + waits):
                self.stop()
                return Answer(np.inf)
            try:
                answer = self.connection.recv()
            except EOFError:
                self.stop()
                return Answer(np.inf, error="the process ended")
            if answer is not None:
                break
        if limit is None:
            self.waited = time.perf_counter() - begun
        assert answer is not None  # it follows a None
        return answer

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def compared(name: str, device: str) -> dict[str, Answer]:
    """Return what the chosen way takes, and each other.

    The chosen way is measured again at the end if it seems slow: the first way that a GPU takes may be the slower for
    it.
    """
    worker = Worker(name, device)
    try:
        answers = {"chosen": worker.answer({})}
        for way, ways in CASES[name].ways.items():
            answers[way] = worker.answer(ways, STOPPED * worker.waited)
        if not is_fast(answers):
            answers["chosen"] = min(answers["chosen"], worker.answer({}))
    finally:
        worker.stop()
    return answers


def is_fast(answers: dict[str, Answer]) -> bool:
    """Return whether the chosen way takes about as long as the best."""
    return answers["chosen"].seconds <= LIMIT * min(answers.values()).seconds + SLACK


def main(arguments: list[str] | None = None) -> int:
    """Print a table of the cases, and return the exit status: 1 if a chosen way is slow, or if a way fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.choice", description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=[*CASES, "quick"], metavar="CASE")
    given = parser.parse_args(arguments)
    names = [one for name in given.cases for one in (QUICK if name == "quick" else (name,))]
    bad = []
    print(
        "| case | chosen, s | best, s | ratio | taken, and the best | ways, s |\n|---|---|---|---|---|---|", flush=True
    )
    for name in names:
        answers = compared(name, given.device)
        chosen, best = answers["chosen"], min(answers, key=lambda way: answers[way].seconds)
        if not is_fast(answers) or any(answer.error for answer in answers.values()):
            bad.append(name)
        ratio = f"{chosen.seconds / answers[best].seconds:.2f}{'' if is_fast(answers) else ' SLOW'}"
        ways = "; ".join(
            f"{way} {error or ('-' if seconds == np.inf else f'{seconds:.4g}')}"
            for way, (seconds, _, error) in answers.items()
            if way != "chosen" or error
        )
        taken = f"{chosen.taken}; {best}: {answers[best].taken}"
        row = f"| {name} | {chosen.seconds:.4g} | {answers[best].seconds:.4g} | {ratio} | {taken} | {ways} |"
        print(row, flush=True)
    print(f"\n{len(names) - len(bad)} of {len(names)} are about as fast as the best", end="; others: " * bool(bad))
    print(*bad, sep=", ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
