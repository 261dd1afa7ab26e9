"""What providers write when they refuse, as patterns. All are matched against lower-case text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAX_TOKENS = r"max(?:_completion|_output|_new)?_tokens"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.DOTALL)


LONG_CONTEXT_TIER = _any(
    r"extra usage is required for long context",
    r"long context beta is not (?:yet )?available",
)
"""Anthropic's refusal of the one-million window to accounts without it: sent as 429 or 400, and no wait helps."""

STANDARD_WINDOW = 200_000
"""The window that such an account has."""

LARGER_THAN_THE_MINUTE = re.compile(
    r"request too large for .*?tokens per min(?:ute)?.*?limit:? (\d{1,15}), requested:? (\d{1,15})", re.DOTALL
)
"""One request above a whole minute's allowance (OpenAI as 429, Groq as 413): no wait helps, a shorter input does."""

QUOTA = _any(
    r"insufficient[_ ]quota",
    r"insufficient (?:account )?balance",
    r"insufficient credits",
    r"billing_(?:hard_limit_reached|not_active|error)",
    r"billing hard limit",
    r"credit balance is too low",
    r"credit limit exceeded",
    r"requires more credits",
    r"used all available credits",
    r"reached (?:its|your) (?:monthly )?spending limit",
    r"reached your specified api usage limits",
    r"key limit exceeded",
    r"spend(?:ing)?[_ ]limit",
    r"account is not active, please check your billing",
)

QUOTA_OR_RATE = _any(r"exceeded your current quota")
"""OpenAI's words for an empty account and Google's for a rate limit."""

REFILLED_BY_WAITING = _any(r"resource_exhausted", r"per(?:minute|day)")
"""What stands beside those words only when waiting helps."""

RATE = _any(
    r"rate[_ -]?limit",
    r"too many requests",
    r"too many tokens(?: per day)?, please wait",
    r"throttling",
    r"resource_exhausted",
    r"resource (?:has been )?exhausted",
    r"service tier capacity exceeded",
    r"requests per (?:minute|day)",
)

OVERLOADED = _any(
    r"overloaded",
    r"server_error",
    r"\bapi_error\b",
    r"internal(?: server)? error",
    r"service unavailable",
    r"serviceunavailable",
    r"model is currently loading|loading model",
    r"no instances available",
    r"the server had an error",
    r"upstream (?:error|connect)",
    r"provider returned error",
)

AUTHENTICATION = _any(
    r"invalid[_ ]api[_ ]key",
    r"api key (?:not valid|not found|expired)",
    r"incorrect api key",
    r"invalid x-api-key",
    r"authentication[_ ]error",
    r"authentication fails",
    r"permission_(?:error|denied)",
    r"no auth credentials found",
    r"user not found",
    r"organization_on_hold|organization has been disabled",
    r"unauthori[sz]ed",
    r"invalid authentication",
    r"unrecognizedclientexception|accessdeniedexception",
    r"could not resolve authentication",
    r"missing credentials",
    r"\bapi_key\b.*must be set",
)

REFUSED_CONTENT = _any(
    r"content[_ ]?filter",
    r"content management policy",
    r"content_policy_violation|content policy",
    r"responsibleai",
    r"flagged|requires moderation",
    r"usage polic(?:y|ies)",
    r"\bsafety\b.*\b(?:block|system|reason)",
    r"data_inspection_failed|inappropriate content",
)

CONTEXT = _any(
    r"context_length_exceeded|exceed_context_size|context_window_exceeded|model_max_prompt_tokens_exceeded",
    r"maximum context length",
    r"context (?:length|window|size) (?:exceeded|overflow)",
    r"exceeds?(?: the)?(?: available| maximum| model'?s?)* context(?: size| length| window| limit)?",
    r"exceeds? (?:the |your )?(?:max|model)[_ ]?(?:model_)?(?:len|context)",
    r"prompt(?: \(.*?\))? is too long",
    r"prompt (?:token count|tokens?) .*?(?:exceeds|exceed|too large)",
    r"input is too long",
    r"input (?:token count|length|tokens?) .*?exceeds?",
    r"maximum (?:prompt|input) length",
    r"maximum number of (?:input )?tokens allowed",
    r"greater than the context length",
    r"context the overflows|context overflow",
    r"too large for model with \d+ maximum context",
    r"tokens? .*?exceed context window",
    r"too long to fit into the model",
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    r"reduce your prompt",
    r"must have less than \d+ tokens",
    r"exceeded model token limit",
    r"tokens in the prompt cannot exceed \d+",
    rf"{_MAX_TOKENS} must be at least 1, got -\d+",  # vLLM: nothing is left for the answer
    r"request_too_large|request (?:entity|body) (?:is )?too large|payload too large",
    r"string_above_max_length|string too long",
    r"range of input length should be",
)

OUTPUT = _any(
    rf"{_MAX_TOKENS}\W* (?:or \W*{_MAX_TOKENS}\W* )?is too large",
    rf"{_MAX_TOKENS}\W* must be (?:less than or equal to|<=|at most|between)",
    rf"{_MAX_TOKENS}: \d+ > \d+, which is the maximum allowed number of output tokens",
    rf"invalid {_MAX_TOKENS} value",
    rf"valid range of {_MAX_TOKENS}",
    rf"{_MAX_TOKENS}\W+(?:\(?\d+\)? )?(?:exceeds?|is greater than|is above) (?:the )?(?:model|maximum|output|limit)",
    rf"range of {_MAX_TOKENS} should be",
    r"at most \d+ completion tokens",
    r"maximum tokens you requested exceeds?",
    r"maximum (?:allowed )?number of output tokens",
    r"maxoutputtokens|max output tokens",
    r"could not parse response content as the length limit was reached",
    rf"could not finish the message because {_MAX_TOKENS} or model output limit was reached",
)

_NUMBER = r"(?<!\d)(\d[\d,]{0,15})"  # of bounded length, so that time stays linear
_SUMS = (
    # input + output > window
    re.compile(rf"{_NUMBER}\s*\+\s*{_NUMBER}\s*>\s*{_NUMBER}"),
    # output > window - input
    re.compile(rf"\({_NUMBER}\s*>\s*{_NUMBER}\s*-\s*{_NUMBER}\)"),
    # window ... (input in the messages, output in the completion): OpenAI, DeepSeek, vLLM, OpenRouter
    re.compile(
        rf"maximum context length is {_NUMBER} tokens.*?"
        rf"\({_NUMBER}(?: of text input| in (?:the|your) (?:messages|prompt))[,;]"
        rf".*?{_NUMBER} (?:in|for) the (?:completion|output)\)",
        re.DOTALL,
    ),
    # window ... output ... input
    re.compile(
        rf"maximum context length is {_NUMBER} tokens.*?requested {_NUMBER} output tokens.*?contains (?:at least )?"
        rf"{_NUMBER} input tokens",
        re.DOTALL,
    ),
    # window ... input ... output
    re.compile(rf"must be <= {_NUMBER}\. given: {_NUMBER} `?inputs`? tokens and {_NUMBER} `?max_new_tokens"),
)
_SUM_ORDERS = (
    ("input", "output", "window"),
    ("output", "window", "input"),
    ("window", "input", "output"),
    ("window", "output", "input"),
    ("window", "input", "output"),
)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A refusal that adds input and requested output and finds them too much together."""

    input: int
    output: int
    window: int

    @property
    def is_output(self) -> bool:
        """Tell whether less output must be asked for, because folding the input cannot make it fit.

        Folding brings the input below half of the window. So an answer of up to half the window fits after a fold, and
        folding is right; a longer one would never fit, and folding for it would go on for ever.
        """
        return self.input <= self.window and self.output * 2 > self.window


def read_sum(text: str) -> Sum | None:
    """Return input, output and window when the (lower-case) text names all three."""
    for pattern, order in zip(_SUMS, _SUM_ORDERS, strict=True):
        if match := pattern.search(text):
            return Sum(**{name: int(n.replace(",", "")) for name, n in zip(order, match.groups(), strict=True)})
    return None
