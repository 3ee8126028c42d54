"""How large the buffers of the hf engine are. The planner counts with the same numbers, without torch."""

GROWTH = 128  # columns added when a buffer of keys and values is full
WIDTH = 512  # columns of a static cache come in multiples of this: few shapes, so few graphs


def static_shape(rows: int, columns: int) -> tuple[int, int]:
    """The shape of a static cache with room for so much: rows come in powers of two, columns in widths."""
    return 1 << max(0, rows - 1).bit_length(), -(-columns // WIDTH) * WIDTH
