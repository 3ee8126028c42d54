"""A user's script: the trainer, `smopd.train` and `smopd.evaluate`, alone or under torchrun.

    torchrun --nproc-per-node 2 python_processes.py FOLDER

Every process writes what it got back to FOLDER/process-RANK.json.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from support.apples import EXAMPLES, SMALL, last_number

SETTINGS = SMALL | {"train.rollouts": 3, "train.micro_batch": 1, "optim.lr": 5e-6, "optim.warmup_steps": 0}


def work(folder: Path) -> dict[str, Any]:
    """All of it in `folder`; what a process knows afterwards."""
    import smopd

    settings = {key: value for key, value in SETTINGS.items() if key != "train.micro_batch"}
    args = smopd.SMOPDConfig(output_dir=str(folder / "trainer"), max_steps=2, overrides=SETTINGS)
    trainer = smopd.SMOPDTrainer(
        "pocket", args, EXAMPLES, EXAMPLES[:2], verifier=last_number, callbacks=[smopd_listener()]
    )
    trainer.train()
    report: dict[str, Any] = {"metrics": trainer.evaluate(), "history": len(trainer.log_history)}
    trainer.save_model(folder / "model")
    report["saved"] = sorted(path.name for path in (folder / "model").iterdir())
    how: dict[str, Any] = {"verifier": last_number, "progress": False}
    rows = (example for example in EXAMPLES)
    run = smopd.train("pocket", train=rows, out=folder / "run", steps=2, settings=settings, **how)
    report["summary"] = dict(smopd.evaluate(run, EXAMPLES, **how))
    report["refused"] = []
    for out in (folder / "model", folder / "run"):  # neither is an evaluation: the first process finds out
        try:
            smopd.evaluate(run, EXAMPLES, out=out, **how)
        except smopd.UserError as error:
            report["refused"].append(str(error).replace(str(folder), ""))
    try:  # another verifier: noticed where the inputs are written
        smopd.train(run, verifier=lambda answer, reply: True, progress=False)
    except smopd.UserError as error:
        report["refused"].append(str(error).replace(str(folder), ""))
    return report


def smopd_listener() -> Any:
    from transformers import TrainerCallback

    class Counts(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            assert args.world_size == int(os.environ.get("WORLD_SIZE", "1"))
            assert state.is_world_process_zero == (os.environ.get("RANK", "0") == "0")

    return Counts()


if __name__ == "__main__":
    from accelerate import Accelerator

    Accelerator()  # as a script may that has used accelerate before; on a CPU it has no process group
    place = Path(sys.argv[1])
    text = json.dumps(work(place))
    (place / f"process-{os.environ['RANK']}.json").write_text(text)
