"""Rules for protected requests: one value for the middleware of WSGI and ASGI."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from oncemq.common.problems import Problem
from oncemq.contracts.checks import Effects
from oncemq.errors import ConfigError
from oncemq.idempotent_requests.answer import REFUSE, Abandoned, Answer, Finding
from oncemq.idempotent_requests.http import Request, fingerprint_of

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
MEGABYTE = 2**20

VerifyRequest = Callable[[Request], Answer | Finding]


def every(_request: Request) -> bool:
    """Return True: each request."""
    return True


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings of the middleware.

    Args:
        tenant: says on whose behalf a request comes, such as the account's id – never a secret that changes, such
            as a token. Equal keys of two tenants are different. None = all callers are one tenant; only
            where a caller may get another caller's answer. Put the middleware inside the authentication.
        effects: `database`, the default: the handler writes through `oncemq.idempotent_requests.session()`, in the
            transaction that stores the answer. `external`: it does anything else.
        methods: the protected ones. Others pass.
        applies: which requests of those methods are protected. Others pass.
        required: whether a protected request without a key is refused (400), or passes unprotected.
        fingerprint: bytes of the request's content; the same key with other content is refused (422).
            By default method, path, query and body: one of JSON by its value, so that the order of its fields and
            1.0 for 1 make no difference; any other by every byte.
        abandoned: for external effects: policy when an earlier try ended without an answer – `REFUSE`,
            `RUN_AGAIN`, or a function of the request that returns the Answer to give, `NOT_DONE` or `UNKNOWN`.
        retry_after: the wait announced to a concurrent copy (409).
        max_request: bytes of a request's body; longer ones are refused (413).
        on_copy: of a copy's request and the stored Answer; returns the Answer to give instead of it. On an event loop it runs in a
            thread.
        max_answer: bytes of an answer's body. A longer one is sent, but not kept: a copy of its request is answered
            that it was done (409), and does not run again.
        documentation: URL of a page for callers, for the `Link` header of refusals.
    """

    tenant: Callable[[Request], str] | None
    effects: Effects | str = Effects.DATABASE
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    applies: Callable[[Request], bool] = every
    required: bool | Callable[[Request], bool] = True
    fingerprint: Callable[[Request], bytes | str] = fingerprint_of
    abandoned: Abandoned | VerifyRequest = REFUSE
    retry_after: timedelta = field(default=timedelta(seconds=1))
    on_copy: Callable[[Request, Answer], Answer] | None = None
    max_request: int = MEGABYTE
    max_answer: int = MEGABYTE
    documentation: str | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ConfigError(problems)

    @property
    def exposed(self) -> bool:
        """Whether effects are outside the ledger's database."""
        return self.effects == Effects.EXTERNAL

    def covers(self, request: Request) -> bool:
        """Return whether this request is protected, judged by its head."""
        return request.method in self.methods and self.applies(request)

    def requires_key(self, request: Request) -> bool:
        """Return whether a protected request without a key is refused."""
        return self.required(request) if callable(self.required) else self.required


def _problems(rules: Rules) -> Iterator[Problem]:
    if rules.effects not in set(Effects):
        yield Problem(f"effects {rules.effects!r} are not known", "write 'database' or 'external'", "effects")
    elif rules.abandoned is not REFUSE and not rules.exposed:
        text = "with effects in the database nothing is ever left half done"
        yield Problem(text, "leave out `abandoned`", "abandoned")
    if isinstance(rules.abandoned, Finding):
        yield Problem("NOT_DONE and UNKNOWN are what a function returns", "give the function", "abandoned")
    wrong = {name for name in rules.methods if name != name.upper()} | (rules.methods & SAFE)
    if wrong:
        text = f"methods {', '.join(sorted(wrong))} cannot be protected"
        yield Problem(text, "name methods in capitals that change something, such as POST", "methods")
    if rules.retry_after < timedelta(seconds=1):
        yield Problem("the shortest Retry-After is a second", "write timedelta(seconds=1)", "retry_after")
    if min(rules.max_request, rules.max_answer) < 0:
        yield Problem("a size below zero never fits", "write bytes, such as 2**20", "max_answer")
