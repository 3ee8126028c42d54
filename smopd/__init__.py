"""smopd: multi-turn on-policy self-distillation for chat models that don't get lost in conversation.

    run = smopd.train("pocket", method="entropy", steps=40)
    smopd.evaluate(run)

The packages are the stages of one training step, in the order data flows through them: data, chat, rollout,
scoring, objective, training; then evaluation, methods (settings that have a name), viewer, and pocket, the
embedded model. The names offered here are documented in docs/python.md; each is imported when it is first
asked for.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)
