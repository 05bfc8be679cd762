-- A record's n is its position in the order of commits, and is never given again. As long as the record with the highest
-- one is there, the table of records says which come next. When collection deletes it, its n is written down here: one
-- row, that no save writes.
CREATE TABLE deleted (n INTEGER PRIMARY KEY);
