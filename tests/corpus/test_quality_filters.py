"""Quality filters."""

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import RecipeError
from meristem.config.overrides import apply_overrides
from meristem.config.validation import build_settings
from meristem.corpus.clean.quality_filters import QualitySettings, failed_rule, quality_step
from meristem.corpus.clean.repetition import PhraseRepetition, count_repeats
from meristem.corpus.clean.word_split import SplitText
from meristem.corpus.document import Document, Drop
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest

RULES = QualitySettings()

ENGLISH = """The harbour was quiet when the first boats came back in the grey light of the morning.
A woman with a basket stood at the end of the pier, and two boys were throwing stones into the water.
Nobody had slept much, because the storm had taken the roof of the old school and part of the road to the mill.
By noon the baker had opened his shop, and people began to talk about what they would have to build first.
"We will start with the school," said the teacher, "and the road can wait until the spring."
It was a long list, but the village had made longer ones before, and it had never been short of hands.
"""

CHINESE = """城市的早晨总是从菜市场开始的。天还没有亮，卖菜的人就已经把新鲜的蔬菜摆在了路边，等着第一批客人到来。
老人们提着布袋慢慢地走，一边看一边问价钱，有时候只是为了和熟人说几句话。孩子们背着书包从旁边跑过去，手里还拿着没有吃完的包子。
太阳升起来以后，街上的车渐渐多了，买菜的人也少了。卖鱼的师傅把水倒掉，收起了摊子，准备回家休息。
他说这个市场已经有三十多年的历史，虽然附近新开了两家大超市，但是很多人还是喜欢到这里来，因为这里的东西新鲜，也因为这里有人情味。
"""

JAPANESE = """朝の市場はいつもにぎやかだった。魚を売る人の声が聞こえ、子供たちは学校へ急いでいた。
おばあさんは野菜を選びながら、となりの店の人と昨日の雨のことを話していた。雨は一晩中降りつづけ、川の水が増えていた。
それでも橋は無事だったので、みんなほっとした顔をしていた。昼になると人は少なくなり、店の主人は静かにお茶を飲んだ。
"""

KOREAN = """아침 시장은 언제나 사람들로 붐볐다. 생선을 파는 아저씨의 목소리가 들렸고, 아이들은 학교로 뛰어갔다.
할머니는 채소를 고르면서 옆 가게 주인과 어제 내린 비에 대해 이야기했다. 비는 밤새 내렸고 강물은 많이 불어났다.
그래도 다리는 무사했기 때문에 모두 안심한 얼굴이었다. 점심때가 되자 손님이 줄었고 주인은 조용히 차를 마셨다.
그는 이 시장이 삼십 년이 넘었다고 말했다. 근처에 큰 가게가 두 곳이나 생겼지만 사람들은 여전히 이곳을 찾는다.
비가 그친 하늘은 맑았고 바람은 시원했다. 내일은 더 많은 사람이 올 것이라고 모두가 말했다. 시장은 다시 조용해졌다.
"""


def words(count: int, rng: random.Random) -> str:
    """Sentences of made-up words, none of them twice."""
    word_list = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(4, 8))) for _ in range(count)]
    return " ".join(f"{word}." if number % 9 == 8 else word for number, word in enumerate(word_list))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        (ENGLISH, ""),
        (CHINESE, "zh"),
        (JAPANESE, "ja"),
        (KOREAN, "ko"),
        (ENGLISH.replace("\n", "\n\n"), "en"),
        (CHINESE.replace("\n", ""), "zh"),
    ],
)
def test_ordinary_text_passes(text, language):
    assert failed_rule(text, RULES, language) == ""


RNG = random.Random(1)
LINES = ENGLISH.strip().split("\n")
WRONG = {
    "too few words": ("Only a few words, and that is all.", "min_words"),
    "too many words": (ENGLISH + words(100_001, RNG), "max_words"),
    "words too short": (ENGLISH + "a b c d e f g h i j. " * 40, "min_mean_word_length"),
    "words too long": (ENGLISH + " ".join("x" * 40 for _ in range(60)), "max_mean_word_length"),
    "too many symbols": (ENGLISH + " #" * 40, "hashes"),
    "too few sentences": (ENGLISH.replace(".", ",").replace("spring,", "spring."), "sentences"),
    "too many bullet lines": ("\n".join(f"- {line}" for line in LINES), "bullet_lines"),
    "too many ellipsis lines": (
        "\n".join(line.rstrip('."') + "…" for line in LINES[:3]) + "\n" + ENGLISH,
        "ellipsis_lines",
    ),
    "too few lines end a sentence": (
        "\n".join(f"{line} And number {n} of it" for n, line in enumerate(LINES)),
        "ended_lines",
    ),
    "too many short lines": (ENGLISH + "\n".join(f"Short one, {n}." for n in range(20)), "short_lines"),
    "too many line breaks": (ENGLISH + "\n" * 60 + "The end.", "line_breaks"),
    "too few words with letters": (ENGLISH + " ".join(str(n * 7919) for n in range(60)), "letter_words"),
    "too few stop words": (words(198, RNG), "stop_words"),
    "repeated lines": (ENGLISH + LINES[0] + "\n" + LINES[1] + "\n", "repeated_line_characters"),
    "curly brackets": (ENGLISH + "if (x) { y }", "curly_brackets"),
    "lorem ipsum": (ENGLISH + "Lorem ipsum dolor sit amet.", "lorem_ipsum"),
    "javascript notice": (ENGLISH + "Please enable JavaScript to view the comments.", "javascript"),
    "one phrase of 2 words repeated": (
        ENGLISH + " ".join(f"wonderful machine {w}" for w in words(30, RNG).split()),
        "top_phrases",
    ),
    "repeated phrases of 5 words": (
        ENGLISH.replace("\n", " ")
        + " "
        + " ".join(f"{' '.join(line.split()[:9])} {n}." for n, line in enumerate(LINES)),
        "repeated_phrases",
    ),
}


@pytest.mark.parametrize("reason", WRONG)
def test_each_rule_names_itself_and_can_be_switched_off(reason):
    text, setting = WRONG[reason]
    assert failed_rule(text, RULES, "en") == reason
    assert quality_step(RULES)(Document(text, "f:1", language="en")) == Drop(reason)
    assert failed_rule(text, RULES.model_copy(update={setting: None}), "en") != reason


def test_repeated_paragraphs():
    text = "\n\n".join(LINES + LINES[:3])
    lenient = RULES.model_copy(update={"repeated_line_characters": None, "repeated_lines": None})
    assert failed_rule(text, RULES, "en") == "repeated lines"
    assert failed_rule(text, lenient, "en") == "repeated paragraphs"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("春眠不觉晓，处处闻啼鸟。", "too few words"),
        (CHINESE + "……" * 60, "too many symbols"),
        ("\n".join(f"新闻标题{n}" for n in range(60)) + "。！？", "too few lines end a sentence"),
        (CHINESE + CHINESE.split("\n")[1] + "\n", "repeated lines"),
        (CHINESE.replace("\n", "") + CHINESE.split("\n")[1] + CHINESE.split("\n")[0], "repeated phrases of 5 words"),
    ],
)
def test_rules_know_ideographs(text, reason):
    assert failed_rule(text, RULES, "zh") == reason


def test_words_of_scripts_without_spaces():
    assert SplitText("我有3本书 and 五 pens").words == ["我", "有", "3", "本", "书", "and", "五", "pens"]
    assert not SplitText("naïve “quotes” and a café").is_unspaced
    assert 5 <= len(SplitText("วันนี้อากาศดีและเรากำลังจะไปสวน").words) <= 10


def test_repeats_counts_what_came_before():
    assert count_repeats(["ab", "c", "ab", "ab"]) == (2, 4)
    assert count_repeats(["ab", "c"]) == (0, 0)


def slowly_covered(words: list[str], size: int) -> int:
    seen_phrases, covered = set(), set()
    for start in range(len(words) - size + 1):
        phrase = tuple(words[start : start + size])
        if phrase in seen_phrases:
            covered |= set(range(start, start + size))
        seen_phrases.add(phrase)
    return sum(len(words[position]) for position in covered)


@given(st.lists(st.sampled_from(["a", "bb", "ccc"]), max_size=40), st.integers(2, 6))
def test_covered_characters_are_those_of_the_slow_way(words, size):
    total = sum(map(len, words))
    repetition = PhraseRepetition(" ".join(words))
    covered = slowly_covered(words, size)
    assert repetition._repeated_characters(repetition._phrases(size), size) == covered
    for limit in (0.05, 0.2, 0.6):
        assert repetition.first_size_exceeding({size: limit}) == (size if covered > limit * total else 0)
    phrases = Counter(tuple(words[index : index + size]) for index in range(len(words) - size + 1))
    heaviest = max((count * len("".join(phrase)) for phrase, count in phrases.items() if count > 1), default=0)
    for limit in (0.1, 0.3, 0.9):
        repetition = PhraseRepetition(" ".join(words))
        assert repetition.top_phrase_exceeds(size, limit) == (heaviest > limit * total)


@given(st.text(max_size=300))
def test_no_text_makes_the_rules_fail(text):
    quality_settings = QualitySettings(min_words=None, sentences=None, ended_lines=None, stop_words=None)
    assert isinstance(failed_rule(text, quality_settings), str)


def test_settings_switch_and_nest():
    def enabled_rules(*overrides):
        plain = apply_overrides({"corpus": {"source": "x", "quality": True}}, overrides)
        return build_settings(CorpusSettings, plain["corpus"], "corpus").quality

    assert enabled_rules() == RULES and CorpusSettings().quality is None
    assert enabled_rules("corpus.quality.min_words=30").min_words == 30
    assert enabled_rules("corpus.quality.curly_brackets=null").curly_brackets is None
    assert enabled_rules("corpus.quality=false") is None
    with pytest.raises(RecipeError, match=r"corpus\.quality\.min_wrds.*did you mean min_words\?"):
        enabled_rules("corpus.quality.min_wrds=3")
    assert all(field.description for field in QualitySettings.model_fields.values())


def test_what_is_switched_off_leaves_the_key_of_a_corpus_alone(tmp_path: Path):
    (tmp_path / "a.txt").write_text("text")
    keys = {
        corpus_digest(CorpusSettings(source=str(tmp_path), **disabled))
        for disabled in ({}, {"quality": False}, {"pii": False}, {"languages": None}, {"boilerplate": False})
    }
    assert len(keys) == 1
    for enabled in ({"quality": True}, {"pii": True}, {"languages": "en"}, {"boilerplate": True}):
        keys.add(corpus_digest(CorpusSettings(source=str(tmp_path), **enabled)))
    assert len(keys) == 5


def test_the_account_names_each_rule_whatever_the_number_of_processes(read_corpus, tmp_path: Path, monkeypatch):
    for number in range(3):
        texts = [ENGLISH.replace("grey", f"grey{number}{n}").replace("\n", " ") for n in range(20)]
        texts += [f"Too short, number {number} {n}." for n in range(7)] + [
            WRONG["curly brackets"][0].replace("\n", " ")
        ]
        (tmp_path / f"{number}.txt").write_text("\n".join(texts))
    monkeypatch.setattr("meristem.corpus.pipeline.MIN_POOL_BYTES", 1)
    single_documents, single_account = read_corpus(tmp_path, document="line", quality=True, processes=1)
    parallel_documents, parallel_account = read_corpus(tmp_path, document="line", quality=True, processes=2)
    assert single_account.dropped == {"too few words": 21, "curly brackets": 3} and single_account.kept == 60
    assert single_account.languages == {"en": 60}
    assert single_documents == parallel_documents and single_account == parallel_account
