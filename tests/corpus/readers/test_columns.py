import pytest

from meristem.corpus.readers.columns import text_column
from meristem.settings import MeristemError


@pytest.mark.parametrize(("columns", "strings", "wanted", "found"), [
    (["id", "text", "title"], ["text", "title"], None, "text"),
    (["content", "body"], ["content", "body"], None, "content"),
    (["id", "review"], ["review"], None, "review"),
    (["text", "title"], ["text", "title"], "title", "title"),
])
def test_found(columns, strings, wanted, found):
    assert text_column("f:1", columns, strings, wanted) == found


@pytest.mark.parametrize(("columns", "wanted", "says"), [
    (["title", "review"], None, "Columns: title, review. Set corpus.text=COLUMN"),
    (["title", "review"], "reveiw", "no column 'reveiw', did you mean review"),
    ([], None, "Columns: none"),
])
def test_not_found_names_the_columns(columns, wanted, says):
    with pytest.raises(MeristemError, match=says) as error:
        text_column("f:1", columns, columns, wanted)
    assert str(error.value).startswith("f:1: ")
