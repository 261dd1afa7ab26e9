CREATE TABLE purges (
    conversation INTEGER PRIMARY KEY REFERENCES conversations (id),
    origin INTEGER NOT NULL,
    owner TEXT NOT NULL,
    not_before REAL NOT NULL
);

CREATE TABLE requests_now (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    reason TEXT NOT NULL,
    keep INTEGER NOT NULL,
    added TEXT NOT NULL,
    usage TEXT NOT NULL,
    cost_usd REAL,
    prefix TEXT NOT NULL,
    report TEXT NOT NULL
);

INSERT INTO requests_now (conversation, number, time, reason, keep, added, usage, cost_usd, prefix, report)
SELECT conversation, number, time, reason, keep, added, usage, cost_usd, prefix, report FROM requests;

DROP TABLE requests;

ALTER TABLE requests_now RENAME TO requests;

CREATE UNIQUE INDEX requests_number ON requests (conversation, number);

CREATE INDEX requests_reason ON requests (conversation, reason, number, cost_usd);

CREATE TRIGGER messages_moved AFTER UPDATE OF conversation ON messages
WHEN NEW.kind = 0 AND NEW.conversation <> OLD.conversation
BEGIN
    UPDATE conversations SET
        live = live - (OLD.state = 0),
        live_tokens = live_tokens - (OLD.state = 0) * OLD.tokens,
        superseded = superseded - (OLD.state = 1)
    WHERE id = OLD.conversation;
    UPDATE conversations SET
        live = live + (NEW.state = 0),
        live_tokens = live_tokens + (NEW.state = 0) * NEW.tokens,
        superseded = superseded + (NEW.state = 1)
    WHERE id = NEW.conversation;
END;
