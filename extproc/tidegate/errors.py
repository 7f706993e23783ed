"""Every exception Tidegate raises on purpose, sorted by whose fault it is.

```
TidegateError
 +-- OperatorError              flags, policy keys, files an operator gave us
 |    +-- PolicyError             one tidegate-* key: which, its value, what would be right
 |    +-- FlagError               one command-line flag
 |    +-- StateFileError          a saved state that does not open
 +-- ClientError                what a caller sent
 |    +-- MalformedBody           a request body that is not the API's JSON
 +-- EngineError                what an engine or a GPU said
      +-- HalfPage                a metrics page without what every page of its kind has
```

None of them may leave a request handler: a malformed body runs at a default cost, a bad policy runs under the last
good one.
"""


class TidegateError(Exception):
    """The root: catch this to catch everything Tidegate raises on purpose."""


class OperatorError(TidegateError):
    """Something an operator configured is wrong."""


class PolicyError(OperatorError):
    """A `tidegate-*` key holds a value that cannot be used."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        self.key = key
        self.value = value
        self.expected = expected
        super().__init__(f"{key}: {value!r} is not usable; expected {expected}")


class FlagError(OperatorError):
    """A command-line flag holds a value that cannot be used."""


class StateFileError(OperatorError):
    """A saved state file is damaged or of another version."""


class ClientError(TidegateError):
    """Something a caller sent is wrong."""


class MalformedBody(ClientError):
    """A request body is not the JSON its API asks for; the message says in what way."""


class EngineError(TidegateError):
    """Something an engine or a GPU said of itself is of no use."""


class HalfPage(EngineError):
    """A metrics page lacks what every page of its kind has, or has it wrong; the message says what."""
