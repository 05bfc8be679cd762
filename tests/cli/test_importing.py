"""`holdfast import`."""


def test_an_unknown_first_word_names_what_there_is(run):
    result = run("import", "nonsense")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "holdfast import checkpnt" in result.stderr
