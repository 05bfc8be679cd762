-- Ordinary indexes find a record by id, by its place in a session, and by the last four bytes of its id.
DROP TRIGGER record_deleted;
DROP TABLE record_by_id;
DROP TABLE record_by_place;
DROP TABLE indexed;

CREATE UNIQUE INDEX record_by_id ON record (id);
CREATE UNIQUE INDEX record_by_place ON record (session, sequence);
CREATE INDEX record_by_ending ON record (substr(id, 13));
