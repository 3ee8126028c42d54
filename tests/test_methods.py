"""The declared methods: their values are the paper's, one switch chooses among them, and each source of a
value has its rank.
"""

import ast
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.runs import complaint, flat

import smopd
from smopd.config import RECIPES, Config, config_class, load_config, recipe_names
from smopd.config_io import check, flatten, leaves, nest
from smopd.methods import METHODS, Method


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_declaration_is_complete_and_valid(method: Method) -> None:
    assert METHODS[method.name] is method
    assert all([method.title, method.summary, method.paper])
    tree = config_class(method.name)
    assert set(method.settings) <= set(leaves(tree))
    assert check(tree, nest(method.settings), method.name) == []
    assert not {"method", "seed"} & set(method.settings)


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_leaves_the_methods_keys_to_the_method(name: str) -> None:
    written = flatten(tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8")))
    keys = {key for method in METHODS.values() for key in method.settings if key.startswith("objective.")}
    assert not keys & set(written)
    for method in METHODS.values():
        config = load_config(name, method=method.name)
        assert config.method == method.name
        assert {key: flat(config)[key] for key in method.settings} == method.settings


@pytest.mark.parametrize("name", ["qwen3-1.7b", "qwen3-4b", "qwen3-8b"])
def test_one_switch_changes_the_method_and_nothing_else(name: str) -> None:
    base = flat(load_config(name, method="baseline"))
    for method in METHODS.values():
        other = flat(load_config(name, method=method.name))
        changed = {key for key in base.keys() & other.keys() if base[key] != other[key]}
        if config_class(method.name) is not Config:  # another table of its own
            changed = {key for key in changed if not key.startswith("objective.")}
        assert changed <= {"method", *method.settings, *METHODS["baseline"].settings}
        assert load_config(name, [f"method={method.name}"]) == load_config(name, method=method.name)


def test_the_combined_method_is_the_mask_and_the_outcome_together() -> None:
    plain, mask, outcome, both = (
        flat(load_config("qwen3-1.7b", method=method))
        for method in ("baseline", "entropy", "outcome", "combined")
    )
    changed = {key: other[key] for other in (mask, outcome) for key in plain if other[key] != plain[key]}
    assert plain | changed | {"method": "combined"} == both
    assert set(changed) == {"method", "objective.keep", "objective.eta"}


def test_what_other_methods_set_outside_their_table_stays_the_recipes(tmp_path: Path) -> None:
    path = write(tmp_path, "[teacher]\ndecay = 0.9\n[objective]\nkeep = 0.5\n")
    switched = load_config(path, method="baseline")
    assert (switched.teacher.decay, switched.objective.keep) == (0.9, 1.0)
    assert load_config(path, method="unisd").teacher.decay == METHODS["unisd"].settings["teacher.decay"]


def test_precedence(tmp_path: Path) -> None:
    path = write(tmp_path, 'method = "outcome"\nseed = 7\n[optim]\nlr = 1e-3\n')
    config = load_config(path)
    assert (config.objective.keep, config.objective.eta, config.seed, config.optim.lr) == (1.0, 0.2, 7, 1e-3)
    assert load_config(path, ["optim.lr=1e-2", "seed=8"]).optim.lr == 1e-2
    assert load_config(path, ["seed=8", "seed=9"]).seed == 9
    assert load_config(path, method="combined").objective.keep == 0.8
    assert load_config(path, ["objective.eta=0.5"], method="combined").objective.eta == 0.5


def test_a_file_wins_over_the_method_key_by_key(tmp_path: Path) -> None:
    path = write(tmp_path, 'method = "combined"\n[objective]\nkeep = 0.5\n')
    assert load_config(path).objective.keep == 0.5
    assert load_config(path).objective.eta == 0.2
    assert load_config(path, ["objective.keep=0.6"]).objective.keep == 0.6


def test_a_switch_on_the_command_line_wins_over_the_file_but_not_over_a_set_key(tmp_path: Path) -> None:
    path = write(tmp_path, 'method = "combined"\n[objective]\nkeep = 0.5\n')
    for switched in (load_config(path, method="outcome"), load_config(path, ["method=outcome"])):
        assert (switched.method, switched.objective.keep, switched.objective.eta) == ("outcome", 1.0, 0.2)
    assert load_config(path, ["objective.keep=0.6"], method="outcome").objective.keep == 0.6


def test_no_method_is_named_outside_its_package() -> None:
    names = set(METHODS) - {"entropy", "outcome"}  # which are also metrics
    root = Path(smopd.__file__).parent
    named = [
        f"{path.relative_to(root)}:{node.lineno}: {node.value}"
        for path in sorted(root.rglob("*.py"))
        if path.parent.name != "methods"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert named == []


def test_unknown_methods(tmp_path: Path) -> None:
    everything = f"The methods are {', '.join(METHODS)}"
    path = write(tmp_path, 'method = "entrpy"\n')
    assert (
        complaint(path)
        == f"{path}: method = \"entrpy\": unknown method; did you mean 'entropy'? {everything}"
    )
    assert complaint(None, ["method=combine"]).startswith(
        "--set: method = \"combine\": unknown method; did you mean 'combined'?"
    )
    assert complaint("pocket", method="xyz") == f'--method: method = "xyz": unknown method. {everything}'
    assert "contradicts --method entropy" in complaint("pocket", ["method=outcome"], method="entropy")
    assert load_config("pocket", ["method=outcome"], method="outcome").objective.eta == 0.2
    with pytest.raises(ValidationError):
        Config(method="xyz")
