select 1 as id, 7 as amount
