"""What tokens cost: dated list prices, and the cost of a model call."""

from leporello.prices.cost import cost, cost_at
from leporello.prices.table import Price, price_of

__all__ = ["Price", "cost", "cost_at", "price_of"]
