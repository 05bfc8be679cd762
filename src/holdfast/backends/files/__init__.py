"""The files backend: a store that is a directory, to look into and to copy with rsync.

May import `backends.bridge`, modules of `backends`, `model`, `errors`; no other kind of store.
Start with `backend.py`.

    holdfast.json                           {"format": 1, "layout": "files"}
    lock                                    flock: shared to read, exclusive to commit; always empty
    journal                                 a commit that is being carried out; absent at rest
    staged/                                 files of a commit that is being prepared; empty at rest
    order                                   ids of records, in the order they came: `change_log.py`
    sessions/<session>/<sequence>.record    records, by their place in a session (10 digits)
    records/<xx>/<id>.record                the same files (hard links), by id; xx: last two hex digits
    logs/<log>/<first>-<length>.run         segments, as they are (log and first: 10 digits)
    blobs/<xx>/<sha256>                     blobs, as they are; xx: first two hex digits; the modification
                                            time is that of the last commit that wrote it (µs)
    rows/<space>/<tree>/<key>.row           rows; the tree in hex, or `_store` for rows of the whole store

Sessions and keys are any bytes: `file_names.py` says how they become file names. Records and rows
begin with two lines that a person can read: `envelope.py`. A reader takes the shared lock, a writer
the exclusive one. A commit is prepared in `staged`, takes effect when `journal` gets its name, and
is carried out from there, by the next writer if need be: `journal.py`. There is one lock for the
whole store: a commit is short, and commits that arrive together share it.

Readers write nothing, not even the lock's file: a store can be read on a read-only file system.
Below the store's directory no link is followed, and files are regular ones: a store may come from a
stranger.

Copying: a copy made while no process commits is a store. A copy made at any other moment is one if
`journal` and `staged` are in it and nothing was committed meanwhile; `flock -s DIR/lock rsync -aH
DIR/ TARGET/` makes sure of that.
"""

from holdfast.backends.files.backend import FilesBackend, open_url

__all__ = ["FilesBackend", "open_url"]
