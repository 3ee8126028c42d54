"""Students that have left their teacher, the rollouts they play, and how their losses are compared."""

from collections.abc import Sequence

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.data import Example
from smopd.evaluation import verify
from smopd.models import ChatModel
from smopd.models.adapters import attach, student_parameters
from smopd.objective.loss import RolloutLoss
from smopd.rollout import Driver, Rollout, Sampling
from smopd.rollout.hf import HFEngine
from smopd.scoring import TokenStats
from smopd.settings import LoraSettings

NUCLEUS = Sampling(1.0, 20, 0.95, 20)
# As Qwen3's: what the generation prompt wrote is gone from the history, so no turn's tokens begin the next
# turn's.
FORGETFUL = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><|user|>' }}{% endif %}"
)


def student_of(chat: ChatModel) -> PeftModel:
    """The model with a small adapter, and a teacher equal to it."""
    return attach(chat.model, LoraSettings(r=4, alpha=8), seed=1)


def move_student(model: PeftModel, by: float, seed: int = 0) -> None:
    """Random steps away from the teacher."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in student_parameters(model).values():
            parameter.add_(by * torch.randn(parameter.shape, generator=g))


def play(
    model: torch.nn.Module,
    renderer: Renderer,
    examples: Sequence[Example],
    full_of: int,
    sampling: Sampling = NUCLEUS,
    middle_tokens: int = 30,
    history: str = "template",
) -> list[Rollout]:
    """Rollouts of the examples, the first `full_of` of them with a FULL branch."""
    driver = Driver(HFEngine(model, renderer.end_ids, 8), renderer, sampling, middle_tokens, history)
    sharded, full = driver.play(examples, "sharded", (1,)), driver.play(examples[:full_of], "full", (1,))
    rollouts = []
    for number, conversation in enumerate(sharded):
        branch = full[number : number + 1]
        verdicts = (verify(conversation.example, conversation.final_text), *(None for _ in branch))
        rollouts.append(Rollout(conversation.example, (conversation, *branch), verdicts))
    return rollouts


def reply_logp(model: torch.nn.Module, context: Sequence[int], reply: Sequence[int]) -> torch.Tensor:
    """Log-distributions that predict the reply, one full forward pass, no padding."""
    ids = torch.tensor([[*context, *reply]])
    return model(input_ids=ids).logits[0, len(context) - 1 : -1].log_softmax(-1)


def totals(losses: Sequence[RolloutLoss]) -> torch.Tensor:
    """The losses of the rollouts as one vector."""
    return torch.stack([loss.total for loss in losses])


def gradient(model: PeftModel) -> torch.Tensor:
    """The student's gradient as one vector; there is none afterwards."""
    vector = torch.cat([p.grad.flatten() for p in student_parameters(model).values()])
    model.zero_grad()
    return vector


def random_stats(n: int, seed: int, scale: float = 0.6) -> TokenStats:
    """Statistics of n tokens, the divergence a leaf that collects gradient."""
    g = torch.Generator().manual_seed(seed)
    values = [scale * torch.rand(n, generator=g, dtype=torch.float64) for _ in range(3)]
    logs = [-3 * torch.rand(n, generator=g, dtype=torch.float64) for _ in range(2)]
    return TokenStats(values[0].requires_grad_(), *values[1:], *logs)
