from smopd.models.adapter_files import resolve_adapter as resolve_adapter
from smopd.models.loading import ChatModel as ChatModel
from smopd.models.loading import load_model as load_model
from smopd.models.loading import load_renderer as load_renderer
