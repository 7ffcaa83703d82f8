"""Versions of packages and of the GPU's driver, for bug reports."""

import platform
import sys
from importlib.metadata import distributions

from rapids_slink.runtime.device import gpu_is_usable
from rapids_slink.version import __version__

#: What the names of the packages begin with, whatever their builds for a version of CUDA are called.
PACKAGES = (
    "numpy", "pandas", "scipy", "scikit-learn", "numba", "pyarrow", "matplotlib", "cudf", "pylibraft", "cugraph",
    "cuml", "cupy", "nvidia-cuda-nvrtc",
)  # fmt: skip


def show_versions() -> None:
    """Print the versions of this package, of Python, of what is installed of its dependencies, and of the GPU.

    Examples
    --------
    >>> import rapids_slink
    >>> rapids_slink.show_versions()  # doctest: +ELLIPSIS
    rapids_slink  ...
    """
    lines = [("rapids_slink", __version__), ("Python", sys.version.split()[0])]
    lines.append(("system", f"{platform.system()} {platform.release()}, {platform.machine()}"))
    lines += sorted({(d.name, d.version) for d in distributions() if (d.name or "").startswith(PACKAGES)})
    lines.append(("GPU", _gpu()))
    width = max(len(name) for name, _ in lines) + 2
    print("\n".join(f"{name:<{width}}{number}" for name, number in lines))


def _gpu() -> str:
    if not gpu_is_usable():
        return "none that can be used"
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
    return (
        f"{properties['name'].decode()}, compute capability {properties['major']}.{properties['minor']}, "
        f"CUDA {runtime.runtimeGetVersion()}, driver for CUDA {runtime.driverGetVersion()}"
    )
