"""Models: loading a chat model with its template, and the two adapters that are student and teacher."""

from smopd.models.adapter_files import resolve_adapter
from smopd.models.loading import ChatModel, load_model, load_renderer

__all__ = ["ChatModel", "load_model", "load_renderer", "resolve_adapter"]
