"""The engine's settings, in any form that a host hands them over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leporello.config import Config
from leporello.config.load import check_own_block
from leporello.config.model import AuxiliaryCompression, Lcm

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class LCMSettings:
    """What the lossless engine needs of config.yaml."""

    lcm: Lcm = field(default_factory=Lcm)
    timeout_seconds: float = AuxiliaryCompression.model_fields["timeout_seconds"].default
    answer_tokens: int | None = None
    own_prices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, config: LCMSettings | Config | Lcm | Mapping[str, Any] | None) -> LCMSettings:
        """Read a whole configuration, its `lcm` block, or a mapping of either; None means the defaults."""
        match config:
            case None:
                return cls()
            case LCMSettings():
                return config
            case Lcm():
                return cls(lcm=config)
            case Config():
                return cls(
                    lcm=config.own_lcm(),
                    timeout_seconds=config.auxiliary.compression.timeout_seconds,
                    answer_tokens=config.model.max_tokens,
                    own_prices=config.own_prices(),
                )
        # Both know a key `store`: a block in the whole configuration, an address in the engine's own.
        is_block = config.keys() <= Lcm.model_fields.keys() and not isinstance(config.get("store"), dict)
        if is_block:
            return cls(lcm=check_own_block(config))
        rest = Config.from_mapping({name: value for name, value in config.items() if name != "lcm"})
        return replace(cls.of(rest), lcm=check_own_block(config.get("lcm")))
