-- Row-level security: a database user sees and changes only the conversations of the owner that has its name.
--
-- Run once in the schema of the tables, as the user that owns them, and again after an upgrade that adds tables:
--   psql -d leporello -c 'SET search_path = leporello' -f row-level-security.sql
-- The owner of the tables is not restricted: a gateway with several keys connects as that user. Connect as the user of
-- one owner what should never see more, for example a report or a gateway with one key.
-- Such a user's search in all conversations looks for words in one message after the other, not in the index: that takes
-- seconds where there are a million. A superuser may allow the index, in the whole database:
--   ALTER FUNCTION pg_catalog.ts_match_vq(tsvector, tsquery) LEAKPROOF

DO $$
DECLARE
    here text := quote_ident(current_schema());
    name text;
BEGIN
    EXECUTE format('ALTER TABLE %s.conversations ENABLE ROW LEVEL SECURITY', here);
    EXECUTE format('DROP POLICY IF EXISTS own ON %s.conversations', here);
    EXECUTE format('CREATE POLICY own ON %s.conversations USING (owner = current_user)', here);
    FOR name IN
        SELECT table_name FROM information_schema.columns
        WHERE table_schema = current_schema() AND column_name = 'conversation'
    LOOP
        EXECUTE format('ALTER TABLE %s.%I ENABLE ROW LEVEL SECURITY', here, name);
        EXECUTE format('DROP POLICY IF EXISTS own ON %s.%I', here, name);
        EXECUTE format(
            'CREATE POLICY own ON %1$s.%2$I USING (EXISTS (SELECT 1 FROM %1$s.conversations c WHERE c.id = conversation))',
            here, name
        );
    END LOOP;
END $$;
