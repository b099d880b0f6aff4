from firearrow.hot.reference.queues import (
    QueueTail as QueueTail,
)
from firearrow.hot.reference.queues import (
    check_run as check_run,
)
from firearrow.hot.reference.queues import (
    derive_records as derive_records,
)
from firearrow.hot.reference.queues import (
    gather_entries as gather_entries,
)
from firearrow.hot.reference.queues import (
    key_hash as key_hash,
)
from firearrow.hot.reference.queues import (
    queue_key as queue_key,
)
