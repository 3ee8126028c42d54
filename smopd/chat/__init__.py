"""Contexts: views of an example through a chat template, to token ids."""

from smopd.chat.contexts import DirtyContext, clean_context, full_context, users_context
from smopd.chat.template import Renderer
from smopd.chat.views import VIEWS, View, user_turns

__all__ = [
    "VIEWS", "DirtyContext", "Renderer", "View", "clean_context", "full_context", "user_turns",
    "users_context",
]  # fmt: skip
