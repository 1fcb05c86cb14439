"""Training of the WordPiece tokenizer."""

from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.train import train_tokenizer


def test_merges_follow_frequency():
    tokenizer = train_tokenizer(
        TokenizerSettings(vocab_size=64), ["low lower lowest low low newer newer newer wider"] * 10
    )
    assert tokenizer.token_to_id("low") is not None
    assert tokenizer.token_to_id("##er") is not None
    assert tokenizer.encode("slower").ids.tolist() == [tokenizer.unknown]  # "##l" never occurred in the text
    assert tokenizer.decode(tokenizer.encode("lower newest").ids) == "lower newest"


def test_ideographs_are_never_merged_and_have_no_continuation_form(trained):
    tokens = [trained["wordpiece"].id_to_token(number) for number in range(trained["wordpiece"].vocab_size)]
    chinese = [token for token in tokens if any("\u4e00" <= character <= "\u9fff" for character in token)]
    assert chinese
    assert all(len(token) == 1 for token in chinese)


def test_special_tokens_are_only_the_five(trained):
    assert trained["wordpiece"].special_mask.sum() == 5
    assert [trained["wordpiece"].id_to_token(number) for number in range(5)] == [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
