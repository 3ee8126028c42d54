"""Run model-written Python in a sandbox."""

from smopd.verify.sandbox.judge import WELL_KNOWN_FROM as WELL_KNOWN_FROM
from smopd.verify.sandbox.judge import free_names as free_names
from smopd.verify.sandbox.pool import SandboxResult as SandboxResult
from smopd.verify.sandbox.pool import available as available
from smopd.verify.sandbox.pool import isolation as isolation
from smopd.verify.sandbox.pool import permit_unsandboxed as permit_unsandboxed
from smopd.verify.sandbox.pool import require as require
from smopd.verify.sandbox.pool import run as run
