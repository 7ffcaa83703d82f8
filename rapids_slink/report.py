"""The report of a run: its proofs, and the time of each stage."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, Self, TypeVar

import pandas as pd

from rapids_slink.runtime import compiling
from rapids_slink.runtime.device import Device
from rapids_slink.runtime.memory import size_text

P = ParamSpec("P")
R = TypeVar("R")


class Report(dict[str, Any]):
    """A dictionary of plain values that prints as a small table.

    ``report["seconds"]`` maps each stage to its wall time. Every other key is a stage, with a dictionary of its counts
    by name, or a setting. `to_frame` returns the stages as a frame.
    """

    @contextmanager
    def stage(self, name: str, device: Device) -> Iterator[None]:
        """Time a block as a stage, device work included, and show it as an NVTX range on a GPU.

        The seconds in which kernels were compiled are those of a stage "compiling" instead.
        """
        if device.is_gpu:
            device.xp.cuda.nvtx.RangePush(f"rapids_slink.{name}")
        start, compiled_before = time.perf_counter(), compiling.clock.seconds
        try:
            yield
            if device.is_gpu:
                device.synchronize()
        finally:
            elapsed = time.perf_counter() - start
            compiled = min(elapsed, compiling.clock.seconds - compiled_before)  # another thread's may be older
            seconds = self.setdefault("seconds", {})
            seconds[name] = seconds.get(name, 0.0) + elapsed - compiled
            if compiled:
                seconds["compiling"] = seconds.get("compiling", 0.0) + compiled
            if device.is_gpu:
                device.xp.cuda.nvtx.RangePop()

    def count(self, stage: str, **counts: Any) -> None:
        """Add to the counts of a stage; a text replaces the one before."""
        entry = self.setdefault(stage, {})
        for name, value in counts.items():
            entry[name] = value if isinstance(value, str) else entry.get(name, 0) + int(value)

    def add(self, other: Self) -> None:
        """Add the seconds and counts of a part of the work, and the settings that this report lacks."""
        for name, entry in other.items():
            if name == "seconds":
                seconds = self.setdefault(name, {})
                seconds |= {stage: seconds.get(stage, 0.0) + value for stage, value in entry.items()}
            elif isinstance(entry, dict):
                self.count(name, **entry)
            else:
                self.setdefault(name, entry)

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with a row for each stage.

        Returns
        -------
        DataFrame (pandas)
            The index holds the stages. The columns are ``seconds`` and the counts; a count is missing where a stage
            does not have it.
        """
        seconds, counts = self.stages()
        rows = {stage: {"seconds": seconds.get(stage)} | counts.get(stage, {}) for stage in [*seconds, *counts]}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("stage").convert_dtypes()

    def __str__(self) -> str:
        seconds, counts = self.stages()
        settings = {name: str(value) for name, value in self.items() if not isinstance(value, dict)}
        words = [f"{name} {value}" for name, value in settings.items() if " " not in value]
        lines = [", ".join(words)] if words else []
        lines += [f"{name:<14}{value}" for name, value in settings.items() if " " in value]
        for stage in dict.fromkeys([*seconds, *counts]):
            time = f"{seconds[stage]:>10.4f} s" if stage in seconds else ""
            entries = [" ".join(entry_text(name, count)) for name, count in counts.get(stage, {}).items()]
            lines.append(f"{in_words(stage):<14}{time:<12}  {', '.join(entries)}".rstrip())
        if seconds:
            lines.append(f"{'all stages':<14}{sum(seconds.values()):>10.4f} s")
        return "\n".join(lines)

    def stages(self) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
        """Return the seconds and the counts of each stage."""
        counts = {stage: entry for stage, entry in self.items() if isinstance(entry, dict)}
        return counts.pop("seconds", {}), counts


def in_words(name: str) -> str:
    """Return a stage's or a count's name as text."""
    return name.replace("_", " ")


def entry_text(name: str, value: Any) -> tuple[str, str]:
    """Return a count's name and value as text, a number of bytes in larger units."""
    if name.endswith("_bytes"):
        return in_words(name.removesuffix("_bytes")), size_text(value)
    return in_words(name), f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def did_you_mean(name: Any, valid: Collection[str], meanings: Mapping[str, str]) -> str:
    """Return the end of an error message that suggests a valid name; "" if `name` resembles none.

    `meanings` has names that other packages use, and what they are called here.
    """
    names = {own: own for own in valid} | dict(meanings)
    near = get_close_matches(str(name).lower().replace("-", "_"), names, n=1, cutoff=0.7)
    return f". Did you mean {names[near[0]]!r}?" if near and names[near[0]] in valid else ""


def with_hints(meanings: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: the error for a parameter that a function does not have names the one that was meant."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        names = [name for name in signature(function).parameters if name != "self"]

        @wraps(function)
        def checked(*values: P.args, **parameters: P.kwargs) -> R:
            for name in parameters:
                if name not in names:
                    meant = did_you_mean(name, names, meanings) or f", only {names}"
                    raise TypeError(f"{function.__name__} has no parameter {name!r}{meant}")
            return function(*values, **parameters)

        return checked

    return decorated


def counted(number: int, what: str) -> str:
    """Return a number and what it counts as text: "1 row", "1,234 rows"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def listed(names: Iterable[Any]) -> str:
    """Return names as they are written in Python: the first six and the last if there are more than eight."""
    texts = [repr(name) for name in names]
    return ", ".join(texts if len(texts) <= 8 else [*texts[:6], "...", texts[-1]])
