"""Whether conversations fit into the model's context: what cannot is refused, what does not is cut."""

import logging
from collections.abc import Iterator, Sequence

from smopd.chat.messages import View, clean_messages, user_turns
from smopd.chat.template import DirtyContext, Renderer
from smopd.data import Example
from smopd.errors import UserError

log = logging.getLogger("smopd")
MARKUP = 64  # tokens that a template may add to a message


def refuse_too_long(renderer: Renderer, examples: Sequence[Example], views: Sequence[View]) -> None:
    """A UserError for examples with a turn that leaves no room to answer, were every earlier reply empty."""
    limit = renderer.context_length
    too_long: dict[str, str] = {}
    for view in views if limit else ():
        known: View = "sharded" if view == "simulated" else view  # whose user turns are known
        for example in examples:
            texts = (example.system, *user_turns(example, known))
            # Text has at most one token a byte: what is short enough in bytes need not be rendered.
            if example.id in too_long or sum(len(text.encode()) + 2 * MARKUP for text in texts) < limit:
                continue
            for turn, tokens in enumerate(_measure_shortest(renderer, example, known), 1):
                if tokens >= limit:
                    where = f"example {example.id!r}, turn {turn} of {view.upper()}"
                    too_long[example.id] = f"{where}: {tokens:,} tokens before the reply"
                    break
    if too_long:
        first, *more = too_long.values()
        others = f" (and {len(more)} more examples)" if more else ""
        advice = "leave such examples out, or take a model with a longer context"
        raise UserError(f"{first}, and the model's context has {limit:,}{others}; {advice}")


def _measure_shortest(renderer: Renderer, example: Example, view: View) -> Iterator[int]:
    """Tokens before the reply of each turn, where earlier replies are empty."""
    if view == "teacher":
        for turn in range(len(example.shards)):
            yield len(renderer.ids(clean_messages(example, turn)))
        return
    context = DirtyContext(renderer, example)
    for text in user_turns(example, view):
        yield len(context.ask(text))
        context.answer(())


def room_left(renderer: Renderer, prompt: Sequence[int], wanted: int, where: str) -> int:
    """How many tokens a reply may have, of the `wanted` ones; the first that gets fewer is told."""
    limit = renderer.context_length or len(prompt) + wanted
    room = max(0, min(wanted, limit - len(prompt)))
    if room < wanted and limit not in _told_limits:
        _told_limits.add(limit)
        cut = f"its reply may have {room} of {wanted:,} tokens" if room else "its reply stays empty"
        full = f"the model's context of {limit:,} tokens is full: {where} begins with {len(prompt):,}"
        log.warning("%s, %s; later ones like it are not told", full, cut)
    return room


_told_limits: set[int] = set()
