"""Why an engine's page was not read: one word for labels and fields, one sentence for people."""

from enum import StrEnum

from tidegate.errors import EngineError

DETAIL_CHARS_MAX = 200


class Cause(StrEnum):
    """What stood between us and a reading; a metric label."""

    TIMEOUT = "timeout"  # no page within the deadline, or not all of it
    REFUSED = "refused"  # the engine's host answers, and nothing listens
    UNREACHABLE = "unreachable"  # no connection for another reason
    UNRESOLVED = "unresolved"  # the name has no address, or nobody who could tell answers
    FORBIDDEN = "forbidden"  # --engine-allow does not let us connect to it
    TLS = "tls"  # its certificate is not one to trust, or it does not speak TLS
    STATUS = "status"  # another status than 200
    REDIRECT = "redirect"  # it points elsewhere, where we do not follow
    TOO_LARGE = "too_large"  # more bytes than a page may have
    CUT_OFF = "cut_off"  # the connection ended before the page did
    BAD_HTTP = "bad_http"  # what came is not HTTP, or compressed though we asked for plain
    BAD_URL = "bad_url"  # the URL of the page names no host and port
    HALF_PAGE = "half_page"  # a page that lacks what every page of its kind has
    FAULT = "fault"  # a fault of this program, caught


class PollFailed(EngineError):
    """One poll gave no reading.

    Attributes:
        cause: in one word.
        status: of the HTTP response, 0 where there was none.
    """

    def __init__(self, cause: Cause, detail: str = "", *, status: int = 0) -> None:
        self.cause = cause
        self.status = status
        detail = detail[:DETAIL_CHARS_MAX]  # some of it comes from the engine
        super().__init__(f"{cause}: {detail}" if detail else str(cause))
