"""The type of arrays in annotations, under its earlier place."""

from rapids_slink.runtime.device import Array as Array
