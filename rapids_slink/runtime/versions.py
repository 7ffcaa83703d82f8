"""Versions of packages and of the GPU's driver, for bug reports."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from rapids_slink.runtime.device import gpu_is_usable
from rapids_slink.version import __version__

#: Each line has the names of one package's builds, of which at most one is installed.
PACKAGES = [
    *[[name] for name in ("numpy", "pandas", "scipy", "scikit-learn", "numba", "pyarrow", "matplotlib")],
    *[[name, f"{name}-cu13", f"{name}-cu12"] for name in ("cudf", "pylibraft", "cugraph", "cuml")],
    ["cupy", "cupy-cuda13x", "cupy-cuda12x"],
    ["nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"],
]


def show_versions() -> None:
    """Print the versions of this package, of Python, of its dependencies, and of the GPU and its driver.

    Examples
    --------
    >>> import rapids_slink
    >>> rapids_slink.show_versions()  # doctest: +ELLIPSIS
    rapids_slink  ...
    """
    lines = [("rapids_slink", __version__), ("Python", sys.version.split()[0])]
    lines.append(("system", f"{platform.system()} {platform.release()}, {platform.machine()}"))
    lines += [(name, number) for names in PACKAGES for name, number in [_installed(names)]]
    lines.append(("GPU", _gpu()))
    width = max(len(name) for name, _ in lines) + 2
    print("\n".join(f"{name:<{width}}{number}" for name, number in lines))


def _installed(names: list[str]) -> tuple[str, str]:
    """The first of these packages that is installed, and its version."""
    for name in names:
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    return names[0], "not installed"


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
