-- A checkpoint is named by the last eight digits of its id or more: this finds them without a look at every id.
CREATE INDEX record_by_ending ON {schema}.record (substr(id, 13));

-- Every session has a row in the store's own tree, the empty one. To the planner the index by tree and space looked as good for these as the
-- primary key, and then each look-up read the rows of all sessions. Only `scan` of one tree needs it.
DROP INDEX {schema}.rows_of_tree;
CREATE INDEX rows_of_tree ON {schema}.rows (tree, space) WHERE tree <> '';
