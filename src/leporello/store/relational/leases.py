"""Who may write to a conversation, and work for later.

Times come from the injected clock, which may jump. A lease, a claim or a delay that lies further ahead than it could
have been set is over: a clock that went backwards locks nothing for ever.
"""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from leporello.store.records import Job
from leporello.store.relational.rows import Part, find, opened, placeholders, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.store.relational.dialect import Connection

_DUE = "(j.not_before <= ? OR j.not_before > ? + j.delay)"
_FREE = "(j.claimed_until IS NULL OR j.claimed_until <= ? OR j.claimed_until > ? + j.claim_seconds)"


class Leases(Part):
    """Leases and jobs."""

    def _now(self, connection: Connection) -> float:
        """Return the time by which leases, claims and delays end."""
        return self._clock()

    def acquire(
        self, conversation: str, token: str, *, seconds: float, owner: str = "", branch: int | None = None
    ) -> bool:
        """Take or prolong the lease of a branch."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            now = self._now(connection)
            on = branch or found.head
            row = connection.execute(
                "SELECT token, seconds, expires FROM leases WHERE conversation = ? AND branch = ?", (found.id, on)
            ).fetchone()
            if row and row[0] != token and now < row[2] <= now + row[1]:
                return False
            connection.execute(
                "INSERT INTO leases (conversation, branch, token, seconds, expires) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (conversation, branch) DO UPDATE SET token = excluded.token,"
                " seconds = excluded.seconds, expires = excluded.expires",
                (found.id, on, token, seconds, now + seconds),
            )
            return True

    def release(self, conversation: str, token: str, *, owner: str = "", branch: int | None = None) -> None:
        """Give the lease back; one that another holder has is left alone."""
        with self._db.write() as connection:
            found = find(connection, conversation, owner)
            if found:
                connection.execute(
                    "DELETE FROM leases WHERE conversation = ? AND branch = ? AND token = ?",
                    (found.id, branch or found.head, token),
                )

    def add_job(
        self, conversation: str, kind: str, key: str, payload: dict[str, Any], *, owner: str = "", delay: float = 0.0
    ) -> None:
        """Put work down for later; a job with the same kind and key is not added twice."""
        with self._db.write() as connection:
            found = opened(connection, conversation, owner, self._clock())
            now = self._now(connection)
            connection.execute(
                "INSERT INTO jobs (conversation, kind, key, payload, delay, not_before) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (conversation, kind, key) DO NOTHING",
                (found.id, kind, key, to_json(payload), delay, now + delay),
            )

    def claim_job(
        self,
        worker: str,
        *,
        seconds: float,
        conversation: str | None = None,
        owner: str | None = None,
        kinds: Sequence[str] = (),
    ) -> Job | None:
        """Claim the oldest job of some kinds, or of any, that is due or whose claim expired."""
        if not self._db.exists():
            return None
        with self._db.write() as connection:
            now = self._now(connection)
            row = _oldest(connection, now, {"c.key": conversation, "c.owner": owner}, kinds)
            if row is None:
                return None
            connection.execute(
                "UPDATE jobs SET claimed_by = ?, claim_seconds = ?, claimed_until = ?, attempts = attempts + 1"
                " WHERE id = ?",
                (worker, seconds, now + seconds, row[0]),
            )
        id_, key, owner, kind, name, payload, attempts = row
        return Job(
            id=id_,
            conversation=key,
            owner=owner,
            kind=kind,
            key=name,
            payload=json.loads(payload),
            attempts=attempts + 1,
        )

    def renew_job(self, job: Job, *, seconds: float) -> bool:
        """Prolong a claim; False when the job is done, or another worker has claimed it since."""
        with self._db.write() as connection:
            renewed = connection.execute(
                "UPDATE jobs SET claim_seconds = ?, claimed_until = ? WHERE id = ? AND attempts = ?",
                (seconds, self._now(connection) + seconds, job.id, job.attempts),
            )
            return renewed.rowcount > 0

    def finish_job(self, job: Job, *, retry_in: float | None = None) -> None:
        """Remove a job, or put it back for later; a job that another worker has claimed since is left alone."""
        with self._db.write() as connection:
            if retry_in is None:
                remove_job(connection, job)
            else:
                connection.execute(
                    "UPDATE jobs SET claimed_by = NULL, claim_seconds = NULL, claimed_until = NULL, delay = ?,"
                    " not_before = ? WHERE id = ? AND attempts = ?",
                    (retry_in, self._now(connection) + retry_in, job.id, job.attempts),
                )


def remove_job(connection: Connection, job: Job) -> bool:
    """Remove a job that is done; False when it was done before, or another worker has claimed it since."""
    removed = connection.execute("DELETE FROM jobs WHERE id = ? AND attempts = ?", (job.id, job.attempts))
    return removed.rowcount > 0


def _oldest(connection: Connection, now: float, only: Mapping[str, str | None], kinds: Sequence[str]) -> Any:
    later = now + connection.dialect.clock_slack
    given = {column: value for column, value in only.items() if value is not None}
    within = f" AND {connection.dialect.shown}" + "".join(f" AND {column} = ?" for column in given)
    if kinds:
        within += f" AND j.kind IN ({placeholders(kinds)})"
    return connection.execute(
        "SELECT j.id, c.key, c.owner, j.kind, j.key, j.payload, j.attempts FROM jobs j"
        f" JOIN conversations c ON c.id = j.conversation WHERE {_DUE} AND {_FREE}{within}"
        f" ORDER BY j.id LIMIT 1{connection.dialect.due_job}",
        (now, later, now, later, *given.values(), *kinds),
    ).fetchone()
