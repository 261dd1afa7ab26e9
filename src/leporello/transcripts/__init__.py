"""Other formats to messages: conversations from files, one at a time, whatever program wrote them.

    for transcript in read_transcripts("session.jsonl"):
        print(transcript.name, transcript.format, len(transcript.messages))

Read are OpenAI's and Anthropic's formats (JSON and JSON lines), logs of Claude Code with their sub-agents, session logs
of Codex, exports of ChatGPT, trajectories of SWE-agent, our own exports, and the databases of Hermes Agent, hermes-lcm
and lossless-claw. Files are streamed: what is in memory is one conversation.
"""

from leporello.transcripts.model import RecordedCompaction, Skipped, Transcript
from leporello.transcripts.read import read_transcripts, transcript_files

__all__ = ["RecordedCompaction", "Skipped", "Transcript", "read_transcripts", "transcript_files"]
