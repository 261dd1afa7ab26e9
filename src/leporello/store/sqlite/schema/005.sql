CREATE TABLE branches (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    id INTEGER NOT NULL,
    parent INTEGER,
    fork_place REAL,
    fork_seq INTEGER,
    fork_request INTEGER,
    messages INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    used REAL NOT NULL,
    PRIMARY KEY (conversation, id)
) WITHOUT ROWID;

INSERT INTO branches (conversation, id, messages, tokens, created, used)
SELECT id, 1, live, live_tokens, created, updated FROM conversations;

CREATE TABLE pins (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    message INTEGER NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (conversation, message)
) WITHOUT ROWID;

ALTER TABLE conversations ADD COLUMN title TEXT NOT NULL DEFAULT '';

ALTER TABLE conversations ADD COLUMN head INTEGER NOT NULL DEFAULT 1;

ALTER TABLE conversations ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;

UPDATE conversations SET messages = live + superseded;

CREATE TABLE messages_now (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    branch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    place REAL NOT NULL,
    gone INTEGER,
    kind INTEGER NOT NULL DEFAULT 0,
    time REAL NOT NULL,
    tokens INTEGER NOT NULL,
    size INTEGER NOT NULL,
    role TEXT NOT NULL,
    name TEXT NOT NULL,
    tool TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    call_key BLOB,
    chain BLOB NOT NULL,
    refs TEXT,
    body BLOB NOT NULL
);

INSERT INTO messages_now (
    id, conversation, branch, seq, place, gone, kind, time, tokens, size, role, name, tool, fingerprint, call_key,
    chain, refs, body
)
SELECT
    m.id, m.conversation, 1, m.seq, m.place, CASE WHEN m.state = 1 THEN c.next_seq - 1 END, m.kind, m.time, m.tokens,
    m.size, m.role, m.name, m.tool, m.fingerprint, m.call_key, m.chain, m.refs, m.body
FROM messages m JOIN conversations c ON c.id = m.conversation ORDER BY m.id;

DELETE FROM sqlite_sequence WHERE name = 'messages_now';

INSERT INTO sqlite_sequence (name, seq) SELECT 'messages_now', seq FROM sqlite_sequence WHERE name = 'messages';

DROP TABLE messages;

ALTER TABLE messages_now RENAME TO messages;

ALTER TABLE conversations DROP COLUMN live;

ALTER TABLE conversations DROP COLUMN live_tokens;

ALTER TABLE conversations DROP COLUMN superseded;

CREATE UNIQUE INDEX messages_seq ON messages (conversation, seq);

CREATE INDEX messages_path ON messages (conversation, branch, place) WHERE kind = 0;

CREATE INDEX messages_fingerprint ON messages (conversation, fingerprint);

CREATE INDEX messages_call ON messages (conversation, call_key) WHERE call_key IS NOT NULL;

CREATE INDEX messages_system ON messages (conversation, seq) WHERE kind = 1;

UPDATE nodes SET state = 'kept' WHERE state <> 'prepared';

DROP INDEX covers_published;

ALTER TABLE covers DROP COLUMN published;

CREATE INDEX covers_conversation ON covers (conversation, first_seq);

CREATE TABLE windows_now (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    branch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    number INTEGER NOT NULL,
    folded_to REAL,
    nodes INTEGER NOT NULL DEFAULT 0,
    items TEXT NOT NULL,
    PRIMARY KEY (conversation, branch, version)
);

INSERT INTO windows_now (conversation, branch, version, number, nodes, items)
SELECT w.conversation, 1, w.version, w.number,
    (SELECT count(*) FROM nodes n WHERE n.conversation = w.conversation AND n.state = 'kept'), w.items FROM windows w;

DROP TABLE windows;

ALTER TABLE windows_now RENAME TO windows;

ALTER TABLE requests ADD COLUMN branch INTEGER NOT NULL DEFAULT 1;

CREATE INDEX requests_branch ON requests (conversation, branch, number);

CREATE TABLE leases_now (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    branch INTEGER NOT NULL,
    token TEXT NOT NULL,
    seconds REAL NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (conversation, branch)
) WITHOUT ROWID;

INSERT INTO leases_now (conversation, branch, token, seconds, expires)
SELECT conversation, 1, token, seconds, expires FROM leases;

DROP TABLE leases;

ALTER TABLE leases_now RENAME TO leases;

CREATE TABLE handed_out_now (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    branch INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    marks BLOB NOT NULL,
    origins TEXT NOT NULL,
    PRIMARY KEY (conversation, branch)
);

INSERT INTO handed_out_now (conversation, branch, newest, marks, origins)
SELECT conversation, 1, newest, marks, origins FROM handed_out;

DROP TABLE handed_out;

ALTER TABLE handed_out_now RENAME TO handed_out;
