"""The type of arrays in annotations."""

from __future__ import annotations

from typing import Any, TypeAlias

#: NumPy's array on a CPU, CuPy's on a GPU. CuPy is an optional dependency, hence no more than a name.
Array: TypeAlias = Any
