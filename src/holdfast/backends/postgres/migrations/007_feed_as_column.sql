-- The feed of a record is a column of it, as on SQLite: a message then costs one entry of one index more than another
-- record, and no row with two indexes and a foreign key. The index has only the records that have a feed.
LOCK TABLE {schema}.feed, {schema}.record IN ACCESS EXCLUSIVE MODE;
ALTER TABLE {schema}.record ADD COLUMN feed bytea;
UPDATE {schema}.record SET feed = noted.feed FROM {schema}.feed AS noted WHERE noted.position = record.position;
DROP TABLE {schema}.feed;
CREATE INDEX record_by_feed ON {schema}.record (feed, position) WHERE feed IS NOT NULL;

-- For programs of the version before, which run on while a newer one brings the store up to date: what they read and call.
CREATE VIEW {schema}.feed AS SELECT feed, position FROM {schema}.record WHERE feed IS NOT NULL;
CREATE OR REPLACE FUNCTION {schema}.carry_out_with_feeds(
    locks bigint[], ints bigint[], bytes bytea[], words text[], fast boolean, ids bytea[], feeds bytea[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    outcomes integer[] := {schema}.carry_out(locks, ints, bytes, words, fast);
BEGIN
    -- Of a refused commit there is no record, or one that was there before this transaction.
    UPDATE {schema}.record SET feed = noted.feed FROM unnest(ids, feeds) AS noted (id, feed), {schema}.store
    WHERE record.id = noted.id
        AND record.position >= base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20);
    RETURN outcomes;
END
$$;

-- Saves with messages: commits as `save_one` takes them (004_hopeful_saves.sql), one or many, each with any number of new
-- records, of which some have a feed. All of them are carried out, or none: conditions are part of the changes, and where
-- one does not hold, everything is rolled back by HF003, or by the error of a unique index, and the client asks
-- `carry_out`, which decides about each commit.
--
-- `ints` begin with the numbers of rows that change, of records, of runs, and of rows beside. Then each row has 2 of
-- `ints`, 5 of `bytes` and one of `words`, each record 4 and 9, each run 3 and 1, each row beside 5 of `bytes` and one of
-- `words`, in the order of simple_commit.py. A row that several commits change, one after the other, changes once, and its
-- version by their number. Returns 0; or 4 if the row of the only commit is not as expected.
--
-- A message needs no lock but that of its commit's tree: the records of a feed are in the order of their positions, which
-- come with the transaction's number. So publishers to one topic never wait for each other.
CREATE FUNCTION {schema}.save_messages(locks bigint[], ints bigint[], bytes bytea[], words text[], fast boolean)
RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    i integer := 4;  -- before the numbers of what is written next
    b integer := 0;  -- before its bytes
    w integer := 0;  -- before its word
    lock bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs READ COMMITTED: with another isolation level a commit would look at conditions '
            'as they were before it had its locks'
            USING ERRCODE = 'HF001';
    END IF;
    IF fast AND set_config('synchronous_commit', 'off', true) IS NULL THEN
    END IF;
    -- Plans are kept: one that was made while a table was small must not read all of it when it has grown.
    IF set_config('enable_seqscan', 'off', true) IS NULL THEN
    END IF;
    FOREACH lock IN ARRAY locks LOOP
        IF pg_advisory_xact_lock(lock) IS NULL THEN
        END IF;
    END LOOP;

    FOR number IN 1..ints[1] LOOP
        UPDATE {schema}.rows SET version = version + ints[i + 2], value = bytes[b + 5]
        WHERE space = words[w + 1] AND key = bytes[b + 1] AND rest_hash = bytes[b + 2] AND tree = bytes[b + 3]
            AND version = ints[i + 1] AND (bytes[b + 4] IS NULL OR value = bytes[b + 4]);
        IF NOT FOUND THEN
            IF ints[1] = 1 AND ints[i + 2] = 1 THEN
                RETURN 4;
            END IF;
            RAISE EXCEPTION 'holdfast goes another way: a row is not as expected' USING ERRCODE = 'HF003';
        END IF;
        i := i + 2;
        b := b + 5;
        w := w + 1;
    END LOOP;
    FOR given IN 0..ints[2] - 1 LOOP
        INSERT INTO {schema}.record (
            position, id, session, sequence, data, created_at_us, expires_at_us, step_index, parent, agent_id, framework,
            step_name, handoff_target, feed
        ) SELECT
            first.position + given, bytes[b + 1], session.n, ints[i + 1], bytes[b + 3], nullif(ints[i + 2], -1),
            nullif(ints[i + 3], -1), nullif(ints[i + 4], -1), bytes[b + 4], bytes[b + 5], bytes[b + 6], bytes[b + 7],
            bytes[b + 8], bytes[b + 9]
        FROM (
            SELECT base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20) AS position
            FROM {schema}.store WHERE is_one
        ) AS first, {schema}.session
        WHERE sha256(session.id) = sha256(bytes[b + 2]) AND first.position > 0 AND given < 1048576;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast goes another way: the session is new, or there is no position'
                USING ERRCODE = 'HF003';
        END IF;
        i := i + 4;
        b := b + 9;
    END LOOP;
    FOR number IN 1..ints[3] LOOP
        INSERT INTO {schema}.run SELECT ints[i + 1], ints[i + 3], bytes[b + 1] WHERE ints[i + 1] = coalesce((
            SELECT k + length FROM {schema}.run WHERE k >= ints[i + 2] AND k < ints[i + 2] + 268435456
            ORDER BY k DESC LIMIT 1
        ), ints[i + 2]);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast goes another way: a log ends elsewhere' USING ERRCODE = 'HF003';
        END IF;
        i := i + 3;
        b := b + 1;
    END LOOP;
    FOR number IN 1..ints[4] LOOP
        INSERT INTO {schema}.rows AS rows (space, key, rest_hash, tree, rest, value, version)
        VALUES (words[w + 1], bytes[b + 1], bytes[b + 2], bytes[b + 3], bytes[b + 4], bytes[b + 5], 1)
        ON CONFLICT (space, key, rest_hash, tree) DO UPDATE SET value = excluded.value, version = rows.version + 1;
        b := b + 5;
        w := w + 1;
    END LOOP;
    RETURN 0;
END
$$;

-- `carry_out` once more, as in 001_initial.sql but for one operation: 16, a new record that has a feed.
CREATE OR REPLACE FUNCTION {schema}.carry_out(locks bigint[], ints bigint[], bytes bytea[], words text[], fast boolean)
RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    total integer := cardinality(ints);
    ip integer := 1;
    place integer;  -- the operation that is carried out
    next_commit integer;
    holds boolean;
    outcomes integer[] := '{}';
    first_position bigint;
    given integer := 0;
    found_version bigint;
    found_number bigint;
    highest bigint;
    now_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
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

    WHILE ip <= total LOOP
        holds := true;
        place := ip;
        CASE ints[ip]
        WHEN 0 THEN  -- a commit begins; the next one begins at $1
            next_commit := ints[ip + 1];
            outcomes := outcomes || 0;
            ip := ip + 2;

        -- Conditions

        WHEN 1 THEN  -- the tail of log $1 (as a k) is $2, and if $3 >= 0, a run begins there
            SELECT k + length INTO found_number FROM {schema}.run
            WHERE k >= ints[ip + 1] AND k < ints[ip + 1] + 268435456 ORDER BY k DESC LIMIT 1;
            holds := coalesce(found_number, ints[ip + 1]) = ints[ip + 2];
            IF holds AND ints[ip + 3] >= 0 THEN
                holds := EXISTS (SELECT FROM {schema}.run WHERE k = ints[ip + 3]);
            END IF;
            ip := ip + 4;
        WHEN 2 THEN  -- the data of record $1 begin with $2
            holds := EXISTS (
                SELECT FROM {schema}.record
                WHERE id = bytes[ints[ip + 1]] AND substr(data, 1, octet_length(bytes[ints[ip + 2]])) = bytes[ints[ip + 2]]
            );
            ip := ip + 3;
        WHEN 3 THEN  -- row (words $1, key $2, hash of the rest $3, tree $4) has version $5
            SELECT version INTO found_version FROM {schema}.rows
            WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]];
            holds := coalesce(found_version, 0) = ints[ip + 5];
            ip := ip + 6;
        WHEN 4 THEN  -- record id $1 is free, and so is number $3 of session $2
            holds := NOT EXISTS (SELECT FROM {schema}.record WHERE id = bytes[ints[ip + 1]]) AND NOT EXISTS (
                SELECT FROM {schema}.record WHERE sequence = ints[ip + 3]
                AND session = (SELECT n FROM {schema}.session WHERE sha256(id) = sha256(bytes[ints[ip + 2]]))
            );
            ip := ip + 4;
        WHEN 5 THEN  -- record $1 has the data $2
            holds := EXISTS (
                SELECT FROM {schema}.record WHERE id = bytes[ints[ip + 1]] AND data = bytes[ints[ip + 2]]
            );
            ip := ip + 3;
        WHEN 6 THEN  -- row (words $1, key $2, hash $3, tree $4) has the value $5
            holds := EXISTS (
                SELECT FROM {schema}.rows
                WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]] AND value = bytes[ints[ip + 5]]
            );
            ip := ip + 6;

        -- Changes

        WHEN 10 THEN  -- a run at k $1, of length $2, with the data $3, which replaces all from there on below k $4
            IF ints[ip + 1] < ints[ip + 4] THEN
                DELETE FROM {schema}.run WHERE k >= ints[ip + 1] AND k < ints[ip + 4];
            END IF;
            INSERT INTO {schema}.run VALUES (ints[ip + 1], ints[ip + 2], bytes[ints[ip + 3]]);
            ip := ip + 5;
        WHEN 11 THEN  -- a blob $1 with the data $2: written later than before, whatever the clock says
            INSERT INTO {schema}.blob AS blob (hash, data, written_at_us)
            VALUES (bytes[ints[ip + 1]], bytes[ints[ip + 2]], now_us)
            ON CONFLICT (hash) DO UPDATE
            SET data = excluded.data, written_at_us = greatest(excluded.written_at_us, blob.written_at_us + 1);
            ip := ip + 3;
        WHEN 12, 16 THEN  -- a new record; of 16 with the feed $13
            IF first_position IS NULL THEN
                SELECT base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20)
                INTO first_position FROM {schema}.store;
            END IF;
            IF first_position <= 0 OR given >= 1048576 THEN
                RAISE EXCEPTION 'there is no position for this record' USING ERRCODE = 'HF002';
            END IF;
            SELECT n INTO found_number FROM {schema}.session WHERE sha256(id) = sha256(bytes[ints[ip + 2]]);
            IF NOT FOUND THEN
                INSERT INTO {schema}.session (id) VALUES (bytes[ints[ip + 2]]) RETURNING n INTO found_number;
            END IF;
            INSERT INTO {schema}.record (
                position, id, session, sequence, data, created_at_us, expires_at_us, step_index, parent, agent_id,
                framework, step_name, handoff_target, feed
            ) VALUES (
                first_position + given, bytes[ints[ip + 1]], found_number, ints[ip + 3], bytes[ints[ip + 4]],
                nullif(ints[ip + 5], -1), nullif(ints[ip + 6], -1), nullif(ints[ip + 7], -1), bytes[ints[ip + 8]],
                bytes[ints[ip + 9]], bytes[ints[ip + 10]], bytes[ints[ip + 11]], bytes[ints[ip + 12]],
                CASE WHEN ints[place] = 16 THEN bytes[ints[ip + 13]] END
            );
            given := given + 1;
            ip := ip + CASE WHEN ints[place] = 16 THEN 14 ELSE 13 END;
        WHEN 13 THEN  -- record $1 gets the data $2
            UPDATE {schema}.record SET data = bytes[ints[ip + 2]] WHERE id = bytes[ints[ip + 1]];
            ip := ip + 3;
        WHEN 14 THEN  -- row (words $1, key $2, hash $3, tree $4), rest $5, gets the value $6
            UPDATE {schema}.rows SET version = version + 1, value = bytes[ints[ip + 6]]
            WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]];
            IF NOT FOUND THEN
                INSERT INTO {schema}.rows (space, key, rest_hash, tree, rest, value, version) VALUES (
                    words[ints[ip + 1]], bytes[ints[ip + 2]], bytes[ints[ip + 3]], bytes[ints[ip + 4]],
                    bytes[ints[ip + 5]], bytes[ints[ip + 6]], 1
                );
            END IF;
            ip := ip + 7;
        WHEN 15 THEN  -- row (words $1, key $2, hash $3, tree $4) goes
            DELETE FROM {schema}.rows
            WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]];
            ip := ip + 5;

        -- Deletions: what is not as named is left alone

        WHEN 20 THEN  -- record $1 goes if it has the data $2; if it was the last one, its position is written down
            DELETE FROM {schema}.record WHERE id = bytes[ints[ip + 1]] AND data = bytes[ints[ip + 2]]
            RETURNING position INTO found_number;
            IF FOUND THEN
                SELECT max(position) INTO highest FROM {schema}.record;
                IF found_number > coalesce(highest, 0) THEN
                    INSERT INTO {schema}.deleted VALUES (found_number) ON CONFLICT DO NOTHING;
                    DELETE FROM {schema}.deleted WHERE position IN (
                        SELECT position FROM {schema}.deleted WHERE position < found_number FOR UPDATE SKIP LOCKED
                    );
                END IF;
            END IF;
            ip := ip + 3;
        WHEN 21 THEN  -- the run at k $1 of length $2 goes; if there was none, its pieces are left out: go on at $3
            DELETE FROM {schema}.run WHERE k = ints[ip + 1] AND length = ints[ip + 2];
            ip := CASE WHEN FOUND THEN ip + 4 ELSE ints[ip + 3] END;
        WHEN 22 THEN  -- blob $1 goes if it was last written before $2
            DELETE FROM {schema}.blob WHERE hash = bytes[ints[ip + 1]] AND written_at_us < ints[ip + 2];
            ip := ip + 3;
        END CASE;

        IF NOT holds THEN
            outcomes[cardinality(outcomes)] := place;
            ip := next_commit;
        END IF;
    END LOOP;
    RETURN outcomes;
END
$$;
