"""Find the words that a person may mean by letters with a slip in them.

A tree of a sorted list: a node stands for the words with one beginning, which stand together, and
is made when it is first visited. All letters are read at once from every node that can still be
meant, each with the cost of the slips on the way there (`export.runtime.slips`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from export.runtime.slips import DOUBLED, DROPPED, EXTRA, MARK, MOST, SWAPPED, Layout

_APOSTROPHE = "'"
_LETTERS_FOR_TWO = 4


class Node:
    """The words from ``first`` up to ``last`` of a sorted list: all that have one beginning."""

    __slots__ = ("depth", "first", "last", "nexts")

    def __init__(self, first: int, last: int, depth: int) -> None:
        self.first = first
        self.last = last
        self.depth = depth
        self.nexts: dict[str, Node] | None = None


@dataclass(frozen=True)
class Reached:
    """Words that the letters may mean.

    Attributes:
        cost: What the slips cost, in nats; 0 without any.
        left: How many more slips there might have been.
    """

    node: Node
    cost: float
    left: int


class WordTree:
    """A sorted list of words as a tree of letters; safe to share between threads.

    ``shown``: the same words as a strip shows them.
    """

    def __init__(self, words: Sequence[str], *, shown: Sequence[str] | None = None) -> None:
        self.words = words
        self.shown = words if shown is None else shown
        self._root = Node(0, len(words), 0)

    def nexts(self, node: Node) -> dict[str, Node]:
        """Return the nodes one letter further, by that letter."""
        if node.nexts is None:
            node.nexts = dict(self._parts(node))
        return node.nexts

    def ends(self, node: Node) -> bool:
        """Return whether a word ends here; it is the node's first."""
        return node.first < node.last and len(self.words[node.first]) == node.depth

    def reach(self, typed: str, layout: Layout) -> list[Reached]:
        """Return where the typed letters may lead, the words without a slip among them."""
        search = _Search(self, layout, 1 + (len(typed) >= _LETTERS_FOR_TWO))
        for letter in typed:
            search.read(letter)
        return search.found()

    def _parts(self, node: Node) -> Iterator[tuple[str, Node]]:
        words, depth = self.words, node.depth
        at = node.first + self.ends(node)
        while at < node.last:
            letter = words[at][depth]
            low, high = at + 1, node.last
            while low < high:
                middle = (low + high) // 2
                if words[middle][depth] == letter:
                    low = middle + 1
                else:
                    high = middle
            yield letter, Node(at, low, depth + 1)
            at = low


class _Search:
    """Every node that the letters read so far may lead to.

    A state is a node and, after half a swap, the letter that must come next.
    """

    def __init__(self, tree: WordTree, layout: Layout, left: int) -> None:
        self._tree = tree
        self._layout = layout
        self._states: dict[tuple[Node, str], tuple[float, int]] = {(tree._root, ""): (0.0, left)}
        self._before: str | None = None

    def read(self, letter: str) -> None:
        """Read one more letter."""
        states, self._states = self._states, {}
        for (node, awaited), (cost, left) in states.items():
            if not awaited:
                self._keep(node, letter, cost, left)
                if left:
                    self._slip(node, letter, cost, left)
            elif awaited == letter:
                self._put(node, "", cost, left)
        self._before = letter

    def found(self) -> list[Reached]:
        """Return the nodes at which no letter is awaited."""
        return [
            Reached(node, cost, left)
            for (node, awaited), (cost, left) in self._states.items()
            if not awaited
        ]

    def _keep(self, node: Node, letter: str, cost: float, left: int) -> None:
        """Read a letter as it was meant; an apostrophe before it may be missing."""
        nexts = self._tree.nexts(node)
        if letter in nexts:
            self._put(nexts[letter], "", cost, left)
        if _APOSTROPHE in nexts:
            follow = self._tree.nexts(nexts[_APOSTROPHE]).get(letter)
            if follow is not None:
                self._put(follow, "", cost + MARK, left)

    def _slip(self, node: Node, letter: str, cost: float, left: int) -> None:
        """Read a letter as a slip; a missing accent is none."""
        after = left - 1
        self._put(node, "", cost + (DOUBLED if letter == self._before else EXTRA), after)
        for meant, child in self._tree.nexts(node).items():
            if meant == letter:
                continue
            replaced = self._layout.replaced(meant, letter)
            self._put(child, "", cost + replaced, left if replaced == MARK else after)
            follow = self._tree.nexts(child).get(letter)
            if follow is not None:
                self._put(follow, "", cost + DROPPED, after)
                self._put(follow, meant, cost + SWAPPED, after)

    def _put(self, node: Node, awaited: str, cost: float, left: int) -> None:
        key = (node, awaited)
        known = self._states.get(key)
        if cost <= MOST and (known is None or cost < known[0]):
            self._states[key] = (cost, left)
