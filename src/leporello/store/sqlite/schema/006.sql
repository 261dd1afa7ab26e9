CREATE TABLE known (
    hash BLOB NOT NULL,
    open INTEGER NOT NULL,
    conversation INTEGER NOT NULL REFERENCES conversations (id),
    branch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (hash, open, conversation, branch)
) WITHOUT ROWID;

CREATE INDEX known_conversation ON known (conversation, open, branch);
