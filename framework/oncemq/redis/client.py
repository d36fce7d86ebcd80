"""Sends commands and scripts to Redis: each once, many of them in one round trip, in every formation."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from oncemq.errors import RedisRefused, RedisUnavailable
from oncemq.redis.call import Argument, Call, Script
from oncemq.redis.exchange import converse, exchange
from oncemq.redis.faults import (
    Failure,
    as_ours,
    asks,
    is_clients,
    is_no_master,
    moved,
    moved_to,
    not_yet,
    script_missing,
)
from oncemq.redis.routes import Routes, slot_of

T = TypeVar("T")

_ROUNDS = 5
"""A slot may move again during the search."""
_FIRST_PAUSE = 0.02
"""Seconds, doubled each time: while a slot migrates, the keys of a call may be on two servers for so long."""


class RedisClient:
    """Redis client of the strategies; one per process, opened on first use, thread-safe.

    Answers are the server's: bytes (text if the user's own client decodes), int, None, lists of these.

    Args:
        open_routes: finds the servers; called on first use.
        where: description of this Redis for texts, without secrets.
    """

    def __init__(self, open_routes: Callable[[], Routes], where: str = "Redis") -> None:
        self._open = open_routes
        self._opened: Routes | None = None
        self._mutex = threading.Lock()
        self._before_closing: list[Callable[[], None]] = []
        self._companions: dict[Any, Any] = {}
        self._companions_mutex = threading.RLock()
        self.where = where

    def __repr__(self) -> str:
        return f"<RedisClient {self.where}>"

    @property
    def routes(self) -> Routes:
        """Servers of the keys; opened on first use.

        Raises:
            RedisUnavailable: no server answers.
            MissingExtra: the client library is not installed.
        """
        if self._opened is None:
            with self._mutex:
                if self._opened is None:
                    self._opened = self._asking(self._open)
        return self._opened

    @property
    def clustered(self) -> bool:
        """Whether keys are spread over several servers; raises as `routes`."""
        return self.routes.clustered

    def command(self, *words: Argument, key: str) -> Any:
        """Return the answer to one command about `key`.

        Raises:
            RedisUnavailable: no answer; it may have been applied if `sent`.
            RedisRefused: Redis refused it.
        """
        return self.call(Call(key, words))

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument] = ()) -> Any:
        """Return the answer of a script whose keys are all in one slot; raises as `command`."""
        return self.call(Call.of(script, keys, arguments))

    def call(self, call: Call) -> Any:
        """Return the answer to one call; raises as `command`."""
        routes = self.routes
        answers = converse(routes, self._place(routes, call), [call])
        if isinstance(answers[0], Exception):
            self._look_around(routes, answers)
            if self._goes_again(call, answers, 0):
                self._before_next(answers, turn=0)
                answers = self.together([call])
        return _value(self._final(answers[0]))

    def at(self, place: str, *words: Argument) -> Any:
        """Return the answer of one master of `routes.masters()`; raises as `command`."""
        return _value(self._final(converse(self.routes, place, [Call("", words)])[0]))

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answers to calls that are sent together, with a `Failure` in place of each that failed.

        One round trip; in a cluster one to all servers in parallel. A call is sent again only if the server said
        that it did not run it.
        """
        answers: list[Any] = [None] * len(calls)
        todo = list(range(len(calls)))
        for turn in range(_ROUNDS):
            for index, answer in zip(todo, self._round([calls[index] for index in todo]), strict=True):
                answers[index] = answer
            todo = [
                index
                for index in todo
                if isinstance(answers[index], Exception) and self._goes_again(calls[index], answers, index)
            ]
            if not todo or turn == _ROUNDS - 1:
                break
            self._before_next([answers[index] for index in todo], turn)
        return [self._final(answer) for answer in answers]

    def shared(self, kind: Callable[["RedisClient"], T]) -> T:
        """Return the companion object of this client that `kind` creates, created on first use.

        Objects that must exist once per client (a watchdog, a listener) need no module state.
        """
        companion: T | None = self._companions.get(kind)
        if companion is not None:
            return companion
        with self._companions_mutex:
            if kind not in self._companions:
                self._companions[kind] = kind(self)
            made: T = self._companions[kind]
            return made

    def refresh(self) -> None:
        """Reload the slot map; while no node has a new one, the old map stays in use."""
        self._refresh()

    def before_closing(self, action: Callable[[], None]) -> None:
        """Run `action` before the connections are closed."""
        self._before_closing.append(action)

    def close(self) -> None:
        """Close what was opened; a client that the user supplied stays open."""
        while self._before_closing:
            self._before_closing.pop()()
        self._companions.clear()
        with self._mutex:
            routes, self._opened = self._opened, None
        if routes is not None:
            routes.close()

    def _round(self, calls: Sequence[Call]) -> list[Any]:
        try:
            routes = self.routes
            places = [self._place(routes, call) for call in calls]
        except (RedisRefused, RedisUnavailable) as error:
            return [error] * len(calls)  # nothing was sent, and the answers of earlier rounds stay
        by_place: dict[str, list[Call]] = {}
        order = []
        for place, call in zip(places, calls, strict=True):
            mine = by_place.setdefault(place, [])
            order.append((place, len(mine)))
            mine.append(call)
        answers = exchange(routes, by_place)
        self._look_around(routes, [answer for mine in answers.values() for answer in mine])
        return [answers[place][position] for place, position in order]

    def _place(self, routes: Routes, call: Call) -> str:
        if not routes.clustered:
            return routes.masters()[0]
        told, call.moved_to = call.moved_to, None
        try:
            if told is not None and routes.knows(told):
                return told
            return routes.place(slot_of(call.key))
        except Exception as error:
            if is_clients(error):
                raise as_ours(error, self.where, sent=False) from error
            raise

    def _look_around(self, routes: Routes, answers: Sequence[Any]) -> None:
        """Reload the map after a failure: the server may have lost its slots to a replica."""
        if routes.clustered and any(isinstance(answer, Failure) for answer in answers):
            self._refresh()

    def _goes_again(self, call: Call, answers: list[Any], index: int) -> bool:
        place = asks(answers[index])
        if place is not None:
            answers[index] = converse(self.routes, place, [Call("", ("ASKING",)), call])[1]
        answer = answers[index]
        if script_missing(answer):
            call.spell_out()
            return True
        call.moved_to = moved_to(answer)
        return moved(answer) or not_yet(answer) or is_no_master(answer)

    def _before_next(self, answers: Sequence[Any], turn: int) -> None:
        """Prepare the next round for calls to be repeated; `turn` rounds are over."""
        if again := any(moved(answer) or (is_no_master(answer) and self.clustered) for answer in answers):
            self._refresh()
        # The node that was asked for the map may not know yet that the slot has moved.
        if (again and turn) or any(not_yet(answer) or is_no_master(answer) for answer in answers):
            time.sleep(_FIRST_PAUSE * 2**turn)

    def _refresh(self) -> None:
        """Reload the slot map; while no node has a new one, the old map stays in use."""
        try:
            self.routes.refresh()
        except Exception as error:
            if not is_clients(error):
                raise

    def _asking(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            if is_clients(error):
                raise as_ours(error, self.where, sent=False) from error
            raise

    def _final(self, answer: Any) -> Any:
        return (
            as_ours(answer, self.where, sent=False)
            if isinstance(answer, Exception) and not isinstance(answer, Failure)
            else answer
        )


def _value(answer: Any) -> Any:
    if isinstance(answer, Failure):
        raise answer
    return answer
