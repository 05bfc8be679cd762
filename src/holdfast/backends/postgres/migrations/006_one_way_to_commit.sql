-- Every commit is carried out by `carry_out`.
DROP FUNCTION IF EXISTS {schema}.save_all;
DROP FUNCTION IF EXISTS {schema}.save_batch;
DROP FUNCTION IF EXISTS {schema}.save_one;
DROP FUNCTION IF EXISTS {schema}.save_many;
