CREATE TABLE emitted_now (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    fingerprint BLOB NOT NULL,
    origins TEXT NOT NULL,
    PRIMARY KEY (conversation, fingerprint, origins)
) WITHOUT ROWID;

INSERT INTO emitted_now (conversation, fingerprint, origins)
SELECT conversation, fingerprint, coalesce(origin, '') FROM emitted;

DROP TABLE emitted;

ALTER TABLE emitted_now RENAME TO emitted;

CREATE TABLE handed_out (
    conversation INTEGER PRIMARY KEY REFERENCES conversations (id),
    newest INTEGER NOT NULL,
    marks BLOB NOT NULL,
    origins TEXT NOT NULL
);

ALTER TABLE conversations DROP COLUMN listed;
