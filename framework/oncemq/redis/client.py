"""Commands and scripts for Redis: each is sent once, many of them in one round trip, whichever the servers' formation."""

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
"""A slot may move again while it is looked for."""
_FIRST_PAUSE = 0.02
"""Seconds, then twice as long each time: so long a slot on the move may have a call's keys on two servers."""


class RedisClient:
    """What strategies talk to Redis with; one per process, opened when first used, safe for any number of threads.

    Answers are what the server said: bytes (text where the user's own client decodes), int, None, lists of these.

    Args:
        open_routes: finds the servers; called when something is first asked of them.
        where: which Redis this is, in words without any secret.
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
        """Where keys live; opened now if they were not.

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
        """Whether keys live on several servers; raises as `routes`."""
        return self.routes.clustered

    def command(self, *words: Argument, key: str) -> Any:
        """Return the answer to one command about `key`.

        Raises:
            RedisUnavailable: no answer; it may have been applied if `sent`.
            RedisRefused: Redis said no.
        """
        return self.call(Call(key, words))

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument] = ()) -> Any:
        """Return the answer of a script whose keys live in one slot; raises as `command`."""
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
        """Return what one master of `routes.masters()` answers; raises as `command`."""
        return _value(self._final(converse(self.routes, place, [Call("", words)])[0]))

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answers to calls that are sent at once, with a `Failure` in place of what failed.

        One round trip; in a cluster one to all servers at the same time. A call is sent again only where the
        server said that it did not run it.
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
        """Return the one companion of this client that `kind` makes, made when first asked for.

        So what must exist once per client (a watchdog, a listener) needs no state of its module.
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
        """Ask again which server holds which slot; while nobody knows, the old map stands."""
        self._refresh()

    def before_closing(self, action: Callable[[], None]) -> None:
        """Do `action` before the connections are closed."""
        self._before_closing.append(action)

    def close(self) -> None:
        """Close what was opened; a client that the user brought stays open."""
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
            return [error] * len(calls)  # nothing was sent, and what earlier rounds answered stays
        by_place: dict[str, list[Call]] = {}
        order = []
        for place, call in zip(places, calls, strict=True):
            mine = by_place.setdefault(place, [])
            order.append((place, len(mine)))
            mine.append(call)
        answers = exchange(routes, by_place)
        self._look_around(routes, [one for mine in answers.values() for one in mine])
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
        """A server that does not answer may have lost its slots to a replica: the next call looks there."""
        if routes.clustered and any(isinstance(one, Failure) for one in answers):
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
        """Prepare the next round for what is asked again, after so many."""
        if again := any(moved(one) or (is_no_master(one) and self.clustered) for one in answers):
            self._refresh()
        # A node that was asked for the map may itself not have heard yet that a slot has moved.
        if (again and turn) or any(not_yet(one) or is_no_master(one) for one in answers):
            time.sleep(_FIRST_PAUSE * 2**turn)

    def _refresh(self) -> None:
        """Ask again which server holds which slot; while nobody knows, the old map stands."""
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
