select nowhere from {{ ref('orders') }}
