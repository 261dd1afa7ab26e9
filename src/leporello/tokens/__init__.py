"""How long a message is: a fast estimate, calibrated on what providers report, and the windows of models."""

from leporello.tokens.calibrate import Calibration, Estimator
from leporello.tokens.estimate import count_message, count_messages, count_request, count_tools
from leporello.tokens.exact import exact_counter
from leporello.tokens.overflow import OverflowNumbers, overflow_numbers, window_from_error
from leporello.tokens.text import count_text
from leporello.tokens.windows import DEFAULT_WINDOW, ContextLengthRow, find_window, window_of

__all__ = [
    "DEFAULT_WINDOW",
    "Calibration",
    "ContextLengthRow",
    "Estimator",
    "OverflowNumbers",
    "count_message",
    "count_messages",
    "count_request",
    "count_text",
    "count_tools",
    "exact_counter",
    "find_window",
    "overflow_numbers",
    "window_from_error",
    "window_of",
]
