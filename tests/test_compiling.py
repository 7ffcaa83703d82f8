"""Who waits for a compiler is told so, once."""

import logging
import os
import subprocess
import sys

import pytest

from rapids_slink.runtime import compiling


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand, and nothing compiled yet."""
    now = [0.0]
    monkeypatch.setattr(compiling, "_clock", compiling._Clock())
    monkeypatch.setattr(compiling.time, "perf_counter", lambda: now[0])
    return now


def test_two_seconds_are_silent(clock, caplog):
    with compiling.compiling():
        clock[0] += 1.5
    with compiling.compiling(), compiling.compiling():  # one within the other counts once
        clock[0] += 0.4
    clock[0] += 100
    assert caplog.records == []
    for _ in range(3):
        with compiling.compiling():
            clock[0] += 1
    (record,) = caplog.records
    assert (record.name, record.levelno, record.message) == ("rapids_slink", logging.WARNING, compiling.TEXT)


def test_a_new_process(tmp_path):
    """Whose cache is empty, and which need wait for less."""
    code = "import rapids_slink; from rapids_slink.runtime import compiling; compiling.SILENT = 0.1\n"
    code += "rapids_slink.fit([[0.0, 1.0], [1.0, 2.0], [5.0, 1.0]], 2, device='cpu')"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stderr
        for _ in range(2)
    ]
    assert said == [f"{compiling.TEXT}\n", ""]
