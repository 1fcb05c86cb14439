"""Reader for built-in samples."""

from meristem import samples


def test_documents_of_a_sample(read_corpus):
    name = "microworld?size=40&seed=3"
    documents, account = read_corpus(f"builtin:{name}")
    assert documents[0].location == f"builtin:{name}#1"
    assert {d.text for d in documents} == {text.strip() for text in samples.documents(name)}
    assert account.read == 40
    assert {"train", "validation", "test"} == set(account.splits)
