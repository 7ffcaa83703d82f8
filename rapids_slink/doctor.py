"""The check that ``rapids doctor``, of rapids-cli, runs: its entry point is in pyproject.toml."""

from typing import Any

import numpy as np


def check(verbose: bool = False, **kwargs: Any) -> str:
    """A hierarchy made on the GPU is that of the CPU.

    Parameters
    ----------
    verbose : bool
        Ignored, as are all further parameters: later versions of rapids-cli may pass more.
    **kwargs
        Ignored.

    Returns
    -------
    str
        What was compared.

    Raises
    ------
    DeviceUnavailableError
        There is no GPU with CuPy and cuDF.
    RuntimeError
        The heights differ.
    """
    from rapids_slink.api import fit

    rows = np.random.default_rng(0).standard_normal((5000, 16))
    on_gpu, on_cpu = (fit(rows, n_clusters=1, device=device).to_scipy()[:, 2] for device in ("cuda", "cpu"))
    if not np.array_equal(on_gpu, on_cpu):
        raise RuntimeError(f"the GPU's and the CPU's heights differ in {np.count_nonzero(on_gpu != on_cpu)} merges")
    return f"the heights of {len(on_gpu):,} merges are the CPU's to the last bit"
