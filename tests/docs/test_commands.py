"""Every command of the documentation is one that the command line takes, and the cheap ones run."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.doc_pages import PAGES, ROOT, Command, commands, inline
from typer.main import get_command

from smopd.cli.main import app
from smopd.config import Config, load_config, recipe_names
from smopd.config_io import describe_fields
from smopd.methods import METHODS
from smopd.study.plan import study_names

SMOPD = get_command(app)  # built once: it takes longer than a command to parse
OF_PAGE = {page: commands(page.read_text(encoding="utf-8")) for page in PAGES}
OF_PAGE = {page: page_commands for page, page_commands in OF_PAGE.items() if page_commands}
PLACEHOLDER = re.compile(r"[A-Z]+|\.\.\.|.*\.toml")
ONE_FILE = ("my_divergence", "my_selector", "my_context", "my_group", "my_engine")  # run by test_extending.py


def named(args: tuple[str, ...]) -> bool:
    """Whether the words are the name of a verb and nothing else."""
    verb: Any = SMOPD
    for word in args:
        verb = getattr(verb, "commands", {}).get(word)
    return verb is not None


def parsed(args: tuple[str, ...]) -> dict[str, Any]:
    """The values of a verb's options, by the real parser; nothing is run."""
    command: Any = SMOPD
    context = command.make_context("smopd", list(args))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name or "run", rest, parent=context)
    return context.params


def problem(command: Command) -> str | None:
    """Why a command would be refused before it reads a file."""
    args = command.words
    if not command.fenced and named(args):
        return None
    try:
        params = parsed(args)
    except Exception as error:  # typer has the parser's errors under a private name
        # A sentence may name a verb with an option and nothing else.
        return None if "Missing" in str(error) and not command.fenced else str(error)
    recipes = [*params.get("recipes", ()), *([params["recipe"]] if "recipe" in params else [])]
    if args[0] == "study" and "source" in params:
        known, recipes = study_names(), [params["source"]]
    else:
        known = recipe_names()
    unknown = [name for name in recipes if name not in known and not PLACEHOLDER.fullmatch(name)]
    if unknown:
        return f"{unknown[0]}: neither shipped nor a file"
    method, overrides = params.get("method"), params.get("set_") or []
    if any(name in word for word in args for name in ONE_FILE) or "KEY=VALUE" in overrides:
        return None
    shipped = [name for name in recipes if name in recipe_names()]
    try:
        load_config((shipped or ["pocket"])[0], overrides, method)
    except Exception as error:
        return str(error)
    return None


def cheap(command: Command, folder: Path) -> tuple[str, ...] | None:
    """What to run of a command: itself, or its dry run; None where it would take long or need files."""
    args, first = command.words, command.words[:2]
    if command.quoted or named(args) or any(name in word for word in args for name in ONE_FILE):
        return args if args == ("methods",) else None
    if first in (("study", "list"), ("study", "power"), ("methods", "show"), ("data", "pocket")):
        return None if any(re.fullmatch("[A-Z]+", word) for word in args) else args
    if first == ("data", "check"):
        return args if (folder / args[2]).is_file() else None
    if args[0] == "plan":
        return args if command.fenced and set(parsed(args)["recipes"]) <= set(recipe_names()) else None
    if args[0] in ("train", "study") and args[1] in (*recipe_names(), *study_names()):
        return args if "--dry-run" in args else (*args, "--dry-run")
    return None


@pytest.mark.parametrize("page", OF_PAGE, ids=lambda page: page.name)
def test_the_parser_takes_every_command(page):
    refused = [f"{' '.join(c.words)}: {why}" for c in OF_PAGE[page] if (why := problem(c))]
    assert refused == []


# docs/methods.md has one command a method: its tests train each of them.
@pytest.mark.parametrize("page", [p for p in OF_PAGE if p.stem != "methods"], ids=lambda page: page.name)
def test_cheap_commands_run(page, smopd, tmp_path):
    ran = set()
    for command in OF_PAGE[page]:
        args = cheap(command, tmp_path)
        if args and args not in ran:
            ran.add(args)
            code, out, err = smopd(*args)
            if "needs a GPU, and torch sees none" in err:  # so a dry run says, as training would
                continue
            assert code == 0, f"{' '.join(args)}\n{err}"
            assert out


def test_a_wrong_command_is_found():
    def of(line: str) -> str:
        (command,) = commands(f"```\n{line}\n```")
        return problem(command) or ""

    assert of("smopd train pocket --out runs/x") == ""
    assert "No such option" in of("smopd train pocket --ouf runs/x")
    assert "No such command" in of("smopd data chekc train.jsonl")
    assert "Missing" in of("smopd export")
    assert "neither shipped" in of("smopd train qwen3-2b")
    assert "neither shipped" in of("smopd study paper-ablations")
    assert "objective.keep" in of("smopd train pocket --set objective.kepp=0.5")
    assert "entropie" in of("smopd train pocket --method entropie")
    assert "nothere" in of("CUDA_VISIBLE_DEVICES=0 torchrun --nproc-per-node 8 -m smopd.cli train nothere")
    (sentence,) = commands("With `smopd plan --method` it ...")
    assert "No such option" in str(problem(sentence))


def test_settings_that_pages_name_exist():
    """`train.steps`, `objective.clip=inf`: between backticks, a section's name, a dot and a key."""
    tables = {key for key, _, _ in describe_fields(Config)}
    for method in METHODS.values():
        tables |= {f"objective.{name}" for name in method.section.model_fields}
    sections = {key.split(".")[0] for key in tables if "." in key}
    files = ("py", "md", "toml", "json", "jsonl", "safetensors")
    for page in PAGES:
        for code in inline(page.read_text(encoding="utf-8")):
            match = re.fullmatch(r"([a-z]+)\.([a-z_0-9]+)( ?=.*)?", code)
            if match and match[1] in sections and match[2] not in files:
                assert f"{match[1]}.{match[2]}" in tables, f"{page.name}: {code}"


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets |= {"real"} if "<!-- real table -->" in readme else set()
    for page in PAGES:
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert target in targets, f"{page.name}: make {target}"
