import pytest
import torch

from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import WordNetwork, build_network
from models.settings.model import GruLmSettings, schema_of
from models.tasks.keystrokes import KeystrokeCounts, keystroke_savings
from models.text.vocabulary import EOS, UNK, Vocabulary

WORDS = ("<unk>", "<eos>", "the", "then", "they", "them", "that", "cat", "cats", "a", "than")
VOCABULARY = Vocabulary(WORDS)


def network_that_prefers(order: list[str]) -> WordNetwork:
    """Return a network whose scores fall along the list, whatever the context."""
    network = build_network(GruLmSettings(vocabulary_size=len(WORDS), hidden_size=2))
    with torch.no_grad():
        for place, word in enumerate(order):
            network.output_bias[WORDS.index(word)] = float(len(order) - place)
    return network


ALPHABET = ["the", "then", "they", "them", "that", "than", "cat", "cats", "a"]


@pytest.mark.parametrize(
    ("word", "keys"),
    [
        ("the", 1),  # on show before any letter: the, then, they
        ("they", 1),
        ("them", 5),  # th, the: the then they; "them" alone after all four letters, then a space
        ("that", 4),  # after t, th: the then they; after tha: that than
        ("cat", 2),  # after c: cat cats
        ("a", 2),  # "a" is typed, then a space: picking saves nothing
        ("zebra", 6),  # not in the vocabulary: five letters and a space
    ],
)
def test_a_word_costs_its_letters_until_it_is_on_show_and_one_key_to_pick(
    word: str, keys: int
) -> None:
    network = network_that_prefers(ALPHABET)

    counts = keystroke_savings(network, VOCABULARY, [[[word]]])

    at_best = 1 if word in WORDS else 6
    assert counts == KeystrokeCounts(
        keys_without=len(word) + 1, keys_with=keys, keys_at_best=at_best
    )


def test_unk_and_eos_take_no_slot() -> None:
    network = network_that_prefers(["<unk>", "<eos>", "the", "then", "they"])

    # Three slots go to words although two special rows score higher.
    assert keystroke_savings(network, VOCABULARY, [[["they"]]]).keys_with == 1


def test_savings_and_ceiling_of_a_sentence() -> None:
    network = network_that_prefers(ALPHABET)

    counts = keystroke_savings(network, VOCABULARY, [[["the", "zebra"], ["cat"]]])

    # Without: 4 + 6 + 4 = 14. With: 1 + 6 + 2 = 9. At best: 1 + 6 + 1 = 8.
    assert counts.savings == pytest.approx(1 - 9 / 14)
    assert counts.ceiling == pytest.approx(1 - 8 / 14)


def test_a_word_hidden_by_the_corpus_is_not_counted() -> None:
    network = network_that_prefers(ALPHABET)

    hidden = keystroke_savings(network, VOCABULARY, [[["the", "<unk>", "cat"]]])

    assert hidden == keystroke_savings(network, VOCABULARY, [[["the", "cat"]]])


def random_network() -> WordNetwork:
    settings = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=8)
    network = build_network(settings)
    load_parameters(network, schema_of(settings), 10 * initial_parameters(settings, seed=2))
    return network


def type_by_hand(network: WordNetwork, sentences: list[list[str]]) -> int:
    """Press every key in turn, looking at the three suggestions before each."""
    keys, state, before = 0, None, EOS
    for sentence in sentences:
        for word in [*sentence, "<eos>"]:
            features, state = network.features(torch.tensor([[before]]), state)
            scores = (features[0, 0] @ network.output_weight.t() + network.output_bias).tolist()
            before = WORDS.index(word) if word in WORDS else UNK
            for letters in range(len(word) if word != "<eos>" else 0):
                fitting = [w for w in WORDS[2:] if w.startswith(word[:letters])]
                shown = sorted(fitting, key=lambda w: -scores[WORDS.index(w)])[:3]
                keys += 1  # either picks the word, or types the next letter
                if word in shown:
                    break
            else:
                keys += word != "<eos>"  # the space
    return keys


@torch.no_grad()
def test_keys_are_those_of_typing_by_hand_in_context() -> None:
    network = random_network()
    generator = torch.Generator().manual_seed(1)
    pool = [*WORDS[2:], "zebra", "it"]
    sentences = [
        [pool[int(at)] for at in torch.randint(len(pool), (6,), generator=generator)]
        for _ in range(20)
    ]

    one = keystroke_savings(network, VOCABULARY, [sentences], batch_size=1)
    many = keystroke_savings(network, VOCABULARY, [sentences], batch_size=64)

    assert one == many
    assert one.keys_with == type_by_hand(network, sentences)
    assert one.keys_at_best < one.keys_with < one.keys_without


def test_counts_add_up_and_nothing_typed_has_no_savings() -> None:
    one = KeystrokeCounts(keys_without=4, keys_with=2, keys_at_best=1)

    assert one + one == KeystrokeCounts(keys_without=8, keys_with=4, keys_at_best=2)
    assert keystroke_savings(random_network(), VOCABULARY, [[]]) == KeystrokeCounts()
    with pytest.raises(ValueError, match="at least one word"):
        _ = KeystrokeCounts().savings


def test_a_vocabulary_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="network's 11 words, got 3"):
        keystroke_savings(random_network(), VOCABULARY.cut(3), [[["the"]]])
