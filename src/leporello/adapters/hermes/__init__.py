"""Our engines inside Hermes Agent: the engine that it gets, its auxiliary model for summaries, and the installation.

`leporello hermes install` writes a plugin of a few lines into a Hermes home; all that it does stands here. Hermes
Agent's own modules are imported when it is running.
"""
