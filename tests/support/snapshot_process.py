"""Process that edits a directory and takes snapshots until it is killed; prints the acknowledged ones."""

import random
import sys
from pathlib import Path

from trees import remove, write
from whole_lines import say

from holdfast import SyncClient
from holdfast.operations import staging
from holdfast.workspace.snapshot import compress, take

for module in (staging, take, compress):
    module.STAGED_BYTES = 8_000  # so that most snapshots are written in parts
compress.BATCH_CONTENTS = 8  # and compressed by a thread

store, root, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
chosen = random.Random(seed)
with SyncClient.sqlite(store, durability="fast") as client:
    workspace = client.workspace(root, watch=seed % 2 == 0)
    while True:
        for _ in range(chosen.randrange(40)):
            path = b"d%d/f%d" % (chosen.randrange(6), chosen.randrange(30))
            if chosen.random() < 0.2:
                remove(root, path)
            else:
                write(root, path, chosen.randbytes(chosen.randrange(2_000)))
        saved = client.save("agent", session_id="s", execution_state={"seed": seed}, workspace=workspace)
        say(saved)
