"""What can be refused before torch is imported and a model is loaded: asked by training and by a dry run."""

from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import told_so_far
from smopd.evaluation.prepare import prepared_examples
from smopd.methods import in_file
from smopd.models.adapter_files import resolve_adapter
from smopd.models.loading import check_model
from smopd.objective.dry_run import try_parts
from smopd.rollout.assembly import refuse_endpoint


def check_training(config: Config) -> list[Example]:
    """The training examples; a UserError for a setting, a file or a model with which the run cannot begin."""
    refuse_endpoint(config)
    plan_of(config)
    examples = prepared_examples(config, "train")
    if config.train.teacher_every and not any(told_so_far(example, 0) for example in examples):
        unknown = f"no task of {config.data.train} knows what a middle reply should say"
        raise UserError(
            f"train.teacher_every: {unknown}; set it to 0, or train on such tasks (everyday:train)"
        )
    check_model(config)
    if config.model.adapter:
        resolve_adapter(config.model.adapter)
    if in_file(config.method):
        try_parts(plan_of(config), config.train.steps, examples)
    return examples
