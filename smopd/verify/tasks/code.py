"""The task code: the Python of a reply is run in the sandbox against the example's tests.

An answer holds HumanEval's `test` with a `check(candidate)`, MBPP's `test_list` of asserts, or the
`public_test_cases` of LiveCodeBench (functional or standard input). LiC's rule finds the code: the last block
that parses and defines a function, whatever its name, since the shards may never tell it. It leaves out
bodies without their `def`, and packages beyond the standard library.
"""

import ast
import base64
import builtins
import io
import json
import pickle
import re
import textwrap
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from smopd.verify import sandbox
from smopd.verify.sandbox import SandboxResult
from smopd.verify.task import Answer, Record, Task
from smopd.verify.verdict import Verdict

TIMEOUT = 6.0  # seconds for all tests of an example together
MEMORY_MB = 512
SYSTEM = (
    "You write Python. The user may reveal the task over several messages. Reply with one complete function "
    "that does everything the user has asked for, imports included, in a ```python block."
)
_MOST_CHARACTERS = 30_000  # of one program: parsing deeper nests than fit in there could exhaust the C stack
_MOST_PARSES = 40  # of a reply without fences
_TAG = re.compile(r"[ \t]*(?:[\w+#.-]*[ \t]*\r?\n|(?:python3?|py)\b)")
_CODE_LINE = re.compile(r"(?:from\s+[\w.]+\s+import|import|def|async\s+def|class)\s|@\w")
_FUTURE = re.compile(r"^from __future__ import [^\n]*$", re.MULTILINE)
_FUNCTIONAL = """
import json
def plain(value):
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
"""


@dataclass(frozen=True)
class _Tests:
    entry: str  # the function under test; none where a program reads standard input
    prelude: str = ""  # what of the prompt stands around the function
    tests: str = ""
    cases: tuple[tuple[str, str], ...] = ()  # standard input and the output wanted


def verify_code(answer: Answer, text: str, *, timeout: float = TIMEOUT) -> Verdict:
    """Run the code of a reply against all tests of an answer. Without a sandbox it raises a UserError."""
    try:
        asked = _tests_of(answer)
    except (ValueError, TypeError, KeyError, SyntaxError) as error:
        return Verdict(False, None, "error", f"the reference answer has no usable tests: {error}")
    if (code := extract_code(text, asked.entry)) is None:
        what = "function" if asked.entry else "code"
        return Verdict(False, None, "no_answer", f"no Python {what} in the reply")
    futures = "".join(f"{line}\n" for line in _FUTURE.findall(code))  # these must come first of all
    program = f"{futures}{asked.prelude}\n{_FUTURE.sub('', code) if futures else code}"
    run = partial(sandbox.run, program, memory_mb=MEMORY_MB)
    if asked.tests:
        result = run(tests=asked.tests, entry=asked.entry, timeout=timeout)
    else:
        result = _run_cases(run, asked, timeout)
    if result.status in ("timeout", "error"):
        return Verdict(False, code, result.status, result.detail)
    return Verdict(result.status == "ok", code, "ok", result.detail)


def _run_cases(run: Callable[..., SandboxResult], asked: _Tests, timeout: float) -> SandboxResult:
    deadline = time.monotonic() + timeout
    result = SandboxResult("error", "no tests", "")
    for number, (given, wanted) in enumerate(asked.cases, 1):
        if (left := deadline - time.monotonic()) <= 0:
            return SandboxResult("timeout", f"out of time before case {number}", "")
        result = run(stdin=given, timeout=left)
        if result.status != "ok":
            return result
        given_lines, wanted_lines = (text.strip().splitlines() for text in (result.output, wanted))
        if [line.rstrip() for line in given_lines] != [line.rstrip() for line in wanted_lines]:
            return SandboxResult("failed", f"case {number}: another output than expected", result.output)
    return result


# --- the tests of an answer
def _tests_of(answer: Answer) -> _Tests:
    metadata = answer.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    entry = str(answer.get("entry_point") or metadata.get("func_name") or "")
    if answer.get("test"):
        if not entry:
            raise ValueError("no name of the function under test (entry_point or metadata.func_name)")
        prelude = _around(answer, entry)
        return _Tests(entry, prelude, f"{prelude}\n{answer['test']}\ncheck(candidate)\n")
    if answer.get("test_list"):
        tests = [str(answer.get("test_setup_code") or ""), *map(str, answer["test_list"])]
        return _Tests(entry or _called(tests[1]), "", "\n".join(tests))
    cases = [case for key in ("public_test_cases", "private_test_cases") for case in _cases(answer.get(key))]
    if not cases:
        raise ValueError("neither test, test_list nor public_test_cases")
    if cases[0].get("testtype", "functional") == "stdin":
        return _Tests("", cases=tuple((str(case["input"]), str(case["output"])) for case in cases))
    if not entry:
        raise ValueError("no name of the function under test (metadata.func_name)")
    return _Tests(entry, _around(answer, entry), _FUNCTIONAL + "\n".join(map(_functional, cases)))


def _around(answer: Answer, entry: str) -> str:
    """The imports and helpers of a prompt: everything but the unfinished function."""
    body = _parse(str(answer.get("prompt") or "")).body
    return "\n".join(ast.unparse(node) for node in body if getattr(node, "name", None) != entry)


def _called(test: str) -> str:
    """The function that an assert is about: the first name called that is no builtin, if there is one."""
    calls = [node.func for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Call)]
    names = [call.id for call in calls if isinstance(call, ast.Name)]
    return next((name for name in names if not hasattr(builtins, name)), next(iter(names), ""))


class _Text(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise ValueError("packed test cases that hold more than text")


def _cases(cases: Any) -> list[dict[str, Any]]:
    """Test cases: a list, JSON, or as LiveCodeBench packs its private ones (pickled, compressed, base64)."""
    if isinstance(cases, str) and cases.strip()[:1] not in ("[", ""):
        try:
            cases = _Text(io.BytesIO(zlib.decompress(base64.b64decode(cases, validate=True)))).load()
        except (ValueError, zlib.error, pickle.UnpicklingError, EOFError) as error:
            raise ValueError(f"test cases that are neither JSON nor packed: {error}") from None
    return list(json.loads(cases) if isinstance(cases, str) and cases.strip() else cases or [])


def _functional(case: Mapping[str, Any]) -> str:
    """One assert: an argument a line, and the result, all in JSON, which knows no tuples."""
    given = [line for line in str(case["input"]).split("\n") if line.strip()]
    for text in (*given, case["output"]):
        json.loads(text)  # a broken case is an error of the reference, not of the reply
    arguments = ", ".join(f"json.loads({line!r})" for line in given)
    return f"assert plain(candidate({arguments})) == json.loads({case['output']!r})"


# --- the code in a reply
def extract_code(text: str, entry: str = "") -> str | None:
    """The last block of a reply that defines `entry` (empty: that is Python), else any function, or None."""
    fallback = None
    for block in reversed(list(_fenced(text) if "```" in text else _unfenced(text))):
        names = _functions(block)
        if names is not None and (not entry or entry in names):
            return block
        fallback = fallback or (block if names else None)
    return fallback


def _fenced(text: str) -> Iterator[str]:
    # The last block may lack its end: a reply cut short still counts if it parses.
    for block in text.split("```")[1::2]:
        tag = _TAG.match(block)
        code = textwrap.dedent(block[tag.end() :] if tag else block).strip()
        if 0 < len(code) <= _MOST_CHARACTERS:
            yield code


def _unfenced(text: str) -> Iterator[str]:
    """Code within prose: from a line that begins like code up to where it stops being Python."""
    lines, parses, done = text.split("\n"), 0, 0
    for start in (number for number, line in enumerate(lines) if _CODE_LINE.match(line)):
        end = len(lines)
        while start >= done and end > start and parses < _MOST_PARSES:
            parses += 1
            code = "\n".join(lines[start:end])
            tree = 0 if len(code) > _MOST_CHARACTERS else _tree(code)
            if isinstance(tree, ast.Module):
                done = end
                yield code.strip()
                break
            end = min(end - 1, start + max(tree - 1, 0))


def _tree(code: str) -> ast.Module | int:
    """The syntax tree, or the line where the code stops being Python (0 where none is known)."""
    try:
        return _parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return (isinstance(error, SyntaxError) and error.lineno) or 0


def _functions(code: str) -> set[str] | None:
    """The functions that code defines, methods of a class Solution included; None where it is not Python."""
    if isinstance(tree := _tree(code), int):
        return None
    body = tree.body
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == "Solution"]
    names: set[str] = set()
    for node in [*body, *(inner for found in classes for inner in found.body)]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _parse(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\d" in a reply is none of our user's business
        return ast.parse(code)


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


TASK = Task(
    "code", ("test", "test_list", "public_test_cases"), one_field=True, require=sandbox.require,
    judge=lambda example, reply: lambda: verify_code(example.answer, reply), system=SYSTEM,
    from_lic=_from_lic,
    answer_form="The answer is the complete Python code, with its imports.",
    reference_replies=lambda answer: [],  # an answer holds tests, no solution
    reference_problem=_reference_problem, shards_repeat=False,  # code is full of names nobody repeats
)  # fmt: skip
