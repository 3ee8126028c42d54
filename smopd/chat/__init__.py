"""Contexts: views of an example through a chat template, to token ids."""

from smopd.chat.contexts import DirtyContext, clean_context, full_context, users_context
from smopd.chat.template import Renderer

__all__ = ["DirtyContext", "Renderer", "clean_context", "full_context", "users_context"]
