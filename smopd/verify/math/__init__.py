"""Numbers: which one of a reply's a careful reader takes for its answer."""

from smopd.verify.math import reader as reader
