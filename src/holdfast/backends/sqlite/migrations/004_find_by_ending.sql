-- A checkpoint is named by the last eight digits of its id or more: this finds them without a look at every id. It is written
-- with `record_by_id`, many entries at a time.
CREATE INDEX record_by_ending ON record_by_id (substr(id, 13));
