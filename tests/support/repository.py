"""The repository's folder, the package's, and Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import rapids_slink

ROOT = Path(__file__).parents[2]
PACKAGE = Path(rapids_slink.__file__).parent


def python(code, *arguments, **environment):
    """Return what `code` prints in a process of its own, which finds the package from any folder."""
    return process(code, *arguments, **environment).stdout


def process(code, *arguments, **environment):
    """Return such a process, which has succeeded."""
    return run("-c", code, *arguments, **environment)


def run(*arguments, cwd=ROOT, **environment):
    """Return a process of Python with any arguments, which has succeeded."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": path, **environment}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done
