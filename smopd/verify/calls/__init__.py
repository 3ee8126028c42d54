"""Read function calls from replies, in all forms in which models write them."""

from smopd.verify.calls.gathering import gather as gather
from smopd.verify.calls.syntax import Call as Call
from smopd.verify.calls.syntax import Unread as Unread
from smopd.verify.calls.syntax import Untyped as Untyped
from smopd.verify.calls.syntax import load_object as load_object
