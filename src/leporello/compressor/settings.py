"""The compressor's settings, in any form that a host hands them over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leporello.config import Config
from leporello.config.model import AuxiliaryCompression, Compression

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class CompressorSettings:
    """What the compressor needs of config.yaml."""

    compression: Compression = field(default_factory=Compression)
    timeout_seconds: float = AuxiliaryCompression.model_fields["timeout_seconds"].default
    answer_tokens: int | None = None

    @classmethod
    def of(cls, config: CompressorSettings | Config | Compression | Mapping[str, Any] | None) -> CompressorSettings:
        """Read a whole configuration, its `compression` block, or a mapping of either; None means the defaults."""
        match config:
            case None:
                return cls()
            case CompressorSettings():
                return config
            case Compression():
                return cls(compression=config)
            case Config():
                return cls(
                    compression=config.compression,
                    timeout_seconds=config.auxiliary.compression.timeout_seconds,
                    answer_tokens=config.model.max_tokens,
                )
        is_block = bool(config) and config.keys() <= Compression.model_fields.keys()
        return cls.of(Config.from_mapping({"compression": dict(config)} if is_block else config))
