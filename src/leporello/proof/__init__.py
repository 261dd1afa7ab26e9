"""Proof: what a context policy costs, what the agent needed next and still had, what can be found again, what is lost.

settings = Settings(model="claude-sonnet-5", window=200_000)
figures = replay_all(read_transcripts("session.jsonl"), ["mask", "lcm"], settings)
figures.as_dict()["engines"]["lcm"]["needed"]
"""

from leporello.proof.figures import Figures
from leporello.proof.needed import Cut, Score
from leporello.proof.parallel import joined, replay_all
from leporello.proof.replay import ReplaySettings, Run, replay

__all__ = ["Cut", "Figures", "ReplaySettings", "Run", "Score", "joined", "replay", "replay_all"]
