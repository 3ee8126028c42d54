"""Study files: the grid they mean, what two studies share, and every way to get one wrong."""

import tomllib

import pytest
from support.runs import complaint

from smopd.config import load_config
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.study.plan import check_files, load_study, parse_study, study_names

SMALL = """
recipe = "pocket"
seeds = [1, 2]
reference = "baseline"
[set]
train.steps = 3
"data.eval" = "pocket:eval:20"
[[arms]]
name = "baseline"
method = "baseline"
[[arms]]
name = "half"
set = {"objective.keep" = 0.5}
"""


def parse(text: str):
    return parse_study(tomllib.loads(text), "my.toml")


def test_every_arm_with_every_seed_and_its_own_settings():
    study = parse(SMALL)
    assert [(c.arm, c.seed) for c in study.cells] == [
        ("baseline", 1),
        ("half", 1),
        ("baseline", 2),
        ("half", 2),
    ]
    baseline, half = study.cells[:2]
    assert baseline.config == load_config(
        "pocket", ["train.steps=3", "data.eval=pocket:eval:20", "seed=1"], "baseline"
    )
    assert half.config == load_config(
        "pocket", ["train.steps=3", "data.eval=pocket:eval:20", "seed=1", "objective.keep=0.5"]
    )
    assert len({c.folder for c in study.cells}) == 4


def test_axes_and_models_are_crossed():
    study = parse(
        SMALL.replace('recipe = "pocket"', "")
        + '[axes]\noptim.lr = [1e-4, 2e-4]\n"objective.rho" = [0.0, 0.2]\n'
        + '[[models]]\nname = "a"\nrecipe = "pocket"\n'
        + '[[models]]\nname = "b"\nrecipe = "pocket"\nset = {lora.r = 8}\n'
    )
    assert len(study.cells) == 2 * 2 * 2 * 2 * 2
    assert {(c.config.optim.lr, c.config.objective.rho) for c in study.cells} == {
        (a, b) for a in (1e-4, 2e-4) for b in (0.0, 0.2)
    }
    assert {c.config.lora.r for c in study.cells if c.model == "b"} == {8}
    assert all(
        c.axes == {"optim.lr": c.config.optim.lr, "objective.rho": c.config.objective.rho}
        for c in study.cells
    )
    assert (
        study.base_folder("a").rpartition("-")[2] == study.base_folder("b").rpartition("-")[2]
    )  # the same untrained model


def test_studies_that_share_a_setting_share_the_cell():
    one, two = (
        parse(SMALL),
        parse(SMALL.replace('"half"', '"masked"').replace("seeds = [1, 2]", "seeds = [2, 3]")),
    )
    shared = {c.key for c in one.cells} & {c.key for c in two.cells}
    assert len(shared) == 2
    engine = parse(SMALL.replace("train.steps = 3", "train.steps = 3\nengine.cache_mb = 7"))
    assert {c.key for c in engine.cells} == {c.key for c in one.cells}  # no result depends on it


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('recipe = "pocket"', "", "recipe: missing"),
        ('recipe = "pocket"', 'recipe = "poket"', "poket"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "seeds"),
        ("seeds = [1, 2]", "seeds = []", "seeds"),
        ("seeds = [1, 2]", "seeds = [true]", "seeds"),
        ("seeds = [1, 2]", "sedes = [1, 2]", "did you mean 'seeds'"),
        ('reference = "baseline"', 'reference = "basline"', "did you mean 'baseline'"),
        ("train.steps = 3", "train.step = 3", "did you mean 'train.steps'"),
        ("train.steps = 3", 'train.steps = "three"', "[set]: train.steps"),
        ("train.steps = 3", "seed = 3", "give it as seeds"),
        ('method = "baseline"', 'method = "basline"', "did you mean 'baseline'"),
        ('method = "baseline"', 'methd = "baseline"', "unknown key 'methd'"),
        ('name = "half"', "", "[[arms]] 2: name"),
        ('name = "half"', 'name = "baseline"', "taken"),
        ('name = "half"', 'name = "base"', "untrained"),
        ('set = {"objective.keep" = 0.5}', 'set = {"objective.keep" = 5}', "[[arms]] 2: objective.keep"),
        ('set = {"objective.keep" = 0.5}', 'method = "baseline"', "same settings"),
        ('set = {"objective.keep" = 0.5}', 'set = {"eval.runs" = 2}', "evaluated alike"),
        ('seeds = [1, 2]', 'seeds = [1, 2]\nname = "My Study"', "name = 'My Study'"),
        ('seeds = [1, 2]', "seeds = [1, 2]\ntitle = 3", "title = 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(old, new, named):
    assert old in SMALL
    message = complaint(SMALL.replace(old, new), call=parse)
    assert named in message
    assert message.startswith("my.toml: ")


def test_axes_must_be_lists_of_good_values():
    assert "[axes]: train.steps" in complaint(SMALL + "[axes]\ntrain.steps = 5\n", call=parse)
    assert "[axes]: train.steps" in complaint(SMALL + '[axes]\ntrain.steps = [1, "x"]\n', call=parse)
    assert "arms: missing" in complaint('recipe = "pocket"\n', call=parse)


def test_command_line_settings_reach_every_cell(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SMALL, encoding="utf-8")
    study = load_study(path, ["train.steps=9", "optim.lr=1e-5"])
    assert {(c.config.train.steps, c.config.optim.lr) for c in study.cells} == {(9, 1e-5)}
    assert parse_study(study.tree, "again").cells == study.cells  # what is written down gives the same study
    with pytest.raises(UserError, match=r"did you mean 'train\.steps'"):
        load_study(path, ["train.step=9"])
    with pytest.raises(UserError, match="shipped studies"):
        load_study("miniatur")


def test_files_that_are_not_there_are_named_before_anything_runs():
    study = load_study("paper-ablation")
    with pytest.raises(UserError, match=r"data.train = train.jsonl.*--set data.train="):
        check_files(study)
    check_files(load_study("miniature"))


@pytest.mark.parametrize("name", study_names())
def test_a_shipped_study_loads(name):
    study = load_study(name)
    assert study.name == name
    assert study.title
    assert study.about
    family = name.split("-")[0]
    shared = {"miniature-keep": "miniature", "testbed-keep": "testbed", "real": "everyday"} | dict.fromkeys(
        (one for one in study_names() if one.startswith(("paper-", "everyday-", "database-"))), family
    )
    assert study.place == shared.get(name, name)
    assert bool(study.paper) == name.startswith("paper-")


def test_the_papers_studies_vary_what_they_say_and_keep_the_recipes_settings():
    cells = {name: load_study(name).cells for name in study_names() if name.startswith("paper-")}
    recipe = load_config("qwen3-1.7b")
    for cell in (c for group in cells.values() for c in group):
        assert (cell.config.lora, cell.config.teacher, cell.config.optim) == (
            recipe.lora, recipe.teacher, recipe.optim,
        )  # fmt: skip
    assert all(c.arm == c.config.method for c in cells["paper-ablation"])
    assert len({c.config.model.path for c in cells["paper-cross-scale"]}) == 3
    assert {c.key for c in cells["paper-200-steps"] if c.axes["train.steps"] == 100} <= {
        c.key for c in cells["paper-multi-seed"]
    }


def test_the_miniature_study_is_not_scored_on_what_the_recipe_was_chosen_on():
    scored = {c.config.data.eval for c in load_study("miniature").cells}
    (ids,) = ({e.id for e in load_examples(source)} for source in scored)
    assert not ids & {e.id for e in load_examples("pocket:eval:400")}
