from smopd.verify.custom import load_verifiers as load_verifiers
from smopd.verify.custom import verifier as verifier
from smopd.verify.tasks.database import use_databases as use_databases
from smopd.verify.verdict import Verdict as Verdict
from smopd.verify.verifiers import verify as verify
from smopd.verify.verifiers import verify_all as verify_all
