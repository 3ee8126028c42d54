"""From rollouts to losses: the student's pass, the teacher's passes, and the terms of a plan. A loss depends
on its own rollout only (and, for terms that look at the whole step, on statistics of an earlier pass over
it), so a step may be split into micro-batches anywhere.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.errors import UserError
from smopd.models.adapters import teacher_weights
from smopd.objective import Moment, Plan, RolloutLoss, Term, TermLoss, Tokens, decide, term_loss
from smopd.objective.loss import StepStatistics, key_of, pool_of
from smopd.objective.plan import Context
from smopd.objective.scoring_requests import ScoringRequest, context_ids, scoring_requests
from smopd.plugins import calling
from smopd.rollout import Peers, Reply, Rollout
from smopd.scoring import Decision, RowLoss, TokenStats, kernel, passes, plain
from smopd.scoring.kernel import sampled_logps
from smopd.scoring.passes import body_and_head
from smopd.scoring.plain import Scored, cap_of


@dataclass(frozen=True)
class ScoringPath:
    """How hidden states and statistics are computed; the result does not depend on it."""

    reply_hidden: Callable[..., torch.Tensor]
    token_stats: Callable[..., list[TokenStats]]
    head: Callable[[torch.Tensor], torch.Tensor] = lambda weight: weight  # gathers the head's weight
    always: bool = False  # make the passes even without a reply: with sharded weights they are collective


FAST = ScoringPath(passes.reply_hidden, kernel.token_stats)
PLAIN = ScoringPath(plain.reply_hidden, plain.token_stats)


def score(
    model: PeftModel, renderer: Renderer, rollouts: Sequence[Rollout], plan: Plan, moment: Moment,
    peers: Peers | None = None, row_tokens: int = 2048, path: ScoringPath = FAST,
    decided: StepStatistics | None = None, alternatives: int = 0,
) -> list[RolloutLoss]:  # fmt: skip
    """The loss of each rollout of a micro-batch, with gradient to the student. `peers`: the step's rollouts
    (default: these); `decided`: its statistics, if a term needs them; `alternatives`: top-k tokens per model.
    """
    body, weight = body_and_head(model)
    head = path.head(weight)
    everyone = peers or Peers(rollouts, moment.draw, moment.done)
    replies, units, wanted = scoring_requests([r.replies() for r in rollouts], plan, moment, everyone)
    micro_batch = _MicroBatch(model, body, head, renderer, replies, units, row_tokens, path)
    stats = micro_batch.statistics(plan, moment, decided, alternatives)
    zero = torch.zeros((), dtype=torch.float32, device=head.device)
    pools = {t.name: len({pool_of(t, r) for r in everyone.rollouts}) for t in plan.scored}
    losses = []
    for number, rollout in enumerate(rollouts):
        terms: dict[str, TermLoss] = {}
        scored: dict[int, TokenStats] = {}
        for term in plan.scored:
            chosen = wanted.get((number, term.name), [])
            of_term = [stats[k, term.name] for k in chosen]
            share = None
            if term.per != "reply":
                divisor = decided.divisors.get((term.name, pool_of(term, rollout)), 1) if decided else 1
                share = len(everyone.rollouts) / (divisor * pools[term.name])
            asked = [replies[k] for k in chosen]
            terms[term.name] = term_loss(term, asked, of_term, rollout.correct, zero, share)
            scored.update(zip(chosen, of_term, strict=True))
        total = sum((loss.value for loss in terms.values()), start=zero)
        losses.append(RolloutLoss(total, terms, tuple((replies[k], scored[k]) for k in sorted(scored))))
    return losses


@dataclass(frozen=True)
class _MicroBatch:
    model: PeftModel
    body: torch.nn.Module
    head: torch.Tensor
    renderer: Renderer
    replies: list[Reply]
    units: list[ScoringRequest]
    row_tokens: int
    path: ScoringPath

    def statistics(
        self, plan: Plan, moment: Moment, decided: StepStatistics | None, alternatives: int
    ) -> dict[tuple[int, str], TokenStats]:
        """Map (reply, term) to statistics, with one pass of the student and one of each kind of teacher."""
        if not self.replies and not self.path.always:
            return {}
        teachers, auxiliary = self.teacher_hidden(plan)
        student_Nd = self.hidden([(reply.context, reply.tokens) for reply in self.replies])
        if not self.replies:
            return {}
        lengths = [len(reply.tokens) for reply in self.replies]
        students = student_Nd.split(lengths)
        groups: dict[tuple[tuple[RowLoss, ...], int], list[int]] = defaultdict(list)
        for number, unit in enumerate(self.units):
            groups[tuple(term.loss for term in unit.terms), len(unit.auxiliary[1])].append(number)
        stats: dict[tuple[int, str], TokenStats] = {}
        for (losses, _), numbers in groups.items():
            units = [self.units[k] for k in numbers]

            def decisions(
                number: int, columns: Sequence[TokenStats], units: list[ScoringRequest] = units
            ) -> list[Decision]:
                reply, terms = self.replies[units[number].reply], units[number].terms
                pairs = zip(terms, columns, strict=True)
                return [_decision(term, Tokens(column, reply, moment), decided) for term, column in pairs]

            rows = [lengths[unit.reply] for unit in units]
            names = f"term {', '.join(repr(term.name) for term in units[0].terms)}"
            with calling(None, names.__str__):
                columns = self.path.token_stats(
                    torch.cat([students[unit.reply] for unit in units]),
                    torch.cat([teachers.get(k, students[self.units[k].reply]).detach() for k in numbers]),
                    self.head, torch.cat([self.tokens[unit.reply] for unit in units]), list(losses),
                    lengths=rows, decide=decisions, alternatives=alternatives,
                    auxiliary=torch.cat([auxiliary[k] for k in numbers]) if numbers[0] in auxiliary else None,
                )  # fmt: skip
            for column_number, column in enumerate(columns):
                for unit, of_reply in zip(units, column.split(rows), strict=True):
                    stats[unit.reply, unit.terms[column_number].name] = of_reply
        return stats

    def teacher_hidden(self, plan: Plan) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
        """By unit: [n, d] mixed teacher hidden states; [n, K] log-probabilities in K auxiliary contexts."""
        mixes = any(weight != 1 or len(u.contexts) > 1 for u in self.units for weight, _ in u.contexts)
        if cap_of(self.head) is not None and mixes:
            raise UserError("this model soft-caps its logits: teachers of several contexts cannot be mixed")
        hidden: dict[int, torch.Tensor] = {}
        auxiliary: dict[int, torch.Tensor] = {}
        kinds = [term.weights for term in plan.scored if term.teacher]
        kinds += [term.auxiliary.weights for term in plan.scored if term.auxiliary]
        # From the plan, not from the units: with sharded weights all processes need as many passes.
        for kind in dict.fromkeys(kinds):
            chosen = [k for k, unit in enumerate(self.units) if unit.weights == kind]
            further = [k for k, unit in enumerate(self.units) if unit.auxiliary[0] == kind]
            if not chosen and not further and not self.path.always:
                continue
            asked = [(k, "teacher", context) for k in chosen for _, context in self.units[k].contexts]
            asked += [(k, "auxiliary", context) for k in further for context in self.units[k].auxiliary[1]]
            sequences = [self.sequence(*one) for one in asked]
            with teacher_weights(self.model, kind):
                states = self.hidden(sequences)
            pieces = iter(states.split([len(tokens) for _, tokens in sequences]))
            for k in chosen:
                mixed = [(weight, next(pieces)) for weight, _ in self.units[k].contexts]
                hidden[k] = mixed[0][1] if len(mixed) == 1 and mixed[0][0] == 1 else sum_of(mixed)
            for k in further:
                tokens = self.tokens[self.units[k].reply]
                logps = [sampled_logps(next(pieces), self.head, tokens) for _ in self.units[k].auxiliary[1]]
                auxiliary[k] = torch.stack(logps, 1)
        return hidden, auxiliary

    @cached_property
    def tokens(self) -> tuple[torch.Tensor, ...]:
        """Token ids of each reply, as views of one tensor."""
        tokens = [token for reply in self.replies for token in reply.tokens]
        return torch.tensor(tokens, device=self.head.device).split([len(r.tokens) for r in self.replies])

    def sequence(self, number: int, part: str, context: Context) -> Scored:
        unit = self.units[number]
        ids = context_ids(unit.terms[0], part, context, self.renderer, len(self.head))
        return ids, self.replies[unit.reply].tokens

    def hidden(self, sequences: Sequence[Scored]) -> torch.Tensor:
        """[N, d] hidden states that predict the sequences' reply tokens."""
        return self.path.reply_hidden(self.body, sequences, self.head.device, self.row_tokens)


def _decision(term: Term, tokens: Tokens, decided: StepStatistics | None) -> Decision:
    """Decide from the step's statistics if the term needs the whole step, else from this reply alone."""
    if not term.needs_whole_step:
        return decide(term, [tokens])[0]
    if decided is None:  # the pass that collects the statistics: every token counts
        every = torch.ones_like(tokens.entropy)
        return Decision(every, every.bool())
    weight = decided.weights[*key_of(tokens.reply), term.name].to(tokens.entropy)
    return Decision(weight, (weight != 0) & term.cap.has_gradient(tokens.divergence))


def sum_of(mixed: Sequence[tuple[float, torch.Tensor]]) -> torch.Tensor:
    """Sum weight * tensor in at least float32: rounding would lose small differences between contexts."""
    total = torch.zeros_like(mixed[0][1], dtype=torch.promote_types(mixed[0][1].dtype, torch.float32))
    for weight, tensor in mixed:
        total.add_(tensor, alpha=weight)
    return total


def without_graph(losses: Sequence[RolloutLoss]) -> list[RolloutLoss]:
    """Copy losses to the CPU, to send them to another process or keep them for metrics."""
    tensors: dict[int, torch.Tensor] = {}
    _map_tensors(losses, lambda tensor: tensors.setdefault(id(tensor), tensor))
    copies = dict(zip(tensors, to_host(list(tensors.values())), strict=True))
    return [_map_tensors(loss, lambda tensor: copies[id(tensor)]) for loss in losses]


def _map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensors(one, function) for one in value)
    if isinstance(value, dict):
        return {name: _map_tensors(one, function) for name, one in value.items()}
    if isinstance(value, (RolloutLoss, TermLoss, TokenStats)):
        return replace(value, **_map_tensors(vars(value), function))
    return value


def to_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors to the CPU without graph, with one transfer (one device sync) per dtype."""
    host = [tensor.detach() for tensor in tensors]
    for dtype in {tensor.dtype for tensor in host if not tensor.is_cpu}:
        numbers = [k for k, tensor in enumerate(host) if not tensor.is_cpu and tensor.dtype == dtype]
        joined = torch.cat([host[k].reshape(-1) for k in numbers]).cpu()
        pieces = joined.split([host[k].numel() for k in numbers])
        for k, piece in zip(numbers, pieces, strict=True):
            # Cloned, because pickling a view would send all of `joined`.
            host[k] = piece.clone().view(host[k].shape)
    return host
