"""Contexts: views of an example through a chat template, to token ids. Names are looked up when first asked for."""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.chat.contexts import DirtyContext, clean_context, full_context, users_context
    from smopd.chat.template import Renderer
    from smopd.chat.views import VIEWS, View, user_turns

__all__ = [
    "VIEWS", "DirtyContext", "Renderer", "View", "clean_context", "full_context", "user_turns", "users_context",
]  # fmt: skip
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.chat.contexts": ("DirtyContext", "clean_context", "full_context", "users_context"),
        "smopd.chat.template": ("Renderer",),
        "smopd.chat.views": ("VIEWS", "View", "user_turns"),
    },
)
