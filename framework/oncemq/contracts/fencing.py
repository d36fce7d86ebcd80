"""The number that tells a lock's holders apart in time."""


class FencingToken(int):
    """The number of a lock's acquisition, higher than that of every earlier holder.

    A handler that asks for it by annotation can store it beside what it writes, where a lower one shall be refused.
    """
