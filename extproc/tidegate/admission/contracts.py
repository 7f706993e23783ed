"""The accounts of tenants with a contract: what each has in the pool, and what it has left of this minute.

    let in           all limits are asked first, and only then is anything taken: a refused request spends nothing
    taken            one place, one request, its expected tokens
    refused or left  while it waited: all of that is given back, for no engine has worked on it
    stream ends      the place is given back
    truth comes      the tokens are corrected to what was really prefilled and generated, answers cut short included
    no truth comes   they stay as expected; a minute later that is forgotten anyway

A tenant has an account only while something differs from a fresh one; of those that have nothing in the pool at most
4,096 are kept, longest untouched forgotten first. Who has something in the pool is bounded by the pool. Accounts are
not kept over a restart: it gives each tenant one minute's worth more, and what ran before it takes no place.
"""

from collections import OrderedDict
from typing import NamedTuple, TypeAlias

from tidegate.admission.contract import Breach, Contract
from tidegate.admission.decision import Reason, Rule
from tidegate.admission.minute_bucket import MinuteBucket
from tidegate.admission.work import Work

ACCOUNTS_MAX = 4096
_ENDED_MAX = 4096  # that wait for their truth
_LOOKS_MAX = 8  # at accounts that may all be in use

_Owner: TypeAlias = tuple[str, str]  # class, tenant


class _Held(NamedTuple):
    """What one request was let in with."""

    account: "_Account"
    tokens: float
    settled: bool = False


class _Account:
    """One tenant's, in one class."""

    __slots__ = ("owner", "per_minute", "places", "tokens")

    def __init__(self, owner: _Owner) -> None:
        self.owner = owner
        self.places = 0
        self.per_minute: MinuteBucket | None = None
        self.tokens: MinuteBucket | None = None

    def restate(self, contract: Contract, now_s: float) -> None:
        """Take over the contract's rates."""
        self.per_minute = _restated(self.per_minute, contract.requests_per_minute, now_s)
        self.tokens = _restated(self.tokens, contract.tokens_per_minute, now_s)

    def spend(self, requests: int, tokens: float, now_s: float) -> None:
        if self.per_minute is not None:
            self.per_minute.spend(requests, now_s)
        if self.tokens is not None:
            self.tokens.spend(tokens, now_s)

    def is_fresh(self, now_s: float) -> bool:
        buckets = (self.per_minute, self.tokens)
        return not self.places and all(b is None or b.level(now_s) >= b.per_minute for b in buckets)


class Contracts:
    """All accounts of one pool. Every operation is O(1) amortised."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[_Owner, _Account] = OrderedDict()  # latest touched last
        self._inside: dict[str, _Held] = {}  # by id, waiting or running
        self._ended: OrderedDict[str, _Held] = OrderedDict()  # whose truth has not come yet

    def __len__(self) -> int:
        """Accounts."""
        return len(self._accounts)

    def breach(self, work: Work, tokens: float, now_s: float) -> Breach | None:
        """What stands against letting `work` in, with `tokens` expected; changes nothing that matters."""
        contract = work.contract
        account = None if contract is None else self._accounts.get((contract.name, work.tenant))
        if contract is None or account is None:
            return None  # who has used nothing has everything left
        account.restate(contract, now_s)
        reasons: list[Reason] = []
        retry_s = 0.0
        if contract.requests is not None and account.places >= contract.requests:
            reasons.append(Reason(Rule.TENANT_CONCURRENCY, account.places, contract.requests, "requests"))
        for rule, bucket, amount, unit in (
            (Rule.TENANT_REQUESTS, account.per_minute, 1.0, "requests"),
            (Rule.TENANT_TOKENS, account.tokens, tokens, "tokens"),
        ):
            if bucket is not None and (wait_s := bucket.wait_s(amount, now_s)) > 0.0:
                left = bucket.level(now_s)
                reasons.append(Reason(rule, bucket.per_minute - left + amount, bucket.per_minute, unit))
                retry_s = max(retry_s, wait_s)
        return Breach(reason=reasons[0], retry_s=retry_s) if reasons else None

    def let_in(self, work: Work, tokens: float, now_s: float) -> None:
        """`work` waits or runs from now on; its id must not be inside."""
        contract = work.contract
        if contract is None:
            return
        assert work.id not in self._inside, f"{work.id} is already inside"
        account = self._account((contract.name, work.tenant), now_s)
        account.restate(contract, now_s)
        account.places += 1
        account.spend(1, tokens, now_s)
        self._inside[work.id] = _Held(account, tokens)

    def turned_away(self, work_id: str, now_s: float) -> None:
        """It waited, and never ran: all is given back. Without effect on an id that is not inside."""
        held = self._inside.pop(work_id, None)
        if held is not None:
            held.account.places -= 1
            held.account.spend(-1, -held.tokens, now_s)
            self._forget_fresh(held.account, now_s)

    def ended(self, work_id: str, now_s: float) -> None:
        """It ran, and its stream has ended: its place is given back."""
        held = self._inside.pop(work_id, None)
        if held is None:
            return
        held.account.places -= 1
        if held.settled or held.account.tokens is None:
            self._forget_fresh(held.account, now_s)
            return
        self._ended[work_id] = held
        if len(self._ended) > _ENDED_MAX:
            self._ended.popitem(last=False)

    def settle(self, work_id: str, tokens: float, now_s: float) -> None:
        """So many tokens it really took, prompt and completion; before or after its end, once."""
        held = self._inside.get(work_id)
        if held is not None:
            self._inside[work_id] = _Held(held.account, tokens, settled=True)
        else:
            held = self._ended.pop(work_id, None)
        if held is not None:
            held.account.spend(0, tokens - held.tokens, now_s)
            self._forget_fresh(held.account, now_s)

    def _account(self, owner: _Owner, now_s: float) -> _Account:
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = _Account(owner)
            self._make_room(now_s)
        else:
            self._accounts.move_to_end(owner)
        return account

    def _make_room(self, now_s: float) -> None:
        """Forget whoever has been longest untouched and has nothing in the pool."""
        for _ in range(_LOOKS_MAX):
            if len(self._accounts) <= ACCOUNTS_MAX:
                return
            owner, account = next(iter(self._accounts.items()))
            if account.places:
                self._accounts.move_to_end(owner)
            else:
                del self._accounts[owner]

    def _forget_fresh(self, account: _Account, now_s: float) -> None:
        if account.is_fresh(now_s) and self._accounts.get(account.owner) is account:
            del self._accounts[account.owner]


def _restated(bucket: MinuteBucket | None, per_minute: int | None, now_s: float) -> MinuteBucket | None:
    if per_minute is None:
        return None
    if bucket is None:
        return MinuteBucket(per_minute, now_s)
    if bucket.per_minute != per_minute:
        bucket.restate(per_minute, now_s)
    return bucket
