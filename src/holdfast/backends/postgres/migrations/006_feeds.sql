-- The positions of the records that were written with a feed. Commits without one don't touch this table.
CREATE TABLE {schema}.feed (
    feed bytea NOT NULL,
    position bigint NOT NULL REFERENCES {schema}.record ON DELETE CASCADE,
    PRIMARY KEY (feed, position)
);
CREATE INDEX feed_by_position ON {schema}.feed (position);  -- for the deletion of a record

-- Carries out commits, as `carry_out` does, and notes the feeds of their new records. Of a refused commit there is no
-- record, or the one that is there already, with the feed that it has.
CREATE FUNCTION {schema}.carry_out_with_feeds(
    locks bigint[], ints bigint[], bytes bytea[], words text[], fast boolean, ids bytea[], feeds bytea[]
) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE
    outcomes integer[] := {schema}.carry_out(locks, ints, bytes, words, fast);
BEGIN
    INSERT INTO {schema}.feed (feed, position)
    SELECT noted.feed, record.position FROM unnest(ids, feeds) AS noted (id, feed)
    JOIN {schema}.record ON record.id = noted.id
    WHERE NOT EXISTS (SELECT FROM {schema}.feed WHERE feed.position = record.position);
    RETURN outcomes;
END
$$;
