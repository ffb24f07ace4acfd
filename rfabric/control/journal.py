"""What a controller must know again after it died: its epochs, plans and pairs, and what
it decided.

    facts      name -> JSON    `epoch`, `plan/3`, `pairs`, ...: the last word on each
    decisions  when, text      what was done and why, in order

One SQLite file a fabric, `NAME-DIGEST.sqlite` in a folder; each write is one transaction that has
reached the disk when `write` returns. SQLite's write-ahead log carries checksums: of a write that
was cut short nothing is seen. Beside the file lies `.lock`, held by the one controller that may
write, which says its process id in it; the kernel lets go of it when that process dies.
"""

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ..errors import RFabricError, RunError
from ..fabric import Fabric
from .alone import lock

SCHEMA = """
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS decisions (at REAL NOT NULL, text TEXT NOT NULL);
"""
NONE = "none"  # instead of a folder: a controller that forgets everything with its end
KEPT = 10_000  # decisions; the oldest go


class Journal:
    """The journal of one fabric, open for the one controller that holds its lock.

    HeldError where another holds it, RFabricError where the file cannot be used.
    """

    def __init__(self, folder: str | Path, fabric: Fabric):
        self.path = self.path_of(folder, fabric)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._held = lock(self.path.with_suffix(".lock"), f"fabric {fabric.name}")
            self._file = self._opened()
        except (OSError, sqlite3.Error) as error:
            raise RFabricError(
                f"journal {self.path}: {error}; move it away, or name another folder (--journal, "
                "RFABRIC_JOURNAL)"
            ) from None
        self._one = threading.Lock()

    @staticmethod
    def path_of(folder: str | Path, fabric: Fabric) -> Path:
        """Where the journal of a fabric lies."""
        return Path(folder) / f"{fabric.name}-{digest(fabric)}.sqlite"

    def read(self) -> dict:
        """Every fact by name."""
        rows = self._file.execute("SELECT name, value FROM facts")
        return {name: json.loads(value) for name, value in rows}

    def write(self, facts: Mapping[str, object], decision: str = "") -> None:
        """Set these facts, None: forget it, and say why; RunError where the disk does not take
        them, and then none is set.
        """
        new = [(name, json.dumps(value)) for name, value in facts.items() if value is not None]
        old = [(name,) for name, value in facts.items() if value is None]
        try:
            with self._one, self._file as file:
                file.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", new)
                file.executemany("DELETE FROM facts WHERE name = ?", old)
                if decision:
                    file.execute("INSERT INTO decisions VALUES (?, ?)", (time.time(), decision))
        except sqlite3.Error as error:
            raise RunError(f"journal {self.path}: {error}") from error

    def decisions(self, last: int = 20) -> list[str]:
        """The last decisions, oldest first."""
        rows = self._file.execute("SELECT text FROM decisions ORDER BY rowid DESC LIMIT ?", (last,))
        return [text for (text,) in rows][::-1]

    def close(self) -> None:
        """Let another have it."""
        self._file.close()
        self._held.close()

    def _opened(self) -> sqlite3.Connection:
        file = sqlite3.connect(self.path, check_same_thread=False, timeout=1.0)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        verdict = file.execute("PRAGMA quick_check").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        file.executescript(SCHEMA)
        with file:
            file.execute(
                "DELETE FROM decisions WHERE rowid <= (SELECT max(rowid) FROM decisions) - ?",
                (KEPT,),
            )
        return file


def folder_of(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of the journals: RFABRIC_JOURNAL, or else where a user's, or the machine's,
    programs keep what they must know again; None: nothing is to be kept.
    """
    named = environment.get("RFABRIC_JOURNAL", "")
    if named:
        return None if named == NONE else Path(named)
    home = environment.get("XDG_STATE_HOME", "")
    if home:
        return Path(home) / "rfabric"
    user = Path("~/.local/state/rfabric").expanduser()
    return Path("/var/lib/rfabric") if os.geteuid() == 0 else user


def digest(fabric: Fabric) -> str:
    """Twelve hexadecimal digits that tell a fabric from others, whatever its spec was called."""
    data = fabric.to_json() | {"spec": ""}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
