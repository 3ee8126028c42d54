"""How large the buffers of the hf engine are. The planner counts with the same numbers, without torch."""

GROWTH = 128  # columns added when a buffer of keys and values is full
WIDTH = 512  # columns of a static cache come in multiples of this: few shapes, so few graphs


def padded_rows(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()  # the next power of two


def padded_columns(count: int) -> int:
    return -(-count // WIDTH) * WIDTH
