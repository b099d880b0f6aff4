from firearrow.hot.reference.writing import (
    LogWriter as LogWriter,
)
from firearrow.hot.reference.writing import (
    StoreMessage as StoreMessage,
)
from firearrow.hot.reference.writing import (
    count_parts as count_parts,
)
