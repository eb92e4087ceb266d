"""The base of the settings of every family of networks. No torch."""

import msgspec

from models.vector.schema import Schema


class Family(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="family"
):
    """The settings of one family, which its name in ``family`` tells from the others'."""

    @property
    def family_name(self) -> str:
        """Return the family's name, as floors and refusals have it."""
        return str(self.__struct_config__.tag)

    def schema(self) -> Schema:
        """Return the tensors of the network in state-dict order, every one ``shared``."""
        raise NotImplementedError
