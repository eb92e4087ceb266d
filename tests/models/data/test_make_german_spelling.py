"""How German writes a word is what most text inside its sentences does."""

from models.data.make_german_spelling import count, spellings


def test_most_text_decides_on_a_capital_and_on_the_sharp_s() -> None:
    text = """
    er sah das Haus und das Haus und das Haus und das Haus, ein haus war es
    so groß, so groß, so groß, so groß, so muß, so muß, so muß, so muß, ich muss
    aber Sie und Sie und Sie und Sie, das USB und USB und USB und USB, zu Selten
    """

    # Once in five is "haus" small; "muß" is not ten times as frequent as "muss".
    assert spellings(count([text])) == {"Haus", "groß"}


def test_the_beginning_of_a_sentence_says_nothing() -> None:
    assert spellings(count(["Heute. Heute. Heute. Heute! Heute? Heute"])) == set()
