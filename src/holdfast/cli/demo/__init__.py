"""`holdfast demo`: an agent that is killed, goes on, and is forked. Everything it tells was measured while it ran.

`agent.py` is the agent, run in processes of its own; `lives.py` starts and kills these; `story.py` is what happens, in
order; `telling.py` prints it.
"""
