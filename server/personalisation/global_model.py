"""Give everyone the same model: method ``global``."""

from torch import Tensor

from models.schema import Role, Schema


class GlobalModel:
    """Generate nothing and learn nothing: every tensor is shared.

    Raises:
        ValueError: If the schema has a tensor that is not shared.
    """

    def __init__(self, schema: Schema) -> None:
        others = [tensor.name for tensor in schema.tensors if tensor.role is not Role.SHARED]
        if others:
            raise ValueError(
                f"method global shares every tensor, but {others} are not shared; "
                "choose the method that made them so"
            )

    def parameters_for(self, client_name: str) -> Tensor | None:
        """Return None: a client gets the shared parameters and nothing else."""
        return None

    def take(self, client_name: str, generated_update: Tensor, example_count: int) -> None:
        """Refuse: no client has generated tensors.

        Raises:
            ValueError: Always.
        """
        raise ValueError("method global has no generated tensors, got an update of some")

    def close(self) -> None:
        """Do nothing: nothing was taken."""
