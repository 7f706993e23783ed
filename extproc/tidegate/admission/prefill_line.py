"""The prompts an engine has been given and has not finished, first come first served, and how far it has come.

    left = sum of the prompts in line - what is done of the first + debt
    done and position grow by what the engine is reckoned to prefill; the first leaves when it is done, or when it is
    known to have given its first token

Reason: an engine prefills in order of arrival, so the backlog in front of a newcomer is one number, and a first token
says exactly how far the engine has come. Where first tokens are not seen, an outcome says later how far behind its
reckoning the engine was: that is the debt, done before anything else. `position` counts all tokens ever prefilled,
`attention` the token pairs attended over (a prompt of p tokens makes p^2 / 2): differences of the two are what a
stretch of time cost.
"""

from collections.abc import Iterator


class PrefillLine:
    """Prompt tokens in order of service; every operation but `withdraw` is O(1)."""

    __slots__ = ("_attention", "_debt", "_done", "_dropped", "_gaps", "_position", "_prompts", "_tokens", "owed_tokens")

    def __init__(self) -> None:
        self._prompts: dict[str, float] = {}
        self._tokens = 0.0
        self._done = 0.0
        self._position = 0.0
        self._attention = 0.0
        self._debt = 0.0
        self._dropped = 0.0
        self._gaps: dict[str, float] = {}  # what was withdrawn right behind a prompt
        self.owed_tokens = 0.0

    def __len__(self) -> int:
        return len(self._prompts)

    def __contains__(self, work_id: str) -> bool:
        return work_id in self._prompts

    def __iter__(self) -> Iterator[str]:
        return iter(self._prompts)

    @property
    def left_tokens(self) -> float:
        """Tokens still to be prefilled."""
        return self._debt + (self._tokens - self._done if self._prompts else 0.0)

    @property
    def head_tokens(self) -> float:
        """Tokens of the first prompt; 0 where nobody is in line."""
        return next(iter(self._prompts.values()), 0.0)

    @property
    def debt_tokens(self) -> float:
        """Tokens that come before the first prompt."""
        return self._debt

    @property
    def done_tokens(self) -> float:
        """What is done of the first prompt."""
        return self._done

    @property
    def position_tokens(self) -> float:
        """All tokens prefilled since the start, the first prompt's part included."""
        return self._position + self._done

    @property
    def frontier_tokens(self) -> float:
        """How far the engine has come in all that was ever in line; what was withdrawn undone counts as passed."""
        return self._position + self._done + self._dropped

    @property
    def attention(self) -> float:
        """Token pairs attended over since the start."""
        return self._attention + self._done * self._done / 2.0

    def push(self, work_id: str, prompt_tokens: float) -> float:
        """Join the end of the line; the id must not be in it. Where the frontier will be when it is done."""
        assert work_id not in self._prompts, f"{work_id} is in line already"
        self._prompts[work_id] = prompt_tokens
        self._tokens += prompt_tokens
        return self._position + self._dropped + sum(self._gaps.values()) + self._tokens

    def advance(self, tokens: float, *, head_share_max: float = 1.0) -> None:
        """Do so many more tokens: of the debt, then of the first prompt, never past a share of it."""
        paid = min(tokens, self._debt)
        self._debt -= paid
        if self._prompts:
            self._done = max(self._done, min(self._done + tokens - paid, head_share_max * self.head_tokens))

    def owe(self, tokens: float, tokens_max: float) -> None:
        """The engine is so many tokens further behind than reckoned, in all at most so many; less than nothing takes
        debt away.
        """
        before = self._debt
        self._debt = min(max(before + tokens, 0.0), max(tokens_max, before))
        self.owed_tokens += self._debt - before

    def skip(self, tokens: float) -> float:
        """The engine is so many tokens further ahead than reckoned: debt goes, then the first prompt's part is done.

        Returns what is then left of the tokens.
        """
        before = self._debt
        self.owe(-tokens, 0.0)
        tokens -= before - self._debt
        done = min(max(self.head_tokens - self._done, 0.0), tokens)
        self._done += done
        self.owed_tokens -= done
        return tokens - done

    def pop(self) -> str:
        """The first prompt is done; its id."""
        work_id = next(iter(self._prompts))
        self.complete(work_id)
        return work_id

    def complete(self, work_id: str) -> None:
        """This prompt is done, wherever in the line it stood."""
        prompt_tokens = self._remove(work_id)
        self._position += prompt_tokens
        self._attention += prompt_tokens * prompt_tokens / 2.0
        self._dropped += self._gaps.pop(work_id, 0.0)

    def withdraw(self, work_id: str) -> None:
        """This prompt will never be done; what was done of it was done all the same.

        The frontier passes what is left of it when the prompt before it is done: O(n), for that one has to be found.
        """
        first, done = next(iter(self._prompts)) == work_id, self._done
        before = None if first else self._before(work_id)
        gap = self._remove(work_id) + self._gaps.pop(work_id, 0.0)
        if before is not None:
            self._gaps[before] = self._gaps.get(before, 0.0) + gap
            return
        self._position += done
        self._attention += done * done / 2.0
        self._dropped += gap - done

    def put_back(self, work_id: str, prompt_tokens: float) -> None:
        """A prompt that was thought done stands first in line again, with nothing done of it."""
        assert work_id not in self._prompts, f"{work_id} is in line already"
        self._position -= prompt_tokens - self._done
        self._attention -= prompt_tokens * prompt_tokens / 2.0 - self._done * self._done / 2.0
        self._prompts = {work_id: prompt_tokens, **self._prompts}
        self._tokens += prompt_tokens
        self._done = 0.0

    def _before(self, work_id: str) -> str:
        before = ""
        for each in self._prompts:
            if each == work_id:
                break
            before = each
        return before

    def _remove(self, work_id: str) -> float:
        if next(iter(self._prompts)) == work_id:
            self._done = 0.0
        prompt_tokens = self._prompts.pop(work_id)
        self._tokens = self._tokens - prompt_tokens if self._prompts else 0.0  # sums of floats drift; forget it here
        return prompt_tokens
