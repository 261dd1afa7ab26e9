"""A real Hermes Agent with our engine: turns, `/compress`, `/new`; prints what was seen as JSON.

The argument is JSON: the model and its address, the session, and what is done in order. `["say", TEXT]` is a turn,
`["compress", FOCUS]` what `/compress` does, `["new", SESSION]` what `/new` does, `["another"]` a second agent.
"""

import json
import sys

from hermes_state import SessionDB
from run_agent import AIAgent


def new_agent(told, database, session):
    """Return an agent as the command line makes one, for another or a resumed session."""
    return AIAgent(
        base_url=told["base_url"],
        api_key=told["api_key"],
        provider="custom",
        api_mode="chat_completions",
        model=told["model"],
        enabled_toolsets=["terminal", "context_engine"],
        quiet_mode=True,
        skip_memory=True,
        skip_context_files=True,
        session_db=database,
        session_id=session,
        tool_delay=0,
        max_iterations=500,
    )


def main():
    """Do what is told, and print what was seen."""
    told = json.loads(sys.argv[1])
    database = SessionDB()
    agent = new_agent(told, database, told["session"])
    engine = agent.context_compressor
    history = database.get_messages_as_conversation(told["session"])
    seen = {
        "engine": engine.name,
        "class": type(engine).__name__,
        "tools": sorted(tool["function"]["name"] for tool in agent.tools),
        "resumed": len(history),
        "done": [],
    }
    for what, *arguments in told["do"]:
        note = {"did": what}
        if what == "say":
            result = agent.run_conversation(arguments[0], conversation_history=history)
            history = result["messages"]
            note["answer"] = result["final_response"]
        elif what == "compress":
            before = len(history)
            history, _ = agent._compress_context(history, None, focus_topic=arguments[0], force=True)  # noqa: SLF001 - as its own command does
            note["messages"] = [before, len(history)]
        elif what == "new":
            engine.on_session_end(agent.session_id, history)
            history, agent.session_id = [], arguments[0]
            agent.reset_session_state()
            database.create_session(session_id=agent.session_id, source="cli", model=told["model"])
        elif what == "another":
            other = new_agent(told, database, "another").context_compressor
            note["same"], note["class"] = other is engine, type(other).__name__
        note |= {"session": agent.session_id, "compactions": engine.compression_count, "list": len(history)}
        note["stored_as"] = getattr(engine, "conversation", "")
        seen["done"].append(note)
    agent.shutdown_memory_provider(history)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
