"""Contexts: views of an example through a chat template, to token ids."""

from smopd.chat.contexts import DirtyContext
from smopd.chat.template import Renderer
from smopd.chat.views import VIEWS, View, user_turns

__all__ = ["VIEWS", "DirtyContext", "Renderer", "View", "user_turns"]
