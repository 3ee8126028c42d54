"""Looking at a run: one self-contained HTML page, and conversations and accuracies in the terminal."""

from smopd.viewer.report import (
    Accuracy,
    Comparison,
    ConversationPair,
    ReportData,
    ShownConversation,
    render_report,
    write_report,
)  # fmt: skip
from smopd.viewer.terminal import accuracy_table, show_conversation_pair

__all__ = [
    "Accuracy", "Comparison", "ConversationPair", "ReportData", "ShownConversation", "accuracy_table",
    "render_report", "show_conversation_pair", "write_report",
]  # fmt: skip
