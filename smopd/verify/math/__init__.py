"""Find the number in a reply that a careful reader takes for its answer."""

from smopd.verify.math import reader as reader
