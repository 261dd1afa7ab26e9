ALTER TABLE conversations ADD COLUMN live INTEGER NOT NULL DEFAULT 0;

ALTER TABLE conversations ADD COLUMN live_tokens INTEGER NOT NULL DEFAULT 0;

ALTER TABLE conversations ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;

UPDATE conversations SET
    live = (SELECT count(*) FROM messages m WHERE m.conversation = conversations.id AND m.kind = 0 AND m.state = 0),
    live_tokens = (
        SELECT coalesce(sum(tokens), 0) FROM messages m
        WHERE m.conversation = conversations.id AND m.kind = 0 AND m.state = 0
    ),
    superseded = (SELECT count(*) FROM messages m WHERE m.conversation = conversations.id AND m.kind = 0 AND m.state = 1);

CREATE TRIGGER messages_inserted AFTER INSERT ON messages WHEN NEW.kind = 0
BEGIN
    UPDATE conversations SET
        live = live + (NEW.state = 0),
        live_tokens = live_tokens + (NEW.state = 0) * NEW.tokens,
        superseded = superseded + (NEW.state = 1)
    WHERE id = NEW.conversation;
END;

CREATE TRIGGER messages_deleted AFTER DELETE ON messages WHEN OLD.kind = 0
BEGIN
    UPDATE conversations SET
        live = live - (OLD.state = 0),
        live_tokens = live_tokens - (OLD.state = 0) * OLD.tokens,
        superseded = superseded - (OLD.state = 1)
    WHERE id = OLD.conversation;
END;

CREATE TRIGGER messages_superseded AFTER UPDATE OF state ON messages WHEN NEW.kind = 0 AND NEW.state <> OLD.state
BEGIN
    UPDATE conversations SET
        live = live + (NEW.state = 0) - (OLD.state = 0),
        live_tokens = live_tokens + ((NEW.state = 0) - (OLD.state = 0)) * NEW.tokens,
        superseded = superseded + (NEW.state = 1) - (OLD.state = 1)
    WHERE id = NEW.conversation;
END;

CREATE INDEX messages_system ON messages (conversation, seq) WHERE kind = 1;

CREATE INDEX requests_reason ON requests (conversation, reason, number, cost_usd);

CREATE INDEX artifacts_conversation ON artifacts (conversation);

DROP INDEX nodes_conversation;

CREATE INDEX nodes_conversation ON nodes (conversation, state, level);
