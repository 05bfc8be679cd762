"""`holdfast demo`: an agent that is killed, resumes, and is forked.

May import everything.
Start with `story.py`, the acts in order.

All figures are measured while it runs. `agent.py` is the agent, run in processes of its own;
`processes.py` starts and kills these; `narrator.py` prints the story.
"""
