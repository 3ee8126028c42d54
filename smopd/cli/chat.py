"""`smopd chat`: talk to a model in the terminal; of a run, base and trained answer side by side."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from smopd import progress
from smopd.cli import options
from smopd.cli.options import Arg, Json, Opt, Set, Unsandboxed
from smopd.data import Example
from smopd.errors import EngineLost, UserError
from smopd.evaluation.evaluate import prepared_examples
from smopd.models import resolve_adapter
from smopd.printing import console, emit, say
from smopd.rollout.assembly import base_and_trained, evaluation_driver
from smopd.rollout.engine import Stop
from smopd.rollout.talk import Replies, Talk
from smopd.runs.target import Target, resolve_target
from smopd.settings import AUTO
from smopd.verify import verify
from smopd.verify.verdict import describe_verdict
from smopd.viewer.terminal import said, side_by_side

COLUMNS = 100  # terminal width from which two replies are shown side by side
_task_help = "Play this task of the data, shard by shard, and judge the last reply."
COMMANDS = """  /clean   what they would say to all of your messages in one
  /undo    take the last message back
  /reset   start over
  /help    this list
  /quit    end (so does Ctrl-D); Ctrl-C stops a reply"""


def chat(
    target: Annotated[str, Arg(metavar="MODEL|RUN", help=options.TARGET_HELP)],
    engine: options.Engine = None,
    url: options.Url = None,
    served_model: options.Served = None,
    adapter: options.Adapter = None,
    no_base: Annotated[bool, Opt("--no-base", help="For a run: only the trained model.")] = False,
    task: Annotated[str | None, Opt(metavar="ID", help=_task_help)] = None,
    data: options.Data = None,
    verifiers: options.Verifiers = None,
    system: Annotated[str | None, Opt(help="System prompt; a task brings its own.")] = None,
    allow_unsandboxed: Unsandboxed = False,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Chat with a model; for a run, base and trained answer side by side.

    Type one message per line, or pipe them in; /help lists the commands. Replies are greedy unless
    eval.temperature is set, and at most eval.tokens long.

    Examples:
      smopd chat runs/quickstart
      smopd chat runs/quickstart --task pocket-eval-0-17
      smopd chat Qwen/Qwen3-1.7B --set eval.temperature=0.7 --set model.dtype=bfloat16
      smopd chat gpt-4.1-mini --engine openai --url https://api.openai.com
    """
    option_settings = {
        "engine.kind": engine, "engine.servers": url or None, "engine.model": served_model,
        "data.eval": data, "data.verifiers": verifiers or None,
    }  # fmt: skip
    if task is not None and system is not None:
        raise UserError("--system: a task has its own system prompt; leave out --system or --task")
    if data is not None and task is None:
        raise UserError("--data: names where a task is taken from; add --task ID")
    resolved = resolve_target(target, option_settings, set_, adapter)
    if no_base and resolved.run is None:
        raise UserError(f"--no-base: {target} is no run folder: it answers alone")
    with ExitStack() as stack:
        screen = _Screen(as_json)
        example = _example(resolved, task, system or "")
        talk, facts = _open(stack, resolved, no_base, example, screen)
        if task is not None:
            with _stoppable(screen):
                _play(talk, screen)
        _converse(talk, screen)
    if as_json:
        sides = talk.sides.items()
        turns = [
            {"user": text, "replies": _replies({name: side.turns[number] for name, side in sides})}
            for number, text in enumerate(talk.told)
        ]
        shown = {"task": task, "system": example.system, "turns": turns, "clean": screen.clean}
        emit({**facts, **shown, "verdicts": screen.verdicts})


class _Screen:
    """Reads messages and shows replies, on standard error if standard output is for JSON."""

    def __init__(self, as_json: bool) -> None:
        self.console = console(stderr=as_json)
        self.typed = sys.stdin.isatty()
        self.prompts = self.typed and not as_json and sys.stdout.isatty()
        self.clean: list[dict[str, Any]] = []
        self.verdicts: dict[str, dict[str, Any]] | None = None  # on a task that was played to its end

    def lines(self) -> Iterator[str]:
        if self.typed:
            with suppress(ImportError):
                import readline  # noqa: F401 - makes the line editable
        while True:
            try:
                if (line := self._read()) is None:
                    return
            except KeyboardInterrupt:
                if not self.typed:
                    raise typer.Exit(130) from None
                say("", "(Ctrl-D or /quit ends)", err=True)
                continue
            # Half a surrogate pair cannot be turned into tokens.
            if line := line.encode("utf-8", "replace").decode("utf-8").strip():
                yield line

    def _read(self) -> str | None:
        if not self.typed:
            return sys.stdin.readline() or None
        say("", err=True)
        if not self.prompts:  # standard output is for something else
            say("you> ", err=True, end="")
        try:
            return input("you> ") if self.prompts else input()
        except EOFError:
            say("", err=True)
            return None

    def user(self, name: str, text: str) -> None:
        """Show a message that the user did not type here."""
        self.console.print()
        self.console.print(said(name, text, style="cyan"))

    def replies(self, replies: Replies, label: str = "") -> None:
        cut = {Stop.LENGTH: " (cut by the token limit)"}
        cells = [said(f"{name}{label}{cut.get(turn.stop, '')}", turn.text) for name, turn in replies.items()]
        side_by_side(self.console, cells, COLUMNS)

    def waiting(self, name: str) -> AbstractContextManager[object]:
        return progress.track(f"{name} is writing") if progress.console.is_terminal else nullcontext()


def _example(resolved: Target, task: str | None, system: str) -> Example:
    if task is None:
        return Example("chat", "", system, (), "", {})
    examples = {e.id: e for e in prepared_examples(resolved.config, "eval")}
    if task not in examples:
        near = get_close_matches(task, examples, 1)
        guess = f"did you mean {near[0]}? " if near else ""
        there = f"{guess}it has {len(examples)} tasks, the first is {next(iter(examples))}"
        raise UserError(f"--task {task}: no such task in {resolved.config.data.eval}; {there}")
    return examples[task]


def _open(
    stack: ExitStack, resolved: Target, no_base: bool, example: Example, screen: _Screen
) -> tuple[Talk, dict[str, Any]]:
    """Load the models; return them with the facts that --json prints."""
    config = resolved.config
    if config.engine.kind == AUTO:  # one conversation gains nothing from vLLM, and hf shares the weights
        config = config.model_copy(update={"engine": config.engine.model_copy(update={"kind": "hf"})})
    chosen, start = resolved.find_adapter(), config.model.adapter
    if resolved.run and chosen and not no_base:
        before = resolve_adapter(start) if start else None
        players = stack.enter_context(base_and_trained(config, chosen, before, progress.track))
    else:
        player = stack.enter_context(evaluation_driver(config, chosen, progress.track))
        players = {"trained" if resolved.run else "model": player}
    seed = ("eval" if example.shards else "chat", config.seed)
    facts = {"model": config.engine.model or config.model.path, "adapter": str(chosen) if chosen else None}
    return Talk(players, example, seed, screen.waiting), facts


def _play(talk: Talk, screen: _Screen) -> None:
    shards = talk.example.shards
    if talk.example.system:
        screen.user("system", talk.example.system)
    for number, shard in enumerate(shards, 1):
        screen.user(f"user, {number} of {len(shards)}", shard)
        screen.replies(talk.say(shard, number == len(shards)))
    from smopd.viewer.pages.conversations import answer_text

    right = answer_text(talk.example.task, talk.example.answer)
    verdicts = {name: verify(talk.example, side.final_text) for name, side in talk.sides.items()}
    screen.verdicts = {name: asdict(verdict) for name, verdict in verdicts.items()}
    for name, verdict in verdicts.items():
        parts = describe_verdict(verdict.correct, verdict.extracted, verdict.status)
        screen.console.print(f"{name}: {', '.join(filter(None, parts))}, expected {right}")


def _converse(talk: Talk, screen: _Screen) -> None:
    if screen.typed:
        say("Write a message; /help lists the commands, Ctrl-D ends.", err=True)
    for line in screen.lines():
        word = line.split()[0]
        if word == "/quit":
            return
        if word.startswith("/"):
            _command(word, talk, screen)
            continue
        if not screen.typed:
            screen.user("you", line)
        with _stoppable(screen):
            screen.replies(talk.say(line))


def _command(word: str, talk: Talk, screen: _Screen) -> None:
    if word == "/reset":
        talk.reset()
    if word in ("/reset", "/clean") and not talk.told:
        say("(nothing was said yet)", err=True)
    elif word == "/undo":
        last = talk.undo()
        say("(there is nothing to take back)" if last is None else f"(taken back: {last})", err=True)
    elif word == "/clean":
        with _stoppable(screen):
            text, replies = talk.clean()
            screen.user("all of it in one message", text)
            screen.replies(replies, ", told at once")
            screen.clean.append({"user": text, "replies": _replies(replies)})
    else:
        say(*([] if word == "/help" else [f"{word}: no such command"]), COMMANDS, err=True)


@contextmanager
def _stoppable(screen: _Screen) -> Iterator[None]:
    """Let Ctrl-C stop only this reply; on a terminal, show a UserError and continue the conversation."""
    try:
        yield
    except KeyboardInterrupt:
        if not screen.typed:
            raise typer.Exit(130) from None
        say("(stopped; that message is not in the history)", err=True)
    except UserError as error:
        if isinstance(error, EngineLost) or not screen.typed:
            raise
        say(f"error: {error}", "(that message is not in the history)", err=True)


def _replies(replies: Replies) -> dict[str, Any]:
    return {
        name: {"text": turn.text, "stop": str(turn.stop), "tokens": len(turn.reply) or turn.tokens}
        for name, turn in replies.items()
    }
