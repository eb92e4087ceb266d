"""Work that a cluster's nodes do by themselves, with a line on which they tell how it goes.

A task is a function and its arguments, on processors that Ray sets aside for it. It returns its
result and says things on its way, which arrive in order, each once, and before the result. Nothing
is repeated here: a task whose node died is lost, as is one of whose words some are missing, and its
owner knows from where to go on.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from simulation.engines.cluster import EngineError, live_nodes
from simulation.engines.scratch import clear_nodes

_WAIT_S = 0.2
_CANCEL_S = 5.0
_LONGEST_REASON = 160

Say = Callable[[object], None]
"""Tell the machine that began the task something that pickle knows."""


class Said(NamedTuple):
    """Something that a task tells on its way."""

    key: int
    message: Any  # What the task's function says.


class Ended(NamedTuple):
    """The result of a task."""

    key: int
    result: Any  # What the task's function returns.


class Lost(NamedTuple):
    """A task that ended without a result: its process or its node died."""

    key: int
    why: str


class NodeTasks:
    """The tasks of one command on the cluster that it has joined."""

    def __init__(self, *, processors: int, gpus: int = 0) -> None:
        """Get ready to begin some.

        Args:
            processors: Processors of one node that a task uses.
            gpus: Graphics processors that it uses.

        Raises:
            EngineError: If no node has so many.
        """
        import ray

        _check_room(processors, gpus)
        self._ray: Any = ray  # Ray's functions are hardly typed.
        remote = self._ray.remote(num_cpus=processors, num_gpus=gpus, max_retries=0)
        self._do = remote(_do)
        self._mailbox = _mailbox(self._ray)
        self._keys: dict[Any, int] = {}  # By Ray's references, of two kinds.
        self._heard: dict[int, int] = {}  # Words of each task under way.
        self._count = 0
        self._given_up: list[Any] = []  # References to interrupted tasks, which may still end.
        self._was_killed = False

    def share(self, value: object) -> object:
        """Return what stands for a value among arguments: a node fetches it once."""
        return self._ray.put(value)

    def begin(self, function: Callable[..., object], *arguments: object) -> int:
        """Have ``function(say, *arguments)`` called on a node, and return the task's key."""
        self._count += 1
        reference = self._do.remote(self._mailbox, self._count, function, *arguments)
        self._keys[reference] = self._count
        self._heard[self._count] = 0
        return self._count

    def news(self) -> Sequence[Said | Ended | Lost]:
        """Wait a moment for news of all tasks, and return what there is.

        Raises:
            EngineError: If the cluster lost what it held for this command.
        """
        if not self._keys:
            return []
        self._ray.wait(list(self._keys), timeout=_WAIT_S)
        every = list(self._keys)
        # Whatever a task said has arrived before it ends, so ends are looked for first.
        ended, _ = self._ray.wait(every, num_returns=len(every), timeout=0)
        told = [self._told(*letter) for letter in self._letters()]
        ends = [self._end(reference) for reference in ended if reference in self._keys]
        return [*(news for news in told if news is not None), *ends]

    def cancel(self, key: int) -> None:
        """Interrupt a task, of which there will be no news."""
        for reference in [one for one, its_key in self._keys.items() if its_key == key]:
            del self._keys[reference], self._heard[key]
            self._ray.cancel(reference)
            self._given_up.append(reference)

    def cancel_all(self) -> None:
        """Interrupt every task and wait until it has ended, which is forced where need be.

        What a task left on its node that was killed, now or before, goes too.
        """
        for key in list(self._heard):
            self.cancel(key)
        left = self._wait_for(self._given_up)
        for reference in left:
            self._ray.cancel(reference, force=True)
        self._wait_for(left)
        if left or self._was_killed:
            clear_nodes()

    def _wait_for(self, ends: list[Any]) -> list[Any]:
        """Wait a while for tasks to end, and return those that did not."""
        if not ends:
            return []
        left: list[Any] = self._ray.wait(ends, num_returns=len(ends), timeout=_CANCEL_S)[1]
        return left

    def _letters(self) -> "list[Letter]":
        from ray.exceptions import RayError

        try:
            letters: list[Letter] = self._ray.get(self._mailbox.take.remote())
        except RayError as error:
            raise EngineError(
                f"the cluster can keep nothing for this command ({_line(error)}); the same command "
                "goes on from what is here"
            ) from None
        return letters

    def _told(self, key: int, number: int, message: object) -> Said | Lost | None:
        """Return the news in a letter; None of one that was seen, or of a task that is over."""
        if key not in self._heard or number <= self._heard[key]:
            return None
        if number > self._heard[key] + 1:
            self.cancel(key)
            return Lost(key, _MISSING)
        self._heard[key] = number
        return Said(key, message)

    def _end(self, reference: Any) -> Ended | Lost:
        from ray.exceptions import (
            RayError,
            RayTaskError,
            RuntimeEnvSetupError,
            TaskUnschedulableError,
        )

        key = self._keys.pop(reference)
        heard = self._heard.pop(key)
        try:
            said, result = self._ray.get(reference)
        except (RayTaskError, RuntimeEnvSetupError, TaskUnschedulableError) as error:
            raise EngineError(f"the cluster cannot do its work: {error}") from error
        except RayError as error:
            self._was_killed = True
            return Lost(key, _line(error))
        return Ended(key, result) if said == heard else Lost(key, _MISSING)


Letter = tuple[int, int, object]
"""The key of a task, the number of a word among its own from 1, and the word."""

_MISSING = "what it had told was lost with another node"


class _Mailbox:
    """Letters from nodes until they are taken; if its node dies, it begins anew on another."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []

    def post(self, letter: Letter) -> None:
        """Put a letter in."""
        self._letters.append(letter)

    def take(self) -> list[Letter]:
        """Take all letters out, in the order in which they came."""
        letters, self._letters = self._letters, []
        return letters


def _mailbox(ray: Any) -> Any:  # As Ray has it.
    """Return a mailbox on this node, or where a client's commands are carried out."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    lasting = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Mailbox)
    return lasting.options(scheduling_strategy=here).remote()


# On the node.
def _do(
    mailbox: Any, key: int, function: Callable[..., object], *arguments: object
) -> tuple[int, object]:
    """Return how many words were said, and the result."""
    import ray

    posted: list[Any] = []
    said = 0

    def say(message: object) -> None:
        nonlocal said
        wait()
        said += 1
        posted.append(mailbox.post.remote((key, said, message)))

    def wait() -> None:
        """Wait until the last letter is there: at most one is under way."""
        while posted:
            ray.get(posted.pop())

    result = function(say, *arguments)
    wait()
    return said, result


def _check_room(processors: int, gpus: int) -> None:
    """Check that a node can ever do a task: Ray would wait for one without a word."""
    nodes = [node["Resources"] for node in live_nodes()]
    for name, wanted, remedy in (
        ("CPU", processors, "lower --workers"),
        ("GPU", gpus, "give --device cpu"),
    ):
        largest = max((int(resources.get(name, 0)) for resources in nodes), default=0)
        if wanted > largest:
            raise EngineError(
                f"a run asks for {wanted} {name} of one node, and no node of the cluster has more "
                f"than {largest}; {remedy}"
            )


def _line(error: Exception) -> str:
    """Return the beginning of Ray's many lines."""
    return " ".join(str(error).split())[:_LONGEST_REASON]
