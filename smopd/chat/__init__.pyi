from smopd.chat.contexts import DirtyContext as DirtyContext
from smopd.chat.contexts import clean_context as clean_context
from smopd.chat.contexts import full_context as full_context
from smopd.chat.contexts import users_context as users_context
from smopd.chat.template import Renderer as Renderer
from smopd.chat.views import VIEWS as VIEWS
from smopd.chat.views import View as View
from smopd.chat.views import user_turns as user_turns
