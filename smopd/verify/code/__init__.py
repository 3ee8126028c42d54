"""Find Python in replies, and make programs of it."""

from smopd.verify.code import program as program
from smopd.verify.code.reply import find_code as find_code
