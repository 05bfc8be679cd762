import pytest
from checkpnt_sources import Source


@pytest.fixture
def source(tmp_path) -> Source:
    """A checkpnt database in a directory of its own."""
    directory = tmp_path / "theirs"
    directory.mkdir()
    return Source(directory / "checkpnt_local.db")
