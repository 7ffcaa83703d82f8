"""Numbers as embeddings come: bfloat16, float8, and int8 with scales.

They stay as they are stored until they are on the device of a run, where each becomes the float that it stands for.
bfloat16 and float8 become float32, which holds all of them. Their types are known by name, so no package of them is
imported. NumPy has no such types of its own: the bits are read as unsigned integers.
"""

from collections.abc import Callable
from ctypes import c_char_p, c_uint8, c_void_p, py_object, pythonapi
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rapids_slink.points.check import InputTypeError
from rapids_slink.points.output import library_of, take_rows
from rapids_slink.report import counted
from rapids_slink.runtime.device import CPU, Array, Device, is_on_gpu

#: DLPack's code of each narrow type, and the type of its bits, by name.
NARROW = {"bfloat16": (4, "uint16"), "float8_e4m3fn": (10, "uint8"), "float8_e5m2": (12, "uint8")}
#: DLPack's code of unsigned integers; the byte of a tensor at which the code of its type is, by the capsule's name.
UNSIGNED, CODE_AT = 1, {b"dltensor": 20, b"dltensor_versioned": 52}
#: float32 holds the product of an integer of eight bits and a float32 scale if the scale is in this range and its last
#: eight bits are 0.
LEAST_SCALE, LARGEST_SCALE = 2.0**-126, 2.0**119


class Stored:
    """Rows, (n, d), that are not floats yet."""

    stored: Array  # integers, of NumPy or CuPy
    dtype: np.dtype  # the type of the floats

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the numbers of rows and columns."""
        return tuple(self.stored.shape)

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def decode(self, device: Device) -> Any:
        """Return the floats, C-contiguous on a device."""
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2 if is_on_gpu(self.stored) else 1), 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        values: np.ndarray = self.decode(CPU)
        return values if dtype is None else values.astype(dtype)


@dataclass(frozen=True)
class NarrowRows(Stored):
    """Floats of a narrow type, stored as their bits."""

    stored: Array
    name: str  # the name of the type in `NARROW`
    dtype = np.dtype(np.float32)

    def __getitem__(self, key: Any) -> Self:
        return replace(self, stored=self.stored[key])

    def decode(self, device: Device) -> Any:
        """Return the floats: those of bfloat16 are the upper halves of float32's, those of float8_e5m2 of float16's.

        The floats of float8_e4m3fn have a shorter exponent than those of float16. Read as float16, they are 2⁸ times
        too small. A value is NaN if all its bits except the sign are set.
        """
        bits = device.asarray(self.stored)
        if self.name == "bfloat16":
            wide = bits.astype("uint32", order="C")
            wide <<= 16
            return wide.view("float32")
        wide = bits.astype("uint16", order="C")
        if self.name == "float8_e5m2":
            wide <<= 8
            return wide.view("float16").astype("float32")
        is_nan = (bits & 0x7F) == 0x7F
        wide <<= 7
        wide += wide & 0x4000  # this moves the sign to its place
        values = wide.view("float16").astype("float32")
        values *= 2**8
        values[is_nan] = np.nan
        return values


@dataclass(frozen=True)
class ScaledRows(Stored):
    """Rows of integers of eight bits that are multiplied by scales."""

    stored: Array
    scale: np.ndarray  # (n,) or (1,) float64
    dtype: np.dtype

    def decode(self, device: Device) -> Any:
        """Return the products, of the type that `product_type` chooses."""
        values = device.asarray(self.stored).astype(self.dtype, order="C")
        values *= device.asarray(self.scale, self.dtype)[:, None]
        return values


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows of int8 or uint8 with the scales that multiply them, such as quantized embeddings.

    Every function that takes points takes it. The rows count as their products with the scales, exactly: no product of
    an integer of eight bits and a scale of float16, bfloat16 or float32 is rounded. The products are float64, or
    float32 if this holds them, as for scales that are powers of two. They are made on the device of the run, so a GPU
    is sent one byte a value.

    Parameters
    ----------
    values : array of shape (n, d), int8 or uint8
        The rows, of NumPy or CuPy, or anything with ``__cuda_array_interface__`` or DLPack.
    scale : float or array of shape (n,)
        One scale for all values, or one for each row: finite and not negative. A float64 of more than 45 significant
        bits makes products that are rounded once, to float64.

    Raises
    ------
    TypeError
        `values` is not an array.

    Examples
    --------
    >>> import numpy as np, rapids_slink
    >>> rows = np.array([[100, 0], [50, 0], [0, 120]], np.int8)
    >>> X = rapids_slink.Scaled(rows, [0.5, 1.0, 0.25])
    >>> rapids_slink.pairs(X, max_distance=1.0, device="cpu")
       src  dst  weight
    0    0    1     0.0
    """

    values: Any
    scale: Any

    def __post_init__(self) -> None:
        if not hasattr(self.values, "shape") or not hasattr(self.values, "dtype") or hasattr(self.values, "iloc"):
            kind = type(self.values).__name__
            advice = "pass values.to_numpy()" if hasattr(self.values, "to_numpy") else "pass numpy.int8(values)"
            raise InputTypeError(f"values of Scaled must be an array of int8 or uint8, got {kind}: {advice}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the numbers of rows and columns."""
        return tuple(self.values.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> Self:
        is_one = not library_of(self.scale) and np.ndim(self.scale) == 0
        scale = self.scale if is_one else take_rows(self.scale, rows)
        return replace(self, values=take_rows(self.values, rows), scale=scale)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2 if is_on_gpu(self.values) else 1), 0


def scaled_rows(values: Array, scale: Any, name: str) -> ScaledRows:
    """Return the checked rows of `Scaled` and its scales, an array of the host; errors call the rows `name`."""
    if str(values.dtype) not in ("int8", "uint8"):
        raise InputTypeError(f"values of Scaled must be int8 or uint8: those of {name} have dtype {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"values of Scaled must be of shape (n, d): those of {name} are of shape {values.shape}")
    if scale.dtype.kind not in "iuf":
        raise InputTypeError(f"scale of Scaled must hold numbers: that of {name} has dtype {scale.dtype}")
    if scale.shape not in ((), (1,), (len(values),)):
        rows = counted(len(values), "row")
        raise ValueError(f"scale of Scaled must be a number, or hold one for each of {rows}, got shape {scale.shape}")
    scale = scale.astype(np.float64).ravel()
    valid = (scale >= 0) & (scale < np.inf)
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(f"scale of Scaled must be finite and not negative: number {row} is {float(scale[row])}")
    return ScaledRows(values, scale, product_type(scale))


def product_type(scale: np.ndarray) -> np.dtype:
    """Return float32 if it holds all products of integers of eight bits and these float64 scales, else float64."""
    with np.errstate(over="ignore", under="ignore"):
        single = scale.astype(np.float32)
    is_short = (single == scale) & (single.view(np.uint32) & 0xFF == 0)
    fits = (scale == 0) | (is_short & (scale >= LEAST_SCALE) & (scale <= LARGEST_SCALE))
    return np.dtype(np.float32 if fits.all() else np.float64)


def narrow_type(X: Any) -> str:
    """Return the name of the narrow type of an array or a tensor, such as ``torch.bfloat16``; "" for any other."""
    name = str(getattr(X, "dtype", "")).rpartition(".")[2]
    return name if name in NARROW else ""


def of_bits(array: Array, name: str) -> NarrowRows:
    """Return the rows of an array of NumPy or CuPy that has a narrow type."""
    return NarrowRows(array.view(NARROW[name][1]), name)


def from_dlpack(X: Any, read: Callable[[Any], Any]) -> Any:
    """Return what `read`, NumPy's or CuPy's ``from_dlpack``, makes of a tensor of any type."""
    tensor = _Tensor(X)
    array = read(tensor)
    return NarrowRows(array, tensor.name) if tensor.name else array


class _Tensor:
    """A DLPack tensor whose numbers of a narrow type are exported as unsigned integers. Then `name` is the type's."""

    def __init__(self, X: Any) -> None:
        self.X, self.name = X, ""

    def __dlpack_device__(self) -> Any:
        return self.X.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.X.__dlpack__(**options)
        kind = _capsule_name(capsule)
        code = c_uint8.from_address(_capsule_pointer(capsule, kind) + CODE_AT[kind])
        self.name = next((name for name, (number, _) in NARROW.items() if number == code.value), "")
        if self.name:  # the receiver has its own description, not shared with X
            code.value = UNSIGNED
        return capsule


_capsule_name, _capsule_pointer = pythonapi.PyCapsule_GetName, pythonapi.PyCapsule_GetPointer
_capsule_name.restype, _capsule_name.argtypes = c_char_p, [py_object]
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [py_object, c_char_p]
