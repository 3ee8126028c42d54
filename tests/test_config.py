"""The config tree: one place for each error, and a written config that loads back equal."""

import math
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.runs import complaint, flat

from smopd.config import RECIPES, Config, config_class, load_config, recipe_names
from smopd.config_io import config_hash, describe_fields, flatten, leaves, nest, to_toml
from smopd.methods import METHODS
from smopd.settings import ENGINES, LARGEST

QWEN3 = ["qwen3-1.7b", "qwen3-4b", "qwen3-8b"]
TABLES = ", ".join(dict.fromkeys(key.split(".")[0] for key in leaves(Config) if "." in key))
Write = Callable[[str], str]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes recipe.toml into the working folder; its name, so that messages can be compared whole."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        Path("recipe.toml").write_text(text, encoding="utf-8")
        return "recipe.toml"

    return write


# Values.


def test_defaults_obey_their_own_bounds() -> None:
    assert Config.model_validate(Config().model_dump()) == Config() == load_config(None)


def test_every_setting_is_described() -> None:
    rows = list(describe_fields(Config))
    assert [key for key, _, _ in rows] == list(leaves(Config))
    assert {key: default for key, default, _ in rows} == flat(Config())
    assert all(description for _, _, description in rows)


def test_the_tree_is_frozen_and_its_lists_are_not_shared() -> None:
    with pytest.raises(ValidationError):
        Config().optim.lr = 1.0
    one = Config()
    one.lora.targets.append("extra")
    assert "extra" not in Config().lora.targets


def test_importing_the_config_does_not_import_torch() -> None:
    code = "import sys, smopd.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Recipes.


@pytest.mark.parametrize("name", QWEN3)
def test_the_defaults_are_what_the_qwen3_recipes_spell_out(name: str) -> None:
    written = flatten(tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8")))
    tables, defaults = ("objective", "lora", "teacher", "optim"), flat(Config())
    recipe_settings = {key: value for key, value in written.items() if key.split(".")[0] in tables}
    assert len(recipe_settings) > 20
    assert recipe_settings == {key: defaults[key] for key in recipe_settings}
    assert written["model.path"].lower() == f"qwen/{name}"


def test_pocket_recipe() -> None:
    config = load_config("pocket")
    assert config.optim.warmup_steps < config.train.steps
    assert config.train.rollouts % config.train.micro_batch == 0


# Overrides.


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("optim.lr=1e-4", "optim.lr", 1e-4),
        ("optim.lr=1", "optim.lr", 1.0),
        (" seed = 7 ", "seed", 7),
        ("chat.thinking=true", "chat.thinking", True),
        ("objective.clip=inf", "objective.clip", math.inf),
        ("model.path=my/model", "model.path", "my/model"),
        ("model.path='my/model'", "model.path", "my/model"),
        ('model.path="a\\tb"', "model.path", "a\tb"),
        ("model.path=a=b", "model.path", "a=b"),
        ("data.train=C:\\new\\train.jsonl", "data.train", "C:\\new\\train.jsonl"),
        ("data.train=a\nseed = 3", "data.train", "a\nseed = 3"),
        ("model.adapter=", "model.adapter", ""),
        ('eval.views=["full"]', "eval.views", ["full"]),
        ("eval.views=full,sharded", "eval.views", ["full", "sharded"]),
        ("train.trackers=wandb", "train.trackers", ["wandb"]),
        ("lora.targets=q_proj", "lora.targets", ["q_proj"]),
        ("lora.targets=[q_proj, v_proj]", "lora.targets", ["q_proj", "v_proj"]),  # quotes lost to a shell
        ("train.recompute=True", "train.recompute", True),  # as docs/configuration.md prints it
        ("train.save_rollouts=False", "train.save_rollouts", False),
        ("optim={lr = 0.5}", "optim.lr", 0.5),
    ],
)
def test_set_forms(text: str, key: str, value: Any) -> None:
    assert flat(load_config(None, [text])) == flat(Config()) | {key: value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim.lr", "--set optim.lr: expected KEY=VALUE, such as optim.lr=1e-4"),
        ("=3", "--set =3: expected KEY=VALUE, such as optim.lr=1e-4"),
        ("optim.lr=fast", '--set: optim.lr = "fast": expected a finite number greater than 0'),
        ("chat.thinking=yes", '--set: chat.thinking = "yes": expected true or false'),
        (
            "eval.views=fll",
            '--set: eval.views = "fll": expected a non-empty list of '
            '"full", "concat", "sharded", "recap", "snowball", "simulated", "teacher"; '
            "did you mean 'full'?",
        ),
        ("use_vllm=true", "--set: use_vllm is engine.kind here: pass engine.kind=vllm"),
        ("bf16=True", "--set: bf16 is model.dtype here: pass model.dtype=bfloat16"),
        ("bf16=False", "--set: bf16 is one value of model.dtype here: leave it out, or set that"),
        (
            "train.num_train_epochs=3",
            "--set: num_train_epochs: there are no epochs here: set train.steps, of train.rollouts "
            "conversations each",
        ),
        ("optim.learning_rate=1", "--set: unknown key 'optim.learning_rate'; did you mean 'optim.lr'?"),
        ("teacher=3", "--set: teacher = 3: expected a table with the keys decay, every"),
        (
            "teacher.decay.x=3",
            "--set: teacher.decay = a table: expected a number of at least 0 and at most 1",
        ),
        (
            'seed=1\nmethod="outcome"',
            '--set: seed = "1\\nmethod=\\"outcome\\"": expected a whole number of at least 0',
        ),
    ],
)
def test_set_complaints(text: str, message: str) -> None:
    assert complaint(None, [text]) == message


def test_a_setting_of_other_methods_is_known_as_theirs() -> None:
    message = complaint("pocket", ["objective.keep=0.5"], "grpo")
    assert message.startswith(
        "--set: objective.keep is not a setting of grpo; it belongs to baseline, entropy, "
    )
    assert message.endswith(", ...")
    message = complaint("pocket", ["objective.kepe=0.5"], "entropy")
    assert message == "--set: unknown key 'objective.kepe'; did you mean 'objective.keep'?"


# Complaints about files.


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("optim.lr", '"1e-4"', "a finite number greater than 0"),
        ("optim.lr", "true", "a finite number greater than 0"),
        ("optim.lr", "inf", "a finite number greater than 0"),
        ("optim.lr", "0", "a finite number greater than 0"),
        ("optim.beta1", "1.0", "a number of at least 0 and less than 1"),
        ("train.steps", "true", "a whole number of at least 1"),
        ("train.steps", "1.5", "a whole number of at least 1"),
        ("train.steps", "100.0", "a whole number of at least 1"),
        ("train.steps", "0", "a whole number of at least 1"),
        ("seed", "-1", "a whole number of at least 0"),
        ("chat.thinking", "1", "true or false"),
        ("model.path", "3", "a non-empty string"),
        ("model.path", '""', "a non-empty string"),
        ("model.adapter", "3", "a string"),
        ("objective.keep", "0", "a number greater than 0 and at most 1"),
        ("objective.keep", "1.1", "a number greater than 0 and at most 1"),
        ("objective.eta", "nan", "a number of at least 0 and at most 1"),
        ("objective.clip", "0", "a number greater than 0"),
        ("objective.clip", "nan", "a number greater than 0"),
        ("objective.clip", "-inf", "a number greater than 0"),
        ("objective.clip_level", '"token"', 'one of "position", "vocab"'),
        ("objective.clip_level", "1", 'one of "position", "vocab"'),
        ("lora.targets", "[]", "a non-empty list of strings"),
        ("lora.targets", '["q_proj", 3, 4]', "a non-empty list of strings"),
        (
            "eval.views",
            '["full", "half"]',
            'a non-empty list of "full", "concat", "sharded", "recap", "snowball", "simulated", "teacher"',
        ),
        ("optim.lr", "2020-01-01", "a finite number greater than 0"),
    ],
)
def test_wrong_values(recipe: Write, key: str, value: str, expected: str) -> None:
    assert complaint(recipe(f"{key} = {value}\n")) == f"recipe.toml: {key} = {value}: expected {expected}"


@pytest.mark.parametrize("key", [key for key, field in leaves(Config).items() if field.annotation is float])
def test_no_number_is_nan_and_only_the_clip_is_infinite(key: str) -> None:
    assert f"--set: {key} = nan" in complaint(None, [f"{key}=nan"])
    if key != "objective.clip":
        assert f"--set: {key} = inf" in complaint(None, [f"{key}=inf"])


@pytest.mark.parametrize(
    ("key", "rest"),
    [
        ("optim.learning_rate", "did you mean 'optim.lr'?"),
        ("optim.lrr", "did you mean 'optim.lr'?"),
        ("optim.Weight_Decay", "did you mean 'optim.weight_decay'?"),
        ("train.learning_rate", "did you mean 'optim.lr'?"),
        ("optimizer.lr", "did you mean 'optim.lr'?"),
        ("lr", "did you mean 'optim.lr'?"),
        ("sead", "did you mean 'seed'?"),
        ("train.max_steps", "did you mean 'train.steps'?"),
        ("train.batch", "did you mean 'train.micro_batch'?"),
        ("optim.keep", "did you mean 'objective.keep'?"),
        ("lora.rank", "did you mean 'lora.r'?"),
        ("lora.lora_alpha", "did you mean 'lora.alpha'?"),
        ("eval.top_p", "did you mean 'rollout.top_p'?"),
        ("teacher.zzz", "the keys of [teacher] are decay, every"),
        ("optim.adam.zzz", f"the tables are {TABLES}"),
        ("zzz", f"the tables are {TABLES}"),
    ],
)
def test_unknown_keys_name_the_nearest(recipe: Write, key: str, rest: str) -> None:
    assert complaint(recipe(f"{key} = 1\n")) == f"recipe.toml: unknown key '{key}'; {rest}"


def test_a_quoted_key_with_a_dot_is_shown_as_such(recipe: Write) -> None:
    assert (
        complaint(recipe('"optim.lr" = 1\n'))
        == "recipe.toml: unknown key '\"optim.lr\"'; did you mean 'optim.lr'?"
    )


def test_an_unknown_table_is_reported_key_by_key(recipe: Write) -> None:
    lines = complaint(recipe("[optimizer]\nlr = 1\nwarmup = 3\n[empty]\n")).splitlines()
    assert lines[:2] == [
        "recipe.toml: unknown key 'optimizer.lr'; did you mean 'optim.lr'?",
        "recipe.toml: unknown key 'optimizer.warmup'; did you mean 'optim.warmup_steps'?",
    ]
    assert lines[2].startswith("recipe.toml: unknown key 'empty'")


def test_a_value_in_place_of_a_table(recipe: Write) -> None:
    table = "expected a table with the keys decay, every"
    assert complaint(recipe("teacher = 3\n")) == f"recipe.toml: teacher = 3: {table}"
    assert table in complaint(recipe("[[teacher]]\ndecay = 1\n"))


def test_everything_wrong_is_said_at_once(recipe: Write) -> None:
    path = recipe('method = "nope"\n[optim]\nlr = "a"\nlearning_rate = 1\n[train]\nsteps = 0\n')
    lines = complaint(path, ["seed=x", "train", "eval.view=1"]).splitlines()
    assert len(lines) == 7
    assert [line.split(":")[0] for line in lines] == ["recipe.toml"] * 4 + ["--set", "--set train", "--set"]


def test_no_jargon_and_short_values(recipe: Write) -> None:
    text = complaint(recipe(f'[optim]\nlr = "{"x" * 500}"\n[model]\ndtype = 3\n'))
    assert "pydantic" not in text
    assert "http" not in text
    assert max(map(len, text.splitlines())) < 160


def test_broken_toml_names_file_line_and_column(recipe: Write) -> None:
    text = complaint(recipe("seed = 1\n[optim\nlr = 1\n"))
    assert text.startswith("recipe.toml: not valid TOML: ")
    assert "at line 2, column" in text
    assert "not valid TOML" in complaint(recipe("seed = 1\nseed = 2\n"))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = f"The shipped recipes are {', '.join(recipe_names())}"
    assert complaint("zzz.toml") == f"zzz.toml: no such recipe or file. {shipped}"
    assert complaint("poket") == f"poket: no such recipe or file; did you mean 'pocket'? {shipped}"
    assert complaint(Path("qwen3-4b.toml")).endswith(f"did you mean 'qwen3-4b'? {shipped}")
    assert complaint(str(tmp_path)).endswith("is a folder; expected a recipe's name or a TOML file")
    Path("latin.toml").write_bytes(b'method = "\xe9"')
    assert complaint("latin.toml") == (
        "latin.toml, line 1: not UTF-8 text (byte 0xe9 at 11); save it as UTF-8"
    )
    for half in ("data.train=\ud800", "data.verifiers=\ud800", "train.steps=[\udc80]"):
        assert complaint("pocket", [half]).endswith("not UTF-8 text")
    Path("run").mkdir()
    Path("run/config.toml").write_text(to_toml(Config()))
    assert complaint("run") == f"run: is a run folder; its settings are in {Path('run/config.toml')}"


def test_a_file_beside_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pocket").write_text("seed = 9\n")
    assert load_config("pocket").seed == 42
    assert load_config(tmp_path / "pocket").seed == 9
    Path("mine.toml").write_bytes(b"\xef\xbb\xbfseed = 9\r\n")  # as a Windows editor saves it
    assert load_config("mine.toml").seed == 9


# Writing and comparing.


# Methods whose section is that of the tree at hand.
FAMILY = [name for name, method in METHODS.items() if config_class(name) is Config]
NAMED = {"method": FAMILY, "engine.kind": list(ENGINES)}


def without_null(text: str) -> str:
    return text.replace("\0", "0")


def values(key: str) -> st.SearchStrategy[Any]:
    """Any valid value of one setting."""
    field = leaves(Config)[key]
    kind: Any = field.annotation
    limits: dict[str, Any] = {}
    for bound in field.metadata:
        limits |= {
            name: getattr(bound, name)
            for name in ("gt", "ge", "lt", "le", "min_length")
            if hasattr(bound, name)
        }
    if key in NAMED:
        return st.sampled_from(NAMED[key])
    if kind is bool:
        return st.booleans()
    if kind is str:
        return st.text(min_size=limits.get("min_length", 0)).map(without_null)
    if kind is int:
        return st.integers(limits["ge"], limits.get("le", LARGEST))
    if kind is float:
        low, high = limits.get("gt", limits.get("ge")), limits.get("lt", limits.get("le"))
        unbounded = key == "objective.clip"
        return st.floats(
            low,
            high,
            exclude_min="gt" in limits,
            exclude_max="lt" in limits,
            allow_nan=False,
            allow_infinity=unbounded,
        )
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    (item,) = get_args(kind)
    return st.lists(
        st.text().map(without_null) if item is str else st.sampled_from(get_args(item)), min_size=1
    )


@settings(max_examples=150)
@given(st.fixed_dictionaries({}, optional={key: values(key) for key in leaves(Config)}))
def test_a_written_config_loads_back_equal(chosen: dict[str, Any]) -> None:
    config = Config.model_validate(nest(chosen))
    text = to_toml(config)
    assert flatten(tomllib.loads(text)) == flat(config)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(text, encoding="utf-8", newline="\n")
        again = load_config(path)
    assert again == config
    assert config_hash(again) == config_hash(config)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["pocket", *QWEN3])
def test_a_run_folders_config_is_the_config_of_the_run(tmp_path: Path, name: str, method: str) -> None:
    infinite = ["objective.clip=inf"] if config_class(method) is Config else []
    config = load_config(name, infinite, method=method)
    (tmp_path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    assert load_config(tmp_path / "config.toml") == config
    assert "#" not in to_toml(config)


def test_the_hash_sees_every_setting() -> None:
    seen = {config_hash(Config())}
    other = {
        bool: lambda v: not v,
        int: lambda v: v + 1,
        float: lambda v: v / 2 + 0.3,
        str: lambda v: v + "x",
    }
    for key, value in flat(Config()).items():
        kind: Any = leaves(Config)[key].annotation
        if key in NAMED:
            value = NAMED[key][-1]
        elif get_origin(kind) is Literal:
            value = next(choice for choice in get_args(kind) if choice != value)
        else:
            (item,) = get_args(kind) if isinstance(value, list) else (None,)
            some = list(get_args(item)[:1]) if get_origin(item) is Literal else ["x"]
            value = (value[:1] or some) if isinstance(value, list) else other[kind](value)
        seen.add(config_hash(Config.model_validate(nest({key: value}))))
    assert len(seen) == len(leaves(Config)) + 1


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "from smopd.config import *; from smopd.config_io import *; print(config_hash(load_config('pocket')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == config_hash(load_config("pocket"))
