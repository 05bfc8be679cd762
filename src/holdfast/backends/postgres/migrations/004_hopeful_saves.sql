-- Plain commits once more, by functions that take for granted what nearly always holds: the session is known, its logs end
-- where the runs begin, and the record's id and number are free. These conditions are part of the changes themselves, so
-- that a commit is two statements and not six. Where one does not hold, everything is rolled back by an error (HF003, or the
-- one of a unique index), nothing has happened, and the client asks `save_batch`, which decides about each commit.
--
-- Locks and positions are as in `carry_out`; the columns are in the order of plain.py. A function's value is thrown away by
-- `IF … IS NULL`, which plpgsql works out by itself, where a PERFORM would be a query.

-- One commit. Returns 0; or 4 if its row is not as expected, which is the one conflict that is no surprise.
CREATE FUNCTION {schema}.save_one(
    lock bigint, fast boolean,
    space text, key bytea, rest_hash bytea, tree bytea, version bigint, was bytea, value bytea,
    id bytea, session bytea, sequence bigint, data bytea,
    created_at_us bigint, expires_at_us bigint, step_index bigint,
    parent bytea, agent_id bytea, framework bytea, step_name bytea, handoff_target bytea,
    first_k bigint, first_log bigint, first_length bigint, first_run bytea,
    second_k bigint, second_log bigint, second_length bigint, second_run bytea,
    beside_space text, beside_key bytea, beside_hash bytea, beside_tree bytea, beside_rest bytea, beside_value bytea
) RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs READ COMMITTED: with another isolation level a commit would look at conditions '
            'as they were before it had its locks'
            USING ERRCODE = 'HF001';
    END IF;
    IF fast AND set_config('synchronous_commit', 'off', true) IS NULL THEN
    END IF;
    -- Plans are kept: one that was made while a table was small must not read all of it when it has grown.
    IF set_config('enable_seqscan', 'off', true) IS NULL OR pg_advisory_xact_lock(lock) IS NULL THEN
    END IF;

    UPDATE {schema}.rows SET version = rows.version + 1, value = save_one.value
    WHERE rows.space = save_one.space AND rows.key = save_one.key AND rows.rest_hash = save_one.rest_hash
        AND rows.tree = save_one.tree AND rows.version = save_one.version
        AND (save_one.was IS NULL OR rows.value = save_one.was);
    IF NOT FOUND THEN
        RETURN 4;
    END IF;
    INSERT INTO {schema}.record (
        position, id, session, sequence, data, created_at_us, expires_at_us, step_index, parent, agent_id, framework,
        step_name, handoff_target
    ) SELECT
        given.position, save_one.id, session.n, save_one.sequence, save_one.data, save_one.created_at_us,
        save_one.expires_at_us, save_one.step_index, save_one.parent, save_one.agent_id, save_one.framework,
        save_one.step_name, save_one.handoff_target
    FROM (
        SELECT base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20) AS position
        FROM {schema}.store WHERE is_one
    ) AS given, {schema}.session
    WHERE sha256(session.id) = sha256(save_one.session) AND given.position > 0;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'holdfast goes another way: the session is new, or there is no position' USING ERRCODE = 'HF003';
    END IF;
    IF first_k IS NOT NULL THEN
        INSERT INTO {schema}.run SELECT first_k, first_length, first_run WHERE first_k = coalesce((
            SELECT k + length FROM {schema}.run WHERE k >= first_log AND k < first_log + 268435456 ORDER BY k DESC LIMIT 1
        ), first_log);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast goes another way: a log ends elsewhere' USING ERRCODE = 'HF003';
        END IF;
    END IF;
    IF second_k IS NOT NULL THEN
        INSERT INTO {schema}.run SELECT second_k, second_length, second_run WHERE second_k = coalesce((
            SELECT k + length FROM {schema}.run WHERE k >= second_log AND k < second_log + 268435456 ORDER BY k DESC LIMIT 1
        ), second_log);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'holdfast goes another way: a log ends elsewhere' USING ERRCODE = 'HF003';
        END IF;
    END IF;
    IF beside_value IS NOT NULL THEN
        INSERT INTO {schema}.rows AS rows (space, key, rest_hash, tree, rest, value, version)
        VALUES (beside_space, beside_key, beside_hash, beside_tree, beside_rest, beside_value, 1)
        ON CONFLICT (space, key, rest_hash, tree) DO UPDATE SET value = excluded.value, version = rows.version + 1;
    END IF;
    RETURN 0;
END
$$;

-- Many commits, each of a row of its own. Returns 0: all were carried out. An array that is shorter than others stands for
-- NULL in what it lacks.
CREATE FUNCTION {schema}.save_many(
    locks bigint[], fast boolean,
    spaces text[], keys bytea[], rest_hashes bytea[], trees bytea[], versions bigint[], were bytea[], new_values bytea[],
    ids bytea[], sessions bytea[], sequences bigint[], data bytea[],
    created_at_us bigint[], expires_at_us bigint[], step_indexes bigint[],
    parents bytea[], agent_ids bytea[], frameworks bytea[], step_names bytea[], handoff_targets bytea[],
    run_ks bigint[], run_logs bigint[], run_lengths bigint[], run_data bytea[],
    beside_spaces text[], beside_keys bytea[], beside_hashes bytea[], beside_trees bytea[], beside_rests bytea[],
    beside_values bytea[]
) RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    lock bigint;
    changed bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs READ COMMITTED: with another isolation level a commit would look at conditions '
            'as they were before it had its locks'
            USING ERRCODE = 'HF001';
    END IF;
    IF fast AND set_config('synchronous_commit', 'off', true) IS NULL THEN
    END IF;
    -- One plan, made once, that goes from each commit to its row and its session by their indexes.
    IF set_config('plan_cache_mode', 'force_generic_plan', true) IS NULL
        OR set_config('enable_seqscan', 'off', true) IS NULL
        OR set_config('enable_hashjoin', 'off', true) IS NULL
        OR set_config('enable_mergejoin', 'off', true) IS NULL
    THEN
    END IF;
    FOREACH lock IN ARRAY locks LOOP
        IF pg_advisory_xact_lock(lock) IS NULL THEN
        END IF;
    END LOOP;

    WITH given AS MATERIALIZED (
        SELECT * FROM unnest(
            spaces, keys, rest_hashes, trees, versions, were, new_values, ids, sessions, sequences, save_many.data,
            save_many.created_at_us, save_many.expires_at_us, step_indexes, parents, agent_ids, frameworks, step_names,
            handoff_targets
        ) WITH ORDINALITY AS given (
            space, key, rest_hash, tree, version, was, value, id, session, sequence, data, created_at_us, expires_at_us,
            step_index, parent, agent_id, framework, step_name, handoff_target, number
        )
    ), moved AS (
        UPDATE {schema}.rows SET version = rows.version + 1, value = given.value FROM given
        WHERE rows.space = given.space AND rows.key = given.key AND rows.rest_hash = given.rest_hash
            AND rows.tree = given.tree AND rows.version = given.version
            AND (given.was IS NULL OR rows.value = given.was)
        RETURNING given.*
    )
    INSERT INTO {schema}.record (
        position, id, session, sequence, data, created_at_us, expires_at_us, step_index, parent, agent_id, framework,
        step_name, handoff_target
    ) SELECT
        first.position + moved.number - 1, moved.id, session.n, moved.sequence, moved.data,
        nullif(moved.created_at_us, -1), nullif(moved.expires_at_us, -1), nullif(moved.step_index, -1), moved.parent,
        moved.agent_id, moved.framework, moved.step_name, moved.handoff_target
    FROM (
        SELECT base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20) AS position
        FROM {schema}.store WHERE is_one
    ) AS first, moved, {schema}.session
    WHERE sha256(session.id) = sha256(moved.session) AND first.position > 0;
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> cardinality(ids) THEN
        RAISE EXCEPTION 'holdfast goes another way: a row is not as expected, a session is new, or there is no position'
            USING ERRCODE = 'HF003';
    END IF;
    IF cardinality(run_ks) > 0 THEN
        INSERT INTO {schema}.run SELECT given.k, given.length, given.data
        FROM unnest(run_ks, run_logs, run_lengths, run_data) AS given (k, log, length, data)
        WHERE given.k = coalesce((
            SELECT run.k + run.length FROM {schema}.run WHERE run.k >= given.log AND run.k < given.log + 268435456
            ORDER BY run.k DESC LIMIT 1
        ), given.log);
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed <> cardinality(run_ks) THEN
            RAISE EXCEPTION 'holdfast goes another way: a log ends elsewhere' USING ERRCODE = 'HF003';
        END IF;
    END IF;
    IF cardinality(beside_values) > 0 THEN
        INSERT INTO {schema}.rows AS rows (space, key, rest_hash, tree, rest, value, version)
        SELECT given.*, 1
        FROM unnest(beside_spaces, beside_keys, beside_hashes, beside_trees, beside_rests, beside_values) AS given
        ON CONFLICT (space, key, rest_hash, tree) DO UPDATE SET value = excluded.value, version = rows.version + 1;
    END IF;
    RETURN 0;
END
$$;
