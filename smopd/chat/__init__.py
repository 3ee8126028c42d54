"""Contexts: views of an example through a chat template, to token ids."""

from smopd.chat.messages import VIEWS, View, user_turns
from smopd.chat.template import DirtyContext, Renderer

__all__ = ["VIEWS", "DirtyContext", "Renderer", "View", "user_turns"]
