-- What nearly every commit is, without the program that `carry_out` reads: one new record, up to two runs at the ends of
-- their logs, one row that changes. A batch of such commits takes half the time.
--
-- Commit i has 11 of `ints`, 15 of `bytes` and one of `words`, in the order of plain.py. Of each commit conditions come
-- first; the row's are part of its update, which is its first change. Returns for each commit 0, or which condition did
-- not hold: 1 and 2 the tails of its runs' logs, 3 its record's id or number, 4 its row. Locks and positions are as in
-- `carry_out`.
CREATE FUNCTION {schema}.save_all(locks bigint[], ints bigint[], bytes bytea[], words text[], fast boolean)
RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    total integer := cardinality(words);
    i0 integer := 0;  -- before the commit's own numbers
    b0 integer := 0;  -- before its bytes
    outcomes integer[] := '{}';
    refused integer;
    found_session bigint;
    first_position bigint;
    given integer := 0;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs READ COMMITTED: with another isolation level a commit would look at conditions '
            'as they were before it had its locks'
            USING ERRCODE = 'HF001';
    END IF;
    IF fast THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    -- Plans are kept: one that was made while a table was small must not read all of it when it has grown.
    PERFORM set_config('enable_seqscan', 'off', true);
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(locks) AS lock;

    FOR i IN 1..total LOOP
        SELECT
            found.session,
            CASE
                WHEN ints[i0 + 6] >= 0 AND coalesce((
                    SELECT k + length FROM {schema}.run
                    WHERE k >= ints[i0 + 7] AND k < ints[i0 + 7] + 268435456 ORDER BY k DESC LIMIT 1
                ), ints[i0 + 7]) <> ints[i0 + 6] THEN 1
                WHEN ints[i0 + 9] >= 0 AND coalesce((
                    SELECT k + length FROM {schema}.run
                    WHERE k >= ints[i0 + 10] AND k < ints[i0 + 10] + 268435456 ORDER BY k DESC LIMIT 1
                ), ints[i0 + 10]) <> ints[i0 + 9] THEN 2
                WHEN EXISTS (SELECT FROM {schema}.record WHERE id = bytes[b0 + 1]) OR EXISTS (
                    SELECT FROM {schema}.record AS other
                    WHERE other.session = found.session AND other.sequence = ints[i0 + 1]
                ) THEN 3
                ELSE 0
            END
        INTO found_session, refused
        FROM (
            SELECT (SELECT session.n FROM {schema}.session WHERE sha256(session.id) = sha256(bytes[b0 + 2])) AS session
        ) AS found;
        IF refused = 0 THEN
            UPDATE {schema}.rows SET version = version + 1, value = bytes[b0 + 12]
            WHERE space = words[i] AND key = bytes[b0 + 9] AND rest_hash = bytes[b0 + 10] AND tree = bytes[b0 + 11]
                AND version = ints[i0 + 5] AND (bytes[b0 + 13] IS NULL OR value = bytes[b0 + 13]);
            IF NOT FOUND THEN
                refused := 4;
            END IF;
        END IF;
        outcomes := outcomes || refused;
        IF refused = 0 THEN
            IF first_position IS NULL THEN
                SELECT base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20)
                INTO first_position FROM {schema}.store;
            END IF;
            IF first_position <= 0 OR given >= 1048576 THEN
                RAISE EXCEPTION 'there is no position for this record' USING ERRCODE = 'HF002';
            END IF;
            IF found_session IS NULL THEN
                INSERT INTO {schema}.session (id) VALUES (bytes[b0 + 2]) RETURNING session.n INTO found_session;
            END IF;
            IF ints[i0 + 6] >= 0 THEN
                INSERT INTO {schema}.run VALUES (ints[i0 + 6], ints[i0 + 8], bytes[b0 + 14]);
            END IF;
            IF ints[i0 + 9] >= 0 THEN
                INSERT INTO {schema}.run VALUES (ints[i0 + 9], ints[i0 + 11], bytes[b0 + 15]);
            END IF;
            INSERT INTO {schema}.record (
                position, id, session, sequence, data, created_at_us, expires_at_us, step_index, parent, agent_id,
                framework, step_name, handoff_target
            ) VALUES (
                first_position + given, bytes[b0 + 1], found_session, ints[i0 + 1], bytes[b0 + 3],
                nullif(ints[i0 + 2], -1), nullif(ints[i0 + 3], -1), nullif(ints[i0 + 4], -1), bytes[b0 + 4],
                bytes[b0 + 5], bytes[b0 + 6], bytes[b0 + 7], bytes[b0 + 8]
            );
            given := given + 1;
        END IF;
        i0 := i0 + 11;
        b0 := b0 + 15;
    END LOOP;
    RETURN outcomes;
END
$$;
