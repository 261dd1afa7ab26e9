"""What config.yaml may hold: every key with its type, range, default and meaning.

This is the one source of defaults. The descriptions are the text of the reference page, and `Allowed` is the
wording that the page and the error messages share where a type alone does not say enough.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationInfo

from leporello.config.engines import LOSSLESS
from leporello.config.home import home_folder
from leporello.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What a value may be, in words that follow "must be"."""

    text: str


def _blank_is_null(value: Any) -> Any:
    return None if value == "" else value


def _null_is_empty_list(value: Any) -> Any:
    return [] if value is None else value


def _null_is_empty_block(value: Any) -> Any:
    return {} if value is None else value


def _auto_or_share(value: Any) -> Any:
    """Take "auto" or a share; one check for both, so that a wrong value is reported once."""
    if value == "auto" or (type(value) in (int, float) and 0 < value <= 1):
        return value if value == "auto" else float(value)
    raise ValueError("neither auto nor a share")


def _yes_no_or_always(value: Any) -> Any:
    """Take true, false or "always"; one check for all, so that a wrong value is reported once."""
    if isinstance(value, bool) or value == "always":
        return value
    raise ValueError("neither true, false nor always")


def _yes_no_or_workers(value: Any) -> Any:
    """Take true, false or "workers"; one check for all, so that a wrong value is reported once."""
    if isinstance(value, bool) or value == "workers":
        return value
    raise ValueError("neither true, false nor workers")


def _absolute(value: Any, info: ValidationInfo) -> Any:
    """Resolve a folder against the folder of config.yaml, which the validation context names."""
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        return value
    try:
        expanded = Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return Path(os.path.normpath(_base_folder(info) / expanded))


def _base_folder(info: ValidationInfo) -> Path:
    context = info.context if isinstance(info.context, dict) else {}
    return Path(context.get("folder") or Path.cwd())


BLANK_IS_NULL = BeforeValidator(_blank_is_null)
NULL_IS_EMPTY_LIST = BeforeValidator(_null_is_empty_list)
NULL_IS_EMPTY_BLOCK = BeforeValidator(_null_is_empty_block)

Name: TypeAlias = Annotated[
    str, Field(pattern=r"^[^\s/\\.\x00-\x1f][^\s/\\\x00-\x1f]*$"), Allowed(text="a name without spaces and slashes")
]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Address: TypeAlias = Annotated[
    str, Field(pattern=r"^https?://[^\s/]\S*$"), Allowed(text="an address that begins with http:// or https://")
]
Origin: TypeAlias = Annotated[
    str, Field(pattern=r"^(\*|https?://[^\s/*]+)$"), Allowed(text="`*`, or http:// or https:// with a host and no path")
]
Folder: TypeAlias = Annotated[Path, BeforeValidator(_absolute), Allowed(text="the path of a folder")]
Tokens: TypeAlias = Annotated[int, Field(ge=1)]
Dollars: TypeAlias = Annotated[float, Field(ge=0)]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
HashedKey: TypeAlias = Annotated[
    str,
    Field(pattern=r"^sha256:[0-9a-f]{64}$"),
    Allowed(text="`sha256:` and 64 hexadecimal digits, as `leporello serve --new-key NAME` prints them"),
]
PassClientKey: TypeAlias = Annotated[
    bool | Literal["always"],
    PlainValidator(_yes_no_or_always),
    Allowed(text="`true`, `false` or `always`"),
]
Background: TypeAlias = Annotated[
    bool | Literal["workers"],
    PlainValidator(_yes_no_or_workers),
    Allowed(text="`true`, `false` or `workers`"),
]
AutoOrShare: TypeAlias = Annotated[
    float | Literal["auto"],
    PlainValidator(_auto_or_share),
    Allowed(text="`auto` or a number above 0 and at most 1"),
]


class ConfigBlock(BaseModel):
    """A block of config.yaml: frozen, strict about types, closed to unknown keys."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ModelSettings(ConfigBlock):
    """The main model, the one that the conversation is sent to."""

    default: Annotated[Text | None, BLANK_IS_NULL] = Field(default=None, description="The name of the main model.")
    provider: Name = Field(
        default="auto",
        description="Who serves it: `openai`, `anthropic`, `openrouter`; any other, as `openai-codex`, needs "
        "`base_url`. `auto` goes by the model's name and the keys that are set.",
    )
    base_url: Annotated[Address | None, BLANK_IS_NULL] = Field(
        default=None, description="The address of an OpenAI-compatible endpoint, instead of the provider's own."
    )
    context_length: Tokens | None = Field(
        default=None,
        description="The window in tokens of `default`, or of any model where `default` is null. `null`: the known "
        "window of the model at its provider.",
    )
    max_tokens: Tokens | None = Field(
        default=None, description="The longest answer to ask for, in tokens. `null`: the provider's own limit."
    )

    def window_of(self, model: str) -> int | None:
        """Return `context_length` if it holds for this model; "" is the default one."""
        return self.context_length if not self.default or model in ("", self.default) else None

    def routed(self, model: str, provider: str, base_url: str) -> ModelSettings:
        """Return these settings for a model that is reached elsewhere; "" leaves it to the keys that are set."""
        update = {
            "default": model or None,
            "provider": provider or "auto",
            "base_url": base_url or None,
            "context_length": self.window_of(model),
        }
        return self.model_copy(update=update)


class Context(ConfigBlock):
    """Which engine keeps the conversation inside the window."""

    engine: Name = Field(
        default="compressor",
        description="The one active context engine, by name. `compressor` is always the built-in one; "
        "a plugin engine is active only when it is named here.",
    )


class Compression(ConfigBlock):
    """The built-in compressor; `enabled` is for every engine."""

    enabled: bool = Field(
        default=True,
        description="Compact by itself, with any engine. `false`: only `/compress` and the recovery from a "
        '"context too long" answer compact.',
    )
    threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.50, description="Compaction starts when the prompt reaches this share of the main model's window."
    )
    target_ratio: Annotated[float, Field(ge=0.10, le=0.80)] = Field(
        default=0.20, description="The share of the threshold that the newest messages, kept as they are, may take."
    )
    masked_zone: Annotated[float, Field(ge=0, le=0.8)] = Field(
        default=0.10,
        description="The share of the threshold for the turns before them, with their long tool outputs cleared. "
        "`0`: none.",
    )
    protect_last_n: Annotated[int, Field(ge=1)] = Field(
        default=20, description="At least this many of the newest messages are kept."
    )
    codex_gpt55_autoraise: bool = Field(
        default=True, description="Raise the threshold to 0.85 for `gpt-5.5` on the provider `openai-codex`."
    )
    deadline_seconds: Seconds = Field(
        default=120.0, description="The longest time for one compaction; what is left is summarised without a model."
    )
    max_calls: Annotated[int, Field(ge=1)] = Field(
        default=24, description="The most model calls for one compaction; what is left is summarised without a model."
    )


class AuxiliaryCompression(ConfigBlock):
    """The model that writes summaries."""

    model: Annotated[Text | None, BLANK_IS_NULL] = Field(
        default=None, description="The summariser's name. `null`: an inexpensive model of the provider."
    )
    provider: Name = Field(
        default="auto",
        description="Who serves it: `openai`, `anthropic`, `openrouter`; any other, as `nous`, needs `base_url`. "
        "`main`: as the main model. `auto`: by the keys that are set.",
    )
    base_url: Annotated[Address | None, BLANK_IS_NULL] = Field(
        default=None, description="The address of any OpenAI-compatible endpoint; it needs `model` too."
    )
    context_length: Tokens | None = Field(
        default=None, description="The summariser's window in tokens, for a model whose window is not known."
    )
    timeout_seconds: Seconds = Field(default=60.0, description="The longest wait for one answer of the summariser.")


class Auxiliary(ConfigBlock):
    """The models beside the main one."""

    compression: Annotated[AuxiliaryCompression, NULL_IS_EMPTY_BLOCK] = Field(default=AuxiliaryCompression())


class PromptCaching(ConfigBlock):
    """Cache breakpoints for providers that take them."""

    cache_ttl: Literal["5m", "1h"] = Field(default="5m", description="How long the provider keeps a cached prefix.")
    strategy: Literal["system_and_3", "planner"] = Field(
        default="system_and_3",
        description="`system_and_3`: the system prompt and the last three messages. "
        "`planner`: where it costs least, by the provider's rules.",
    )


class Plugins(ConfigBlock):
    """Where plugins are looked for, and which general ones may run."""

    enabled: Annotated[list[Name], NULL_IS_EMPTY_LIST] = Field(
        default=[], description="The general plugins that may be loaded, by name. No other is loaded."
    )
    paths: Annotated[list[Folder], NULL_IS_EMPTY_LIST] = Field(
        default=[],
        description="Further folders with context engines: `<path>/<name>/plugin.yaml`, or an engine's own folder. "
        "Relative paths start at the folder of config.yaml; `~` is your home.",
    )


class StoreSettings(ConfigBlock):
    """What is remembered, and where."""

    url: Annotated[Text | None, BLANK_IS_NULL] = Field(
        default=None,
        description="A path, `sqlite:///path`, `postgresql://…` or `:memory:`. "
        "`null`: `leporello.db` in `$LEPORELLO_HOME`.",
    )


class Lcm(ConfigBlock):
    """The lossless engine `lcm`."""

    threshold: AutoOrShare = Field(
        default="auto",
        description="When to fold. `auto`: where a turn costs least, from measured usage and prices; "
        "never above 75 % of the window. A number: at this share of the main model's window.",
    )
    tail: Annotated[float, Field(gt=0, le=0.8)] = Field(
        default=0.15, description="The share of the threshold that the newest messages, kept as they are, may take."
    )
    masked_zone: Annotated[float, Field(ge=0, le=0.8)] = Field(
        default=0.05,
        description="The share of the threshold for the turns before the tail, with their "
        "long tool outputs as one line each.",
    )
    leaf_tokens: Annotated[int, Field(ge=256)] | None = Field(
        default=None,
        description="How much of the conversation one leaf summarises. `null`: about 4 % of the window, at least 4,000 "
        "tokens, less in a small window.",
    )
    fan_in: Annotated[int, Field(ge=2, le=32)] = Field(
        default=4, description="How many neighbouring summaries become one when they take too much room."
    )
    summary_share: Annotated[float, Field(gt=0, le=0.8)] = Field(
        default=0.20, description="The share of the threshold that all summaries together may take."
    )
    background: Background = Field(
        default=True,
        description="Prepare summaries in the background, so that no turn waits for a model. "
        "`false`: the turn that folds waits. `workers`: processes of `leporello worker` prepare them.",
    )
    deadline_seconds: Seconds = Field(
        default=120.0, description="The longest time for one fold; what is left is summarised without a model."
    )
    max_calls: Annotated[int, Field(ge=1)] = Field(
        default=24, description="The most model calls for one fold; what is left is summarised without a model."
    )
    scope: Literal["conversation", "owner"] = Field(
        default="conversation",
        description="What the tools may search and unfold: this conversation alone, or all of the same owner.",
    )
    redact: bool = Field(
        default=True,
        description="Remove known secrets from what the tools return. From summaries and the index they are always "
        "removed; the store keeps every message as it came.",
    )
    ignore_sessions: Annotated[list[Text], NULL_IS_EMPTY_LIST] = Field(
        default=[],
        description="Conversations that are not kept, by name; `*` stands for any text. They are folded in memory.",
    )
    store: Annotated[Text | None, BLANK_IS_NULL] = Field(
        default=None, description="A store of its own, written as `store.url`. `null`: the one of the host."
    )

    def ignores(self, session_id: str) -> bool:
        """Tell whether a conversation is not to be kept."""
        return any(fnmatchcase(session_id, pattern) for pattern in self.ignore_sessions)


_ABOUT_CLIENT_KEYS: Final = (
    "Forward the key of the client itself (API key, OAuth token, names of its account) instead of one of the gateway. "
    "For a gateway without keys of its own; `always`: also together with `gateway.api_keys`, whose keys clients then "
    "send in the header `x-leporello-key`."
)


class OpenAIUpstream(ConfigBlock):
    """Where `/v1/chat/completions` is forwarded to."""

    base_url: Address = Field(
        default="https://api.openai.com/v1",
        description="The address of the OpenAI-compatible provider behind the gateway, written as for its own clients.",
    )
    api_key_env: Annotated[Text | None, BLANK_IS_NULL] = Field(
        default="OPENAI_API_KEY", description="The environment variable with the key for it. `null`: it needs no key."
    )
    pass_client_key: PassClientKey = Field(default=False, description=_ABOUT_CLIENT_KEYS)


class AnthropicUpstream(ConfigBlock):
    """Where `/v1/messages` is forwarded to."""

    base_url: Address = Field(
        default="https://api.anthropic.com",
        description="The address of the Anthropic-compatible provider behind the gateway.",
    )
    api_key_env: Annotated[Text | None, BLANK_IS_NULL] = Field(
        default="ANTHROPIC_API_KEY",
        description="The environment variable with the key for it. `null`: it needs no key.",
    )
    pass_client_key: PassClientKey = Field(default=False, description=_ABOUT_CLIENT_KEYS)


class Upstreams(ConfigBlock):
    """The providers behind the gateway."""

    openai: Annotated[OpenAIUpstream, NULL_IS_EMPTY_BLOCK] = Field(default=OpenAIUpstream())
    anthropic: Annotated[AnthropicUpstream, NULL_IS_EMPTY_BLOCK] = Field(default=AnthropicUpstream())


class GatewayLimits(ConfigBlock):
    """What one client may ask of the gateway."""

    body_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=32 * 1024 * 1024, description="The longest body of a request, in bytes."
    )
    messages: Annotated[int, Field(ge=1)] = Field(
        default=10_000, description="The most messages in one request; a longer history is answered 413."
    )
    values: Annotated[int, Field(ge=1000)] = Field(
        default=200_000,
        description="The most JSON values in the body of a request, counted by its commas and brackets.",
    )
    answer_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=64 * 1024 * 1024, description="The longest answer of a provider, in bytes, once it is unpacked."
    )
    concurrency: Annotated[int, Field(ge=1)] = Field(
        default=64, description="How many requests of one key may run at the same time; one more is answered 429."
    )
    seconds: Seconds = Field(
        default=600.0, description="The longest silence of the provider, and the longest wait for a client's body."
    )


class Gateway(ConfigBlock):
    """The HTTP service, `leporello serve`."""

    api_keys: Annotated[dict[str, HashedKey], NULL_IS_EMPTY_BLOCK] = Field(
        default={},
        description="Who may use the gateway: a name and the hash of a key. Each has conversations of its own. "
        "Without any, it serves this machine only.",
    )
    upstreams: Annotated[Upstreams, NULL_IS_EMPTY_BLOCK] = Field(default=Upstreams())
    limits: Annotated[GatewayLimits, NULL_IS_EMPTY_BLOCK] = Field(default=GatewayLimits())
    processes: Annotated[int, Field(ge=1, le=64)] = Field(
        default=8,
        description="The most processes that serve keys. Each key has one of its own as long as there are enough, so "
        "that none waits for another's work; it is started with the key's first request. `1`: one serves all.",
    )
    expire_minutes: Annotated[float, Field(gt=0)] = Field(
        default=60.0,
        description="A conversation that is idle for so long ends; its next message goes on with it.",
    )
    tools: bool = Field(
        default=False,
        description="Let the model use the engine's tools in drop-in conversations.",
    )
    cors_origins: Annotated[list[Origin], NULL_IS_EMPTY_LIST] = Field(
        default=[],
        description="The web pages whose scripts may use the gateway, as `https://app.example.com`; `*` for any, only "
        "together with `gateway.api_keys`.",
    )
    page_actions: bool = Field(
        default=False,
        description="Let the page under `/view` fold, pin, export and delete conversations of the key that signed in. "
        "One process must serve all keys (`gateway.processes: 1`).",
    )
    system: Annotated[Text | None, BLANK_IS_NULL] = Field(
        default=None, description="The system prompt of the agent behind `/v1/sessions`. `null`: a short general one."
    )
    workspace: Annotated[Folder | None, BLANK_IS_NULL] = Field(
        default=None,
        description="The folder that the agent behind `/v1/sessions` may read. `null`: it has no tools for files.",
    )


class PriceSettings(ConfigBlock):
    """What a model costs, in US dollars per million tokens."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


class Config(ConfigBlock):
    """The whole configuration; `load`, `from_mapping` and `coerce` make one and say kindly what is wrong."""

    model: Annotated[ModelSettings, NULL_IS_EMPTY_BLOCK] = Field(default=ModelSettings())
    context: Annotated[Context, NULL_IS_EMPTY_BLOCK] = Field(default=Context())
    compression: Annotated[Compression, NULL_IS_EMPTY_BLOCK] = Field(default=Compression())
    auxiliary: Annotated[Auxiliary, NULL_IS_EMPTY_BLOCK] = Field(default=Auxiliary())
    prompt_caching: Annotated[PromptCaching, NULL_IS_EMPTY_BLOCK] = Field(default=PromptCaching())
    plugins: Annotated[Plugins, NULL_IS_EMPTY_BLOCK] = Field(default=Plugins())
    store: Annotated[StoreSettings, NULL_IS_EMPTY_BLOCK] = Field(default=StoreSettings())
    lcm: Annotated[Lcm, NULL_IS_EMPTY_BLOCK] = Field(default=Lcm())
    gateway: Annotated[Gateway, NULL_IS_EMPTY_BLOCK] = Field(default=Gateway())
    windows: Annotated[dict[str, Tokens], NULL_IS_EMPTY_BLOCK] = Field(
        default={},
        description="Windows in tokens that override the known ones: `model: tokens` for every provider, "
        "or `provider/model: tokens` for one.",
    )
    prices: Annotated[dict[str, PriceSettings], NULL_IS_EMPTY_BLOCK] = Field(
        default={},
        description="Prices that come before the listed ones, in US dollars per million tokens: `model: {input: 0.5, "
        "output: 2}` for every provider, or `provider/model: …` for one. Without `cache_read` or `cache_write` such "
        "tokens cost as much as `input`.",
    )

    _path: Path | None = PrivateAttr(default=None)
    _given: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)
    _unchecked: tuple[str, ...] = PrivateAttr(default=())
    _home: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file this came from; None for defaults and mappings."""
        return self._path

    @property
    def home(self) -> Path:
        """The folder for Leporello's files, from $LEPORELLO_HOME; it need not exist."""
        return self._home or home_folder()

    def with_home(self, folder: Path) -> Config:
        """Return a copy whose engines keep their files in another folder; plugins are found where they were."""
        copied = self.model_copy()
        copied._home = folder  # noqa: SLF001 - its own class
        return copied

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Config:
        """Read config.yaml; a missing file at the default place means defaults, a missing named one is an error."""
        from leporello.config.load import load

        return load(path)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Config:
        """Check a mapping shaped like config.yaml; relative plugin paths start at the current folder."""
        from leporello.config.load import from_mapping

        return from_mapping(mapping)

    @classmethod
    def coerce(cls, value: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None) -> Config:
        """Take a configuration in any form: None (the default file), a path, a mapping, or one that is ready."""
        if isinstance(value, Config):
            return value
        if isinstance(value, Mapping):
            return cls.from_mapping(value)
        if value is None or isinstance(value, str | os.PathLike):
            return cls.load(value)
        raise ConfigError(f"a configuration is a path, a mapping or a Config, not a {type(value).__name__}.")

    def block(self, name: str) -> dict[str, Any]:
        """Return a copy of one top-level block, with our defaults if it is ours; {} when there is none."""
        if name in self._unchecked or name not in type(self).model_fields:
            return self.engine_block(name)
        return dict(self.model_dump(include={name})[name])

    def own_prices(self) -> dict[str, dict[str, Any]]:
        """Return `prices` as `leporello.prices` takes them."""
        return {
            model: {
                "input": price.input,
                "output": price.output,
                "cache_read": price.cache_read,
                "cache_write_5m": price.cache_write,
                "cache_write_1h": price.cache_write,
                "source": "config.yaml",
            }
            for model, price in self.prices.items()
        }

    def engine_block(self, name: str) -> dict[str, Any]:
        """Return a copy of what the file gives an engine, as it stands; {} when it gives nothing."""
        if name == LOSSLESS and name not in self._given:
            return self.lcm.model_dump(exclude_unset=True)
        return copy.deepcopy(self._given.get(name, {}))

    def engine_blocks(self) -> tuple[str, ...]:
        """Name the blocks that belong to engines and are not checked here."""
        return self._unchecked

    def given_blocks(self) -> tuple[str, ...]:
        """Name the blocks of engines that the file gives, checked or not."""
        own = (LOSSLESS,) if self.lcm.model_fields_set else ()
        return tuple(dict.fromkeys((*self._given, *own)))

    def own_lcm(self) -> Lcm:
        """Return the block `lcm` for our own engine, also when another has the name; ConfigError if it does not fit."""
        if LOSSLESS not in self._unchecked:
            return self.lcm
        from leporello.config.load import check_own_block

        return check_own_block(self._given.get(LOSSLESS, {}), file=self._path)
