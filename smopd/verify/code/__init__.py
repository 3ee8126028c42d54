"""Python of replies: found in the reply, and made into a program."""

from smopd.verify.code import program as program
from smopd.verify.code.reply import find_code as find_code
