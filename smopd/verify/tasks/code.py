"""The task code: the Python of a reply is run in the sandbox against the example's tests.

An answer holds HumanEval's `test` with a `check(candidate)`, MBPP's `test_list` of asserts, or the
`public_test_cases` of LiveCodeBench (functional or standard input). `smopd.verify.code` finds the last block
that defines the function and makes a program of it. If no function has the right name, another one counts,
since the shards may never tell the name. MBPP's `challenge_test_list` and packages are not supported.

    user       Write a function for lists of numbers.
    user       It should return the largest difference of two of them.
    assistant  ```python
               def spread(numbers):
                   return max(numbers) - min(numbers)
               ```
    answer     {"test_list": ["assert spread([3, 9, 5]) == 6"]}
"""

import ast
import base64
import builtins
import io
import json
import pickle
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smopd.verify import sandbox
from smopd.verify.code import find_code, program
from smopd.verify.sandbox import WELL_KNOWN_FROM, SandboxResult
from smopd.verify.task import Answer, Record, Task
from smopd.verify.verdict import Status, Verdict

TIMEOUT = 6.0  # seconds for all tests of an example together
MEMORY_MB = 512
_TOP_LEVEL_SHARE = 0.5  # of the time limit, for the top-level statements of a reply
SYSTEM = (
    "You write Python. The user may reveal the task over several messages. Reply with one complete function "
    "that does everything the user has asked for, imports included, in a ```python block."
)
_FUNCTIONAL = """
import json
def plain(value):
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
"""


@dataclass(frozen=True)
class _Tests:
    entry: str  # the function under test; empty if a program reads standard input
    around: str = ""  # the prompt's imports and helpers
    prompt: str = ""
    tests: str = ""
    cases: Sequence[tuple[str, str]] = ()  # standard input and expected output


def verify_code(answer: Answer, text: str, *, timeout: float = TIMEOUT) -> Verdict:
    """Run the code of a reply against all tests of an answer; raise a UserError without a sandbox."""
    try:
        asked = _tests_of(answer)
    except (ValueError, TypeError, KeyError, SyntaxError) as error:
        return Verdict(False, None, "error", f"the reference answer has no usable tests: {error}")
    if (code := find_code(text, asked.entry, asked.prompt)) is None:
        what = "function" if asked.entry else "code"
        return Verdict(False, None, "no_answer", f"no Python {what} in the reply")
    if asked.tests:
        text = program.tested(code, asked.entry, asked.around, timeout * _TOP_LEVEL_SHARE)
        result = sandbox.run(text, tests=asked.tests, entry=asked.entry, timeout=timeout, memory_mb=MEMORY_MB)
    else:
        result = _run_cases(program.script(code), asked.cases, timeout)
    status: Status = "ok" if result.status == "failed" else result.status
    return Verdict(result.status == "ok", code, status, result.detail)


def _run_cases(script: str, cases: Sequence[tuple[str, str]], timeout: float) -> SandboxResult:
    deadline = time.monotonic() + timeout
    for number, (stdin, wanted) in enumerate(cases, 1):
        if (left := deadline - time.monotonic()) <= 0:
            return SandboxResult("timeout", f"out of time before case {number}", "")
        result = sandbox.run(script, stdin=stdin, timeout=left, memory_mb=MEMORY_MB)
        if result.status != "ok":
            return result
        lines = [[line.rstrip() for line in text.strip().splitlines()] for text in (result.output, wanted)]
        if lines[0] != lines[1]:
            return SandboxResult("failed", f"case {number}: another output than expected", result.output)
    return SandboxResult("ok", "", "")


# --- the tests of an answer
def _tests_of(answer: Answer) -> _Tests:
    metadata = answer.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    entry = str(answer.get("entry_point") or metadata.get("func_name") or "")
    prompt = str(answer.get("prompt") or "")
    if answer.get("test"):
        if not entry:
            raise ValueError("no name of the function under test (entry_point or metadata.func_name)")
        around = _extract_surroundings(prompt, entry)
        return _Tests(entry, around, prompt, f"{around}\n{answer['test']}\ncheck(candidate)\n")
    if answer.get("test_list"):
        imports = "\n".join(map(str, answer.get("test_imports") or []))
        setup = f"{imports}\n{answer.get('test_setup_code') or ''}"
        asserts = list(map(str, answer["test_list"]))
        return _Tests(entry or _find_entry(asserts[0], setup), imports, "", "\n".join([setup, *asserts]))
    cases = [case for key in ("public_test_cases", "private_test_cases") for case in _cases(answer.get(key))]
    if not cases:
        raise ValueError("neither test, test_list nor public_test_cases")
    if cases[0].get("testtype", "functional") == "stdin":
        return _Tests("", cases=[(str(case["input"]), str(case["output"])) for case in cases])
    if not entry:
        raise ValueError("no name of the function under test (metadata.func_name)")
    tests = _FUNCTIONAL + "\n".join(map(_functional, cases))
    return _Tests(entry, _extract_surroundings(prompt, entry), prompt, tests)


def _extract_surroundings(prompt: str, entry: str) -> str:
    """Return the imports and helpers of a prompt: everything but the unfinished function."""
    body = program.parse(prompt).body
    return "\n".join(ast.unparse(node) for node in body if getattr(node, "name", None) != entry)


def _find_entry(test: str, setup: str) -> str:
    """Return the function under test: the first name called that neither Python nor the setup defines."""
    calls = [node.func for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    names = [call.id for call in calls if isinstance(call, ast.Name)]
    known_names = set(WELL_KNOWN_FROM).union(*map(program.bound_names, ast.parse(setup).body))
    candidates = [name for name in names if name not in known_names and not hasattr(builtins, name)]
    return next(iter(candidates or names), "")


class _Text(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise ValueError("packed test cases that hold more than text")


def _cases(cases: Any) -> list[dict[str, Any]]:
    """Read test cases: a list, JSON, or packed like LiveCodeBench's private ones (pickle, zlib, base64)."""
    if isinstance(cases, str) and cases.strip()[:1] not in ("[", ""):
        try:
            cases = _Text(io.BytesIO(zlib.decompress(base64.b64decode(cases, validate=True)))).load()
        except (ValueError, zlib.error, pickle.UnpicklingError, EOFError) as error:
            raise ValueError(f"test cases that are neither JSON nor packed: {error}") from None
    return list(json.loads(cases) if isinstance(cases, str) and cases.strip() else cases or [])


def _functional(case: Mapping[str, Any]) -> str:
    """Write one assert; input has one JSON argument per line, and JSON knows no tuples."""
    inputs = [line for line in str(case["input"]).split("\n") if line.strip()]
    for text in (*inputs, case["output"]):
        json.loads(text)  # a broken case is an error of the reference, not of the reply
    arguments = ", ".join(f"json.loads({line!r})" for line in inputs)
    return f"assert plain(candidate({arguments})) == json.loads({case['output']!r})"


# --- examples
def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    names = ("prompt", "test", "entry_point", "metadata", "public_test_cases", "private_test_cases")
    answer = {name: item[name] for name in names if item.get(name)}
    if not answer.keys() & {"test", "public_test_cases"}:
        raise item.error("test", "missing, and so is 'public_test_cases'")
    starter = f"\n\n{item['starter_code']}" if item.get("starter_code") else ""
    if item.get("question_content"):
        return SYSTEM, f"{item['question_content']}{starter}", answer
    return SYSTEM, f"Complete this function:\n{item['prompt']}", answer


def _reference_problem(answer: Answer) -> str | None:
    try:
        ast.parse("\n".join(map(str, answer.get("test_list") or [answer.get("test") or ""])))
    except (SyntaxError, ValueError):
        return "the tests are not Python"
    return None


TASKS = (Task(
    "code", ("test", "test_list", "public_test_cases"), one_field=True, require=sandbox.require,
    judge=lambda example, reply: lambda: verify_code(example.answer, reply), system=SYSTEM,
    from_lic=_from_lic, answer_form="The answer is the complete Python code, with its imports.",
    reference_replies=lambda answer: [],  # an answer holds tests, no solution
    reference_problem=_reference_problem, shards_repeat=False,  # code is full of names nobody repeats
),)  # fmt: skip
