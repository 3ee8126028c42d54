"""Clean contexts as token ids."""

from smopd.chat import Renderer
from smopd.chat.messages import clean_messages, full_messages, users_messages
from smopd.data import Example


def full_context(renderer: Renderer, example: Example) -> list[int]:
    return renderer.ids(full_messages(example))


def users_context(renderer: Renderer, example: Example, turn: int) -> list[int]:
    return renderer.ids(users_messages(example, turn))


def clean_context(renderer: Renderer, example: Example, turn: int) -> list[int]:
    return renderer.ids(clean_messages(example, turn))
