"""Measurements on this machine; ``forebay bench`` runs them."""

from forebay.bench.plot import svg
from forebay.bench.topics import ENGINES, TOPICS, Measured, measure

__all__ = ["ENGINES", "TOPICS", "Measured", "measure", "svg"]
