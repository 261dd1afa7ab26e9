CREATE TABLE settings (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 1,
    chain BLOB NOT NULL DEFAULT x'',
    revision INTEGER NOT NULL DEFAULT 0,
    listed INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    ended REAL,
    deleted REAL,
    meta TEXT NOT NULL DEFAULT '{}',
    UNIQUE (owner, key)
);

CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    seq INTEGER NOT NULL,
    place REAL NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
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

CREATE UNIQUE INDEX messages_seq ON messages (conversation, seq);

CREATE INDEX messages_live ON messages (conversation, place) WHERE state = 0 AND kind = 0;

CREATE INDEX messages_fingerprint ON messages (conversation, fingerprint) WHERE state = 0;

CREATE INDEX messages_call ON messages (conversation, call_key) WHERE state = 0 AND call_key IS NOT NULL;

CREATE INDEX messages_superseded ON messages (conversation, place) WHERE state = 1;

CREATE TABLE payloads (
    hash BLOB PRIMARY KEY,
    uses INTEGER NOT NULL,
    data BLOB NOT NULL
);

CREATE TABLE emitted (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    fingerprint BLOB NOT NULL,
    origin INTEGER,
    PRIMARY KEY (conversation, fingerprint)
) WITHOUT ROWID;

CREATE TABLE forgotten (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    mark BLOB NOT NULL,
    PRIMARY KEY (conversation, mark)
) WITHOUT ROWID;

CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    level INTEGER NOT NULL,
    state TEXT NOT NULL,
    made_by TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    source_tokens INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    time_from REAL NOT NULL,
    time_to REAL NOT NULL,
    meta TEXT NOT NULL,
    text BLOB NOT NULL
);

CREATE INDEX nodes_conversation ON nodes (conversation, state);

CREATE TABLE children (
    parent INTEGER NOT NULL REFERENCES nodes (id),
    position INTEGER NOT NULL,
    child INTEGER NOT NULL REFERENCES nodes (id),
    PRIMARY KEY (parent, position)
) WITHOUT ROWID;

CREATE INDEX children_child ON children (child);

CREATE TABLE covers (
    node INTEGER NOT NULL REFERENCES nodes (id),
    position INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    published INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    start INTEGER,
    stop INTEGER,
    PRIMARY KEY (node, position)
) WITHOUT ROWID;

CREATE INDEX covers_published ON covers (conversation, first_seq) WHERE published = 1;

CREATE TABLE windows (
    conversation INTEGER PRIMARY KEY REFERENCES conversations (id),
    version INTEGER NOT NULL,
    number INTEGER NOT NULL,
    items TEXT NOT NULL
);

CREATE TABLE requests (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    reason TEXT NOT NULL,
    keep INTEGER NOT NULL,
    added TEXT NOT NULL,
    usage TEXT NOT NULL,
    cost_usd REAL,
    prefix TEXT NOT NULL,
    report TEXT NOT NULL,
    PRIMARY KEY (conversation, number)
) WITHOUT ROWID;

CREATE TABLE artifacts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    message INTEGER NOT NULL,
    digest BLOB NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    note TEXT NOT NULL,
    time REAL NOT NULL,
    count INTEGER NOT NULL
);

CREATE UNIQUE INDEX artifacts_once ON artifacts (conversation, message, digest);

CREATE INDEX artifacts_kind ON artifacts (conversation, kind);

CREATE TABLE leases (
    conversation INTEGER PRIMARY KEY REFERENCES conversations (id),
    token TEXT NOT NULL,
    seconds REAL NOT NULL,
    expires REAL NOT NULL
);

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    payload TEXT NOT NULL,
    delay REAL NOT NULL,
    not_before REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    claimed_by TEXT,
    claim_seconds REAL,
    claimed_until REAL,
    UNIQUE (conversation, kind, key)
);

CREATE TABLE tombstones (
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    chain_before BLOB NOT NULL,
    chain_after BLOB NOT NULL,
    reason TEXT NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (conversation, first_seq)
) WITHOUT ROWID;
