"""What the controller writes: lines for people, or one JSON object a line (RFABRIC_LOG=json).

Orders, those that are refused as well, go to the logger `rfabric.audit`: who, what, which epoch.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping

from ..errors import RFabricError

FORMATS = ("text", "json")
TEXT = "%(asctime)s %(name)s: %(message)s"

_audit = logging.getLogger("rfabric.audit")


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, the epoch it was written in, and
    the record's own `fields`.
    """

    def __init__(self, epoch: Callable[[], int | None] = lambda: None):
        super().__init__()
        self._epoch = epoch

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        about = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "active_epoch": self._epoch(),
        }
        if record.exc_info:
            about["exception"] = self.formatException(record.exc_info)
        return json.dumps(about | getattr(record, "fields", {}), default=str)


def write_json_lines(
    epoch: Callable[[], int | None], environment: Mapping[str, str] = os.environ
) -> None:
    """Let every handler of the root logger write JSON lines, where RFABRIC_LOG says so.
    RFabricError where it names another format.
    """
    wanted = environment.get("RFABRIC_LOG", "text")
    if wanted not in FORMATS:
        raise RFabricError(f"RFABRIC_LOG={wanted}: choose one of {', '.join(FORMATS)}")
    if wanted == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines(epoch))


def audit(peer: str, token: str | None, method: str, path: str, status: int, body: Mapping) -> None:
    """One order: who gave it, by what name of a token, what it was, what came of it."""
    fields = {"peer": peer, "token": token, "method": method, "path": path[:300]}
    fields |= {"status": status}
    fields |= {key: body[key] for key in ("epoch", "state", "result", "error") if key in body}
    words = [f"{key}={json.dumps(value)}" for key, value in fields.items()]
    level = logging.INFO if status < 400 else logging.WARNING
    _audit.log(level, "order %s", " ".join(words), extra={"fields": fields})
