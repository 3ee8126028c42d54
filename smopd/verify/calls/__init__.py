"""Read function calls from replies, in all forms in which models write them."""

from smopd.verify.calls.gathering import gather
from smopd.verify.calls.syntax import Call, Unread, Untyped, load_object

__all__ = ["Call", "Unread", "Untyped", "gather", "load_object"]
