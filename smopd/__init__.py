"""smopd: multi-turn on-policy self-distillation for chat models that don't get lost in conversation.

The packages are the stages of one training step, in the order data flows through them: data, chat, rollout,
scoring, objective, training; then evaluation, methods (settings that have a name), viewer, and pocket, the
embedded model.
"""
