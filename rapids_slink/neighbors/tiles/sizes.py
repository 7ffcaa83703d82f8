"""How many slots tiles, blocks and cells have."""

from rapids_slink.runtime.cuda import constant

#: The sources of the folder's kernels.
ORDER, TILES = "neighbors/tiles/order.cu", "neighbors/tiles/tiles.cu"
#: Slots of a tile of points, and of a block of rows.
TILE, BLOCK = constant(TILES, "TILE"), constant(TILES, "BLOCK")
#: Slots of a cell at least. Of many points cells are larger: there are at most `MOST_CELLS`, about, since each has a
#: term for each point.
CELL, MOST_CELLS = 1024, 512


def cell_size(n: int) -> int:
    """Slots of a cell of n points, a power of two."""
    return max(CELL, 1 << (-(-n // MOST_CELLS) - 1).bit_length())
