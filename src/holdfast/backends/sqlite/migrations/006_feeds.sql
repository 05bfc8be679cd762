-- The feed of a record, if it was written with one. The index has only these: other saves don't write to it.
ALTER TABLE record ADD COLUMN feed BLOB;
CREATE INDEX record_by_feed ON record (feed, n) WHERE feed IS NOT NULL;
